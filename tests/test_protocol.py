"""One body over every host and device that can be opened: what a scheduler may rely on."""

from __future__ import annotations

from typing import Any

import pytest

from microbench.devices.spec import LaunchCost, StepSpec
from microbench.engines import Workload, engine, real_work
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.schedulers import SCHEDULERS, Run, overlaps
from microbench.target import open_target, parse_target
from microbench.trace import Trace

MS = 1_000_000
SPEC = StepSpec(
    forward_ns=(200_000,) * 4,
    sample_ns=(20_000,),
    launch=LaunchCost(gil_ns=3_000, free_ns=2_000),
    sample_launch=LaunchCost(gil_ns=3_000, free_ns=2_000),
)
TARGETS = [
    "virtual+sim:a100-80g",
    "real+sim:a100-80g",
    "real+torch:simulated",
    "real+cupy:simulated",
    pytest.param("real+torch", marks=pytest.mark.cuda),
    pytest.param("real+cupy", marks=pytest.mark.cuda),
]


@pytest.fixture(params=TARGETS)
def opened(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    if request.param == "real+cupy":
        pytest.importorskip("cupy", reason="CuPy is not installed")
    return open_target(parse_target(request.param))


def run(host: Any, body: Any) -> None:
    host.run({"only": body})


def test_an_event_is_done_after_the_work_before_it(opened: tuple[Any, Any]) -> None:
    host, device = opened
    seen: list[bool] = []
    waited: list[int] = []

    def body() -> None:
        event = device.Event()
        start = host.now_ns()
        device.spin(20 * MS)
        event.record()
        seen.append(event.query())
        event.synchronize()
        waited.append(host.now_ns() - start)
        seen.append(event.query())

    run(host, body)
    assert seen == [False, True]
    assert waited[0] >= 15 * MS  # a GPU's spin is calibrated in cycles, not exact


def test_a_stream_waits_for_another_and_not_the_host(opened: tuple[Any, Any]) -> None:
    host, device = opened
    order: list[bool] = []

    def body() -> None:
        first, second = device.Stream(), device.Stream()
        done_first, done_second = device.Event(), device.Event()
        with device.stream(first):
            device.spin(20 * MS)
            done_first.record()
        with device.stream(second):
            second.wait_event(done_first)
            device.spin(MS)
            done_second.record()
        order.append(done_first.query())  # nothing so far has waited on the host
        done_second.synchronize()
        order.append(done_first.query())

    run(host, body)
    assert order == [False, True]


def test_the_current_stream_belongs_to_the_task(opened: tuple[Any, Any]) -> None:
    host, device = opened
    channel = host.channel("turn")
    own = device.Stream()
    inside: list[bool] = []

    def enters() -> None:
        with device.stream(own):
            channel.put("entered")
            inside.append(device.current_stream() == own)
        inside.append(device.current_stream() == own)

    def looks() -> None:
        channel.get()
        inside.append(device.current_stream() == own)

    host.run({"enters": enters, "looks": looks})
    assert sorted(inside) == [False, False, True]


def test_hand_offs_keep_their_order_and_latches_stay_set(opened: tuple[Any, Any]) -> None:
    host, _ = opened
    channel, latch = host.channel("items"), host.latch("ready")
    got: list[int] = []

    def sends() -> None:
        for i in range(20):
            channel.put(i)
        latch.set()

    def receives() -> None:
        latch.wait()
        latch.wait()
        got.extend(channel.get() for _ in range(20))

    host.run({"sends": sends, "receives": receives})
    assert got == list(range(20))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_runs_its_steps_in_order(opened: tuple[Any, Any], name: str) -> None:
    host, device = opened
    work = real_work(engine("minimal"), Workload(requests=3, max_prompt=8), overlap=overlaps(name))
    trace = Trace(host.now_ns)
    try:
        SCHEDULERS[name](Run(host, device, device.model(SPEC), work, trace), 6)
    finally:
        work.close()
    assert len(trace.steps) == 6
    assert trace.steps == sorted(trace.steps)
    assert work.tokens_out == 18
    assert {segment for _, segment, _, _ in trace.laps} == {"schedule", "launch", "wait", "process", "stream"}


def test_both_hosts_say_who_they_are() -> None:
    assert (RealHost.name, VirtualHost.name) == ("real", "virtual")
