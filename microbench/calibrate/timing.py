"""Timing enqueued work: what enqueuing it takes the host, and what it takes the device with no host time in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from microbench.costs.clocks import measured
from microbench.protocols import Device, Host
from microbench.stats import median


@dataclass(frozen=True)
class Timed:
    """Medians in ns. device_ns: None where the host was too slow to enqueue all of it behind a held stream."""

    submit_ns: float
    device_ns: float | None


def timed(host: Host, device: Device, work: Callable[[], object], *, repeats: int = 10) -> Timed:
    """Run `work`, which enqueues kernels on the current stream and waits for nothing; see `costs.clocks`."""
    clocks = measured(host, device, work, times=repeats)
    in_time = clocks.held is not None and clocks.held >= 0.5
    return Timed(median(clocks.submit_ns), median(clocks.device_ns) if in_time else None)
