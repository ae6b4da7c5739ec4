"""Two runs side by side: the ratio of each metric that both have, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from microbench.errors import UsageError
from microbench.reports.metrics import better, unit
from microbench.reports.report import Reading, Report

MUST_AGREE = ("total_input_tokens", "total_output_tokens", "completed")
"""Metrics that say whether both runs did the same work."""


@dataclass(frozen=True)
class Change:
    """One metric in both runs. `ratio` is on/off; None where off is 0. `verdict` is "" where neither way is better."""

    metric: str
    unit: str
    on: float
    off: float
    ratio: float | None
    better: str | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """The run with the feature (`on`) against the one without (`off`)."""

    on: Report
    off: Report
    changes: tuple[Change, ...]
    only_on: tuple[str, ...]
    only_off: tuple[str, ...]
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of `microbench report compare`."""
        return {
            "target": "published",
            "on": {"source": self.on.source, "run": self.on.run, "tool": self.on.tool},
            "off": {"source": self.off.source, "run": self.off.run, "tool": self.off.tool},
            "metrics": [
                {
                    "metric": c.metric,
                    "unit": c.unit,
                    "on": c.on,
                    "off": c.off,
                    "ratio_on_over_off": c.ratio,
                    "better": c.better,
                    "verdict": c.verdict,
                }
                for c in self.changes
            ],
            "only_on": list(self.only_on),
            "only_off": list(self.only_off),
            "remarks": list(self.remarks),
        }


def select_run(reading: Reading, run: int | None) -> Report:
    """The one run of a file, or the one that was asked for; UsageError where that is not clear.

    Runs that are the same, row for row, count as one.
    """
    runs = reading.reports
    if not runs:
        raise UsageError(f"{reading.source}: {reading.problems[0] if reading.problems else 'no result in it'}")
    if run is not None:
        if not 1 <= run <= len(runs):
            raise UsageError(f"{reading.source}: there is no run {run}; the last is {len(runs)}")
        return runs[run - 1]
    if any((r.metrics, r.settings) != (runs[0].metrics, runs[0].settings) for r in runs[1:]):
        raise UsageError(f"{reading.source}: {len(runs)} runs in one file; say which, such as --run 1, or --run 1,2")
    return runs[0]


def compare(on: Report, off: Report) -> Comparison:
    """Ratios on/off; UsageError if the two have no metric in common."""
    shared = [name for name in on.metrics if name in off.metrics]
    if not shared:
        raise UsageError(f"{on.source} and {off.source} have no metric in common")
    return Comparison(
        on=on,
        off=off,
        changes=tuple(_change(name, on.metrics[name], off.metrics[name]) for name in shared),
        only_on=tuple(name for name in on.metrics if name not in off.metrics),
        only_off=tuple(name for name in off.metrics if name not in on.metrics),
        remarks=tuple(_remarks(on, off)),
    )


def _change(name: str, on: float, off: float) -> Change:
    way = better(name)
    if way is None:
        verdict = ""
    elif on == off:
        verdict = "same"
    else:
        verdict = "better" if (on > off) == (way == "higher") else "worse"
    ratio = on / off if off else None
    return Change(name, unit(name), on, off, ratio if ratio is None or abs(ratio) < 1e300 else None, way, verdict)


def _remarks(on: Report, off: Report) -> list[str]:
    """What speaks against holding the two against each other."""
    remarks = []
    for side, report in (("on", on), ("off", off)):
        if report.truncated:
            remarks.append(f"{side} is cut off")
    if on.tool != off.tool:
        remarks.append(f"measured with two tools: on {on.tool}, off {off.tool}")
    for name in on.settings:
        if name in off.settings and on.settings[name] != off.settings[name]:
            remarks.append(f"{name} differs: on {on.settings[name]}, off {off.settings[name]}")
    for name in MUST_AGREE:
        if name in on.metrics and name in off.metrics and on.metrics[name] != off.metrics[name]:
            remarks.append(f"not the same work: {name} on {on.metrics[name]:g}, off {off.metrics[name]:g}")
    return remarks
