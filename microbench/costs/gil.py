"""GIL contention: what a call that gives the GIL up costs next to one busy Python thread, over switch intervals."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext

from microbench.costs.cost import Cost
from microbench.costs.handoff import busy_thread

INTERVALS_S = (0.005, 0.001, 0.0001)


def gil(interval_s: float | None, *, calls: int = 60) -> Cost:
    """Extra wall time of a call that drops the GIL for about 10 us, as a dispatched torch op does.

    interval_s: the switch interval while one thread of pure Python competes; None: nobody competes.
    """
    import torch

    before = sys.getswitchinterval()
    samples: list[int] = []
    stalls = 0
    try:
        tensor = torch.zeros(20_000)
        if interval_s is not None:
            sys.setswitchinterval(interval_s)
        with busy_thread() if interval_s is not None else nullcontext():
            for _ in range(calls):
                cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
                torch.add(tensor, 1.0, out=tensor)
                wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
                samples.append(max(wall - cpu, 0))
                stalls += interval_s is not None and wall > interval_s * 0.5e9
    finally:
        sys.setswitchinterval(before)
    variant = "alone" if interval_s is None else f"one busy thread, switch interval {interval_s * 1e3:g} ms"
    return Cost(
        group="GIL wait of one launch",
        variant=variant,
        samples_ns=tuple(samples),
        facts={"stalled_share": round(stalls / calls, 3)},
    )
