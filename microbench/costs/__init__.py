"""Isolated costs, one a file; each a function that returns `Cost` rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from microbench.costs.cost import Cost

if TYPE_CHECKING:
    from microbench.engines import EngineProfile
    from microbench.target import Target


def all_costs(target: Target, engine: EngineProfile) -> Iterator[Cost]:
    """Every row on a real-host target: the noise floor first, then each isolated cost."""
    from microbench.case import what_if_spec
    from microbench.costs.copy_done import SIZES_BYTES, copy_done
    from microbench.costs.event_wait import MODES, event_wait
    from microbench.costs.floor import floor
    from microbench.costs.gil import INTERVALS_S, gil
    from microbench.costs.handoff import PRIMITIVES, handoff, handoff_busy
    from microbench.costs.launch import launch
    from microbench.costs.scheduling import BATCHES, scheduling
    from microbench.target import open_target

    host, device = open_target(target)
    yield from floor(host, device)
    for primitive in PRIMITIVES:
        yield handoff(primitive)
        yield handoff_busy(primitive)
    for mode in MODES:
        yield event_wait(*open_target(target, spin_waits=True), mode)
    for nbytes in SIZES_BYTES:
        for pinned in (True, False):
            values = device_bytes(device.tensor_device, nbytes)
            yield from copy_done(host, device, nbytes, pinned=pinned, values=values)
    eager = what_if_spec(engine, gpu_ns=1_000_000, launches=100, launch=engine.launch)
    yield launch(host, device, eager)
    yield launch(host, device, replace(eager, graph=engine.graph_launch))
    yield gil(None)
    for interval_s in INTERVALS_S:
        yield gil(interval_s)
    for batch in BATCHES:
        yield from scheduling(engine, batch)


def device_bytes(tensor_device: str, nbytes: int) -> object:
    """`nbytes` on a CUDA device to copy from; None for a modelled one, which needs nothing to copy."""
    if tensor_device == "cpu":
        return None
    import torch

    return torch.zeros(nbytes, dtype=torch.uint8, device=tensor_device)


__all__ = ["Cost", "all_costs"]
