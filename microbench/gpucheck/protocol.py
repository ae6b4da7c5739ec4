"""What a device promises, checked on the device itself: each check is a function that raises AssertionError."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from microbench.calibrate.inputs import TINY, FixedBatch
from microbench.case import what_if_spec
from microbench.devices.spec import LaunchCost
from microbench.engines import engine
from microbench.gpucheck.plan import ENGINE
from microbench.protocols import Device, Host

Check = Callable[[Host, Device], None]
LONG_NS, SHORT_NS = 20_000_000, 2_000_000
NOTHING = LaunchCost(gil_ns=0, free_ns=0)


def an_event_is_done_only_after_the_work_before_it(host: Host, device: Device) -> None:
    event = device.Event()
    device.spin(LONG_NS)
    event.record()
    assert not event.query(), "done while a kernel of 20 ms before it runs"
    event.synchronize()
    assert event.query(), "not done after its own synchronize"


def events_measure_a_spin_of_known_length(host: Host, device: Device) -> None:
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    device.spin(SHORT_NS)
    start.record()
    device.spin(LONG_NS)
    end.record()
    end.synchronize()
    ms = start.elapsed_time(end)
    assert 0.9 * LONG_NS / 1e6 < ms < 1.2 * LONG_NS / 1e6, f"a spin of {LONG_NS / 1e6:g} ms measures {ms:.3f} ms"


def a_stream_waits_for_an_event_of_another(host: Host, device: Device) -> None:
    first, second = device.Stream(), device.Stream()
    behind, done = device.Event(), device.Event()
    with device.stream(first):
        device.spin(LONG_NS)
        behind.record()
    second.wait_event(behind)
    with device.stream(second):
        done.record()
    assert not done.query(), "the second stream did not wait"
    done.synchronize()
    assert behind.query(), "the second stream ended before what it waited for"


def a_stream_waits_for_another_stream(host: Host, device: Device) -> None:
    first, second = device.Stream(), device.Stream()
    with device.stream(first):
        device.spin(LONG_NS)
    second.wait_stream(first)
    second.synchronize()
    assert first.query(), "wait_stream did not wait"


def streams_take_priorities(host: Host, device: Device) -> None:
    for priority in (0, -1):
        stream = device.Stream(priority=priority)
        with device.stream(stream):
            device.spin(SHORT_NS)
        stream.synchronize()
        assert stream.query()


def the_current_stream_belongs_to_a_thread(host: Host, device: Device) -> None:
    mine, seen = device.Stream(), []

    def other() -> None:
        theirs = device.Stream()
        with device.stream(theirs):
            seen.append(device.current_stream() == theirs)

    with device.stream(mine):
        thread = threading.Thread(target=other, name="other", daemon=True)
        thread.start()
        thread.join(30)
        assert seen == [True], "another thread's stream is not its own"
        assert device.current_stream() == mine, "another thread changed this one's stream"


def a_blocking_event_burns_less_cpu_than_a_spinning_one(host: Host, device: Device) -> None:
    def burned(blocking: bool) -> float:
        event = device.Event(blocking=blocking)
        device.spin(5 * LONG_NS)
        event.record()
        start = time.thread_time_ns()
        event.synchronize()
        return (time.thread_time_ns() - start) / (5 * LONG_NS)

    share = burned(blocking=True)
    assert share < 0.3, f"a blocking wait burned {share:.0%} of its time"


def copies_arrive(host: Host, device: Device) -> None:
    import torch

    values = torch.arange(7, dtype=torch.int32, device=device.tensor_device)
    for pinned in (True, False):
        copy = device.to_host(values, nbytes=28, pinned=pinned)
        device.synchronize()
        assert copy.tolist() == list(range(7)), f"a {'pinned' if pinned else 'pageable'} copy brought {copy.tolist()}"


def a_graph_takes_as_long_as_what_it_captured(host: Host, device: Device) -> None:
    spec = what_if_spec(engine(ENGINE), gpu_ns=LONG_NS, launches=20, launch=NOTHING, graph=NOTHING)
    batch = FixedBatch(device, 1, 1)
    model = device.model(spec)
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    model.forward(batch)
    start.record()
    model.forward(batch)
    end.record()
    end.synchronize()
    ms = start.elapsed_time(end)
    assert 0.9 * LONG_NS / 1e6 < ms < 1.3 * LONG_NS / 1e6, f"20 spins of 1 ms in a graph take {ms:.3f} ms"


def eager_and_captured_steps_sample_the_same_tokens(host: Host, device: Device) -> None:
    from dataclasses import replace

    spec = what_if_spec(engine(ENGINE), gpu_ns=1_000_000, launches=10, launch=NOTHING)
    spec = replace(spec, architecture=TINY, batch=4, context=32)
    found = []
    for graph in (None, NOTHING):
        batch = FixedBatch(device, 4, 16)
        model = device.model(replace(spec, graph=graph))
        model.forward(batch)
        ids = model.sample(batch)
        device.synchronize()
        found.append(ids.tolist())
    assert found[0] == found[1], f"eager {found[0]}, captured {found[1]}"


CHECKS: tuple[Check, ...] = (
    an_event_is_done_only_after_the_work_before_it,
    events_measure_a_spin_of_known_length,
    a_stream_waits_for_an_event_of_another,
    a_stream_waits_for_another_stream,
    streams_take_priorities,
    the_current_stream_belongs_to_a_thread,
    a_blocking_event_burns_less_cpu_than_a_spinning_one,
    copies_arrive,
    a_graph_takes_as_long_as_what_it_captured,
    eager_and_captured_steps_sample_the_same_tokens,
)


def run_checks(host: Host, device: Device) -> Iterator[dict[str, Any]]:
    """Each check's name, and why it failed (None where it held)."""
    for check in CHECKS:
        why: list[str] = []

        def task(check: Check = check, why: list[str] = why) -> None:
            try:
                check(host, device)
            except AssertionError as error:
                why.append(str(error) or "failed")

        host.run({"check": task})
        yield {"check": check.__name__.replace("_", " "), "failed": why[0] if why else None}
