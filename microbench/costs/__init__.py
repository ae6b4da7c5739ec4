"""Isolated costs, one a file; each a function that returns `Cost` rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from microbench.costs.cost import Cost
from microbench.nvml import GpuState, marks
from microbench.protocols import Device, Host

if TYPE_CHECKING:
    from microbench.engines import EngineProfile
    from microbench.target import Target


def all_costs(target: Target, engine: EngineProfile) -> Iterator[Cost]:
    """Every row on a real-host target: the noise floor first, then each isolated cost, of the device and of the host.

    On a CUDA GPU, the event and stream calls are those of both libraries that reach it, as far as installed.
    """
    from microbench.costs.gil import INTERVALS_S, gil
    from microbench.costs.handoff import PRIMITIVES, handoff, handoff_busy
    from microbench.costs.scheduling import BATCHES, scheduling

    yield from device_costs(target, engine)
    for library in sorted(GPU_LIBRARIES - {target.device}) if target.device in GPU_LIBRARIES else ():
        yield from calls_of(target, library)
    for primitive in PRIMITIVES:
        yield handoff(primitive)
        yield handoff_busy(primitive)
    yield gil(None)
    for interval_s in INTERVALS_S:
        yield gil(interval_s)
    for batch in BATCHES:
        yield from scheduling(engine, batch)


GPU_LIBRARIES = {"torch", "cupy"}
"""Devices of the targets on a CUDA GPU."""


def device_costs(target: Target, engine: EngineProfile | None = None) -> Iterator[Cost]:
    """The rows that the device has a part in, the noise floor first.

    On a GPU, rows measured while it was throttled or not up to speed carry marks. engine: what launches cost a modelled
    GPU's host (default: as SGLang 0.4.0.post1 has them).
    """
    from microbench.target import open_target

    host, device = open_target(target)
    for measure in _measurements(target, engine, host, device):
        yield from marked(device, measure)


def _measurements(
    target: Target, engine: EngineProfile | None, host: Host, device: Device
) -> Iterator[Callable[[], Sequence[Cost]]]:
    from microbench.case import what_if_spec
    from microbench.costs.clocks import null_pair
    from microbench.costs.copy_done import SIZES_BYTES, copy_done
    from microbench.costs.event_wait import MODES, event_wait
    from microbench.costs.floor import floor
    from microbench.costs.launch import launch
    from microbench.costs.slopes import launch_slopes
    from microbench.costs.stream_calls import stream_calls
    from microbench.engines import engine as named_engine
    from microbench.target import open_target

    yield partial(floor, host, device)
    yield partial(null_pair, host, device)
    yield partial(stream_calls, host, device, target.device)
    waiting = open_target(target, spin_waits=True)
    for mode in MODES:
        yield partial(event_wait, *waiting, mode)
    for nbytes in SIZES_BYTES:
        values = device_bytes(device.tensor_device, nbytes)
        for pinned in (True, False):
            yield partial(copy_done, host, device, nbytes, pinned=pinned, values=values)
    engine = engine or named_engine("sglang-0.4.0.post1")
    eager = what_if_spec(engine, gpu_ns=1_000_000, launches=100, launch=engine.launch)
    for measure in (launch, launch_slopes):
        for spec in (eager, replace(eager, graph=engine.graph_launch)):
            yield partial(measure, host, device, spec)


def calls_of(target: Target, library: str) -> list[Cost]:
    """The event and stream calls of another library on the GPU of this target; none where it can't be opened."""
    from microbench.costs.stream_calls import stream_calls
    from microbench.errors import Unavailable
    from microbench.target import open_target

    try:
        host, device = open_target(replace(target, device=library))
    except Unavailable:
        return []
    return marked(device, partial(stream_calls, host, device, library))


def marked(device: Device, measure: Callable[[], Sequence[Cost]]) -> list[Cost]:
    """The rows of `measure`, with what the GPU's clocks and throttling before and after say against them.

    And with what the device notes of itself, such as that it is a slice.
    """
    read: Callable[[], GpuState | None] = getattr(device, "gpu_state", lambda: None)
    notes: Callable[[], tuple[str, ...]] = getattr(device, "notes", tuple)
    before = read()
    rows = measure()
    found = (*notes(), *marks(before, read()))
    return [replace(row, marks=found) for row in rows]


def device_bytes(tensor_device: str, nbytes: int) -> object:
    """`nbytes` on a CUDA device to copy from; None for a modelled one, which needs nothing to copy."""
    if tensor_device == "cpu":
        return None
    import torch

    return torch.zeros(nbytes, dtype=torch.uint8, device=tensor_device)


__all__ = ["Cost", "all_costs", "device_costs"]
