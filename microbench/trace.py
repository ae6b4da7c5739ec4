"""What happened in a run: host segments by task and the end of each step.

Recording is two clock reads and two list appends a segment; `costs.floor` measures what that adds to a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

SEGMENTS = ("schedule", "launch", "wait", "process", "stream")


@dataclass
class Trace:
    """Segments as (task, segment, start_ns, end_ns) and step ends in ns, in the order they were recorded."""

    now_ns: Callable[[], int]
    laps: list[tuple[str, str, int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def track(self, task: str) -> Callable[[str, int], int]:
        """A `lap(segment, start_ns) -> end_ns` for one task."""
        now_ns, append = self.now_ns, self.laps.append

        def lap(segment: str, start_ns: int) -> int:
            end_ns = now_ns()
            append((task, segment, start_ns, end_ns))
            return end_ns

        return lap

    def step_done(self, end_ns: int) -> None:
        """One more step's result was processed and streamed."""
        self.steps.append(end_ns)

    def window(self, warm: int) -> Window:
        """Means over the steps after the first `warm` (they fill caches and the pipeline) and before the last.

        The last one is left out because an overlapping scheduler launches nothing under it.
        Raises ValueError when no step is left.
        """
        ends = self.steps[max(warm, 1) - 1 : -1]
        if len(ends) < 2:
            raise ValueError(f"{len(self.steps)} steps are too few to measure after {warm} of warm-up")
        n, start, end = len(ends) - 1, ends[0], ends[-1]
        host: dict[str, float] = defaultdict(float)
        for _, segment, a, b in self.laps:
            if start < b <= end:
                host[segment] += b - a
        return Window(
            steps=n,
            step_ns=(end - start) / n,
            host_ns={s: host[s] / n for s in SEGMENTS},
            step_samples_ns=tuple(b - a for a, b in pairwise(ends)),
        )


@dataclass(frozen=True)
class Window:
    """Means per step over `steps` steps, in ns.

    host_ns: by segment, waiting for the GIL included. busy_ns: GPU time a step; None where only the GPU knows.
    """

    steps: int
    step_ns: float
    host_ns: dict[str, float]
    step_samples_ns: tuple[int, ...]
    busy_ns: float | None = None
