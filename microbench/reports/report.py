"""What was read: one `Report` a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_UNKNOWN_ROWS = 200
"""Rows without a known meaning that a report keeps; more are counted."""
MOST_PROBLEMS = 50
"""Remarks that a report keeps."""


@dataclass(frozen=True)
class Report:
    """One run of a serving benchmark, as it was published.

    `run` counts from 1 in its file, `line` is its first line. `metrics` bear the names of bench_serving's JSON keys, in
    the units of `units`; `settings` are the run's own words. Whatever else stood in the block is in `unknown`, verbatim
    (without colours and prefix), at most MOST_UNKNOWN_ROWS of it; `dropped` counts the rest.
    """

    source: str
    run: int
    line: int
    tool: str
    layout: str
    metrics: Mapping[str, float]
    units: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    dropped: int = 0
    truncated: bool = False
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A document that says it is somebody's published measurement."""
        return {
            "target": "published",
            "source": self.source,
            "run": self.run,
            "line": self.line,
            "tool": self.tool,
            "layout": self.layout,
            "truncated": self.truncated,
            "metrics": dict(self.metrics),
            "units": dict(self.units),
            "settings": dict(self.settings),
            "unknown_rows": list(self.unknown),
            "unknown_rows_dropped": self.dropped,
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class Reading:
    """The reports of a file, in its order, and what is to be said of the file as a whole."""

    source: str
    reports: tuple[Report, ...]
    problems: tuple[str, ...] = ()
