"""Three clocks for one piece of enqueued work: host submit, device event time, completion as the host sees it.

One number is none of the three: submitting says nothing of the GPU, a wall clock up to the end holds both and the
wake-up, and two events around work on an idle stream hold the launch latency of the host. So the host's two clocks run
on an idle stream, and the device's on a stream held by a spinning kernel until all is enqueued, so that its span
contains no host time. Nothing waits inside a timed region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from microbench.costs.cost import Cost, clock_of
from microbench.protocols import Device, Host

WARM_UP = 3
"""Runs that aren't counted: they load kernels, fill allocators and pools, and raise the clock."""
_SPARE_NS = 50_000
_LONGEST_HOLD_NS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Samples in ns, one a run. `held`: the share of the device's that surely contain no host time; None: not held."""

    submit_ns: tuple[int, ...]
    device_ns: tuple[int, ...]
    completion_ns: tuple[int, ...]
    held: float | None = None


def three_clocks(
    host: Host, device: Device, enqueue: Callable[[], object], *, times: int, warm: int = WARM_UP
) -> Clocks:
    """Run `enqueue` on the current stream `times` for the host's clocks and `times` for the device's, in turn.

    Call it within a task of the host. `enqueue` must not leave more than about 900 launches pending. A call that waits
    in itself, such as a pageable copy, can't be held: its span on the device is that of an idle stream.
    """
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    submit: list[int] = []
    completion: list[int] = []
    on_device: list[int] = []
    held = 0

    def on_idle_stream() -> tuple[int, int]:
        began = host.now_ns()
        enqueue()
        submitted = host.now_ns()
        end.record()
        end.synchronize()
        return submitted - began, host.now_ns() - began

    def on_held_stream(hold_ns: int) -> tuple[int, bool]:
        device.spin(hold_ns)
        start.record()
        enqueue()
        end.record()
        in_time = not start.query()
        end.synchronize()
        return max(round(start.elapsed_time(end) * 1e6), 0), in_time

    typical = median(on_idle_stream()[0] for _ in range(max(warm, 1)))
    hold_ns = min(round(3 * typical) + _SPARE_NS, _LONGEST_HOLD_NS)
    for _ in range(warm):
        on_held_stream(hold_ns)
    for _ in range(times):
        host_side = on_idle_stream()
        submit.append(host_side[0])
        completion.append(host_side[1])
        span_ns, in_time = on_held_stream(hold_ns)
        on_device.append(span_ns)
        held += in_time
    return Clocks(
        submit_ns=tuple(submit),
        device_ns=tuple(on_device),
        completion_ns=tuple(completion),
        held=round(held / times, 3),
    )


def clock_rows(
    device: Device, clocks: Clocks, *, group: str, variant: str, divide_by: int = 1, **facts: float
) -> list[Cost]:
    """The three rows of a piece of work, each sample divided by the number of things it stands for."""
    held = {} if clocks.held is None else {"held_share": clocks.held}
    named: dict[str, tuple[tuple[int, ...], dict[str, float]]] = {
        "host submit": (clocks.submit_ns, {}),
        "device event": (clocks.device_ns, held),
        "host completion": (clocks.completion_ns, {}),
    }
    return [
        Cost(
            group=group,
            variant=f"{variant}, {clock}",
            samples_ns=tuple(ns // divide_by for ns in samples),
            clock=clock_of(device, clock),
            facts=facts | more,
        )
        for clock, (samples, more) in named.items()
    ]


def measured(host: Host, device: Device, enqueue: Callable[[], object], *, times: int) -> Clocks:
    """`three_clocks` as a task of its own."""
    found: list[Clocks] = []
    host.run({"launcher": lambda: found.append(three_clocks(host, device, enqueue, times=times))})
    return found[0]


def null_pair(host: Host, device: Device, *, times: int = 50) -> list[Cost]:
    """Two timing events with nothing between them: what the device clock of every other row contains by itself."""
    clocks = measured(host, device, lambda: None, times=times)
    return clock_rows(device, clocks, group="null event pair", variant="nothing")
