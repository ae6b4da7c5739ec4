"""Cost of one more launch, from spans of N = 1, 2, 4, ... of them: what a span costs once drops out of the slope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from microbench.costs.clocks import three_clocks
from microbench.costs.cost import Cost, clock_of
from microbench.costs.launch import OneRow
from microbench.devices.spec import StepSpec
from microbench.protocols import Device, Host

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Launches of a span: doubling, and never near the 1,000 pending at which the next launch blocks."""
KERNEL_NS = 2_000


def theil_sen(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and intercept of y over x: the median of the slopes between all pairs, then of what is left of y.

    Up to 29 % of the points may be anything (Theil 1950, Sen 1968). ValueError unless two points differ in x.
    """
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
    if not slopes:
        raise ValueError(f"a slope needs points of two different x, got {len(points)} of one")
    slope = median(slopes)
    return slope, median(y - slope * x for x, y in points)


def launch_slopes(
    host: Host, device: Device, spec: StepSpec, *, counts: Sequence[int] = COUNTS, rounds: int = 6
) -> list[Cost]:
    """Two rows, host submit and device event time of one more launch, or with `spec.graph` of one more node in a graph.

    Each round goes once through `counts` and gives one slope, so the interval of a row is that over rounds. Facts: what
    a span costs whatever N (`fixed_us`), the kernel each launch runs, and the most that were pending.
    """
    batch = OneRow(device.tensor_device)
    models = {n: device.model(replace(spec, forward_ns=(KERNEL_NS,) * n, plan_sync=False)) for n in counts}
    submit: list[tuple[float, float]] = []
    on_device: list[tuple[float, float]] = []

    def forward_of(n: int) -> Callable[[], None]:
        return lambda: models[n].forward(batch)

    def measure() -> None:
        for n in counts:
            three_clocks(host, device, forward_of(n), times=1)
        for _ in range(rounds):
            once = {n: three_clocks(host, device, forward_of(n), times=1, warm=1) for n in counts}
            submit.append(theil_sen([(n, clocks.submit_ns[0]) for n, clocks in once.items()]))
            on_device.append(theil_sen([(n, clocks.device_ns[0]) for n, clocks in once.items()]))

    host.run({"launcher": measure})
    what = "one more node of a graph" if spec.graph else "one more eager launch"
    return [
        Cost(
            group="slope over N launches",
            variant=f"{what}, {clock}",
            samples_ns=tuple(max(round(slope), 0) for slope, _ in lines),
            clock=clock_of(device, clock),
            facts={
                "fixed_us": round(median(fixed for _, fixed in lines) / 1e3, 2),
                "kernel_us": KERNEL_NS / 1e3,
                "most": float(max(counts)),
            },
        )
        for clock, lines in (("host submit", submit), ("device event", on_device))
    ]
