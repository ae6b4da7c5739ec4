"""The isolated costs as benchmarks, one group each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from microbench.case import what_if_spec
from microbench.costs import device_bytes
from microbench.costs.copy_done import SIZES_BYTES, copy_done
from microbench.costs.cost import Cost
from microbench.costs.event_wait import MODES, event_wait
from microbench.costs.floor import floor
from microbench.costs.gil import INTERVALS_S, gil
from microbench.costs.handoff import PRIMITIVES, handoff, handoff_busy
from microbench.costs.launch import launch
from microbench.costs.scheduling import BATCHES, SEGMENTS, scheduling
from microbench.costs.slopes import launch_slopes
from microbench.costs.stream_calls import CALLS, stream_calls
from microbench.engines import engine
from microbench.target import Target, open_target

Report = Callable[..., None]
ENGINE = "sglang-0.4.0.post1"


def give(report: Report, cost: Cost) -> None:
    report(cost.samples_ns, clock=cost.clock, marks=list(cost.marks), **cost.facts)


FLOOR = (
    "clock read",
    "queue put + get, same thread",
    "wake-up overshoot of a timed wait",
    "recording one step",
    "null event pair",
    "query of a finished event",
)


@pytest.fixture(scope="module")
def floor_rows(target: Target) -> dict[str, Cost]:
    return {cost.variant: cost for cost in floor(*open_target(target))}


@pytest.mark.benchmark(group="0 noise floor")
@pytest.mark.parametrize("row", FLOOR)
def test_floor(report: Report, floor_rows: dict[str, Cost], row: str) -> None:
    give(report, floor_rows[row])


@pytest.mark.benchmark(group="1 thread hand-off, receiver idle")
@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_handoff(report: Report, primitive: str) -> None:
    give(report, handoff(primitive))


@pytest.mark.benchmark(group="2 thread hand-off beside one busy Python thread")
@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_handoff_busy(report: Report, primitive: str) -> None:
    give(report, handoff_busy(primitive))


@pytest.mark.benchmark(group="3 event wait: seen after it happened")
@pytest.mark.parametrize("mode", MODES)
def test_event_wait(report: Report, target: Target, mode: str) -> None:
    give(report, event_wait(*open_target(target, spin_waits=True), mode)[0])


@pytest.mark.benchmark(group="4 copy_done: complete, as the host sees it")
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("nbytes", SIZES_BYTES)
def test_copy_done(report: Report, target: Target, nbytes: int, memory: str) -> None:
    host, device = open_target(target)
    values = device_bytes(device.tensor_device, nbytes)
    _, _, complete = copy_done(host, device, nbytes, pinned=memory == "pinned", values=values)
    give(report, complete)


@pytest.mark.benchmark(group="5 kernel launch: host submit")
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_launch(report: Report, target: Target, mode: str) -> None:
    profile = engine(ENGINE)
    spec = what_if_spec(profile, gpu_ns=1_000_000, launches=100, launch=profile.launch)
    spec = replace(spec, graph=profile.graph_launch if mode == "graph" else None)
    give(report, launch(*open_target(target), spec)[0])


@pytest.mark.benchmark(group="5 slope over N launches")
@pytest.mark.parametrize("clock", ["host submit", "device event"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_slope(report: Report, target: Target, mode: str, clock: str) -> None:
    profile = engine(ENGINE)
    spec = what_if_spec(profile, gpu_ns=1_000_000, launches=100, launch=profile.launch)
    spec = replace(spec, graph=profile.graph_launch if mode == "graph" else None)
    give(report, launch_slopes(*open_target(target), spec)[clock == "device event"])


@pytest.fixture(scope="module")
def call_rows(target: Target) -> list[Cost]:
    return stream_calls(*open_target(target), target.device)


@pytest.mark.benchmark(group="5 stream and event calls")
@pytest.mark.parametrize("row", range(len(CALLS)), ids=CALLS)
def test_stream_calls(report: Report, call_rows: list[Cost], row: int) -> None:
    assert call_rows[row].variant.endswith(f": {CALLS[row]}")
    give(report, call_rows[row])


@pytest.mark.benchmark(group="6 GIL wait of one launch")
@pytest.mark.parametrize("interval_s", [None, *INTERVALS_S], ids=lambda s: "alone" if s is None else f"{s * 1e3:g}ms")
def test_gil(report: Report, interval_s: float | None) -> None:
    give(report, gil(interval_s))


@pytest.mark.benchmark(group=f"7 Python scheduling, {ENGINE}")
@pytest.mark.parametrize("segment", range(len(SEGMENTS)), ids=["schedule", "process", "stream"])
@pytest.mark.parametrize("batch", BATCHES)
def test_scheduling(report: Report, batch: int, segment: int) -> None:
    give(report, scheduling(engine(ENGINE), batch)[segment])
