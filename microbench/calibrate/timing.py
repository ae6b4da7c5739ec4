"""Timing enqueued work: what enqueuing it takes the host, and what it takes the device without the host in the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from microbench.protocols import Device, Host
from microbench.stats import median

SHORTEST_HOLD_NS, LONGEST_HOLD_NS = 200_000, 100_000_000


@dataclass(frozen=True)
class Timed:
    """One sample a repeat, in ns: until the call that enqueues returned, and between events around it on the device.

    device_ns leaves out repeats in which the host was slower than the hold; it may be empty.
    """

    submit_ns: tuple[int, ...]
    device_ns: tuple[int, ...]

    @property
    def submit(self) -> float:
        return median(self.submit_ns)

    @property
    def device(self) -> float | None:
        """Median device time; None where the host was always too slow to measure it."""
        return median(self.device_ns) if self.device_ns else None


def timed(host: Host, device: Device, work: Callable[[], object], *, repeats: int = 10, warm: int = 3) -> Timed:
    """Run `work`, which enqueues kernels on the current stream and waits for nothing, `repeats` times after `warm`.

    A spin ahead of the first event holds the stream until all is enqueued, so that the span between the events has no
    host time in it (as long as less than a launch queue is enqueued).
    """
    submits: list[int] = []
    spans: list[int] = []

    def once(hold_ns: int) -> int:
        start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
        before = host.now_ns()
        device.spin(hold_ns)
        start.record()
        called = host.now_ns()
        work()
        returned = host.now_ns()
        end.record()
        end.synchronize()
        submits.append(returned - called)
        if returned - before < hold_ns:
            spans.append(round(start.elapsed_time(end) * 1e6))
        return returned - called

    def task() -> None:
        took = max(once(SHORTEST_HOLD_NS) for _ in range(warm))
        submits.clear()
        spans.clear()
        for _ in range(repeats):
            hold_ns = min(max(2 * took, SHORTEST_HOLD_NS), LONGEST_HOLD_NS)
            took = max(took, once(hold_ns)) if not spans else once(hold_ns)

    host.run({"timer": task})
    return Timed(tuple(submits), tuple(spans))
