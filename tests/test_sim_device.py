"""The modelled GPU on the virtual host: exact timelines, against formulas stated here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.devices.sim import LAUNCH_QUEUE_DEPTH, SimCopy, SimDevice
from microbench.devices.spec import LaunchCost, StepSpec
from microbench.hosts.virtual import VirtualHost

US, MS = 1_000, 1_000_000
LATENCY, COPY_LATENCY, BYTES_PER_S = 4 * US, 6 * US, 25e9
COST = LaunchCost(gil_ns=15 * US, free_ns=10 * US)
FREE = LaunchCost(gil_ns=0, free_ns=0)
Body = Callable[[], None]


class Uncollapsed(VirtualHost):
    """Proves nothing, so that every launch takes the long way."""

    def _undisturbed(self, period_ns: int, times: int) -> int:
        return 0


class Ids:
    """Token ids on the device."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def tolist(self) -> list[int]:
        return list(self.values)


@pytest.fixture(params=[VirtualHost, Uncollapsed], ids=lambda h: h.__name__)
def host(request: pytest.FixtureRequest) -> VirtualHost:
    made: VirtualHost = request.param()
    return made


@pytest.fixture
def device(host: VirtualHost) -> SimDevice:
    return make(host)


def make(host: VirtualHost, **options: Any) -> SimDevice:
    known = {"launch_latency_ns": LATENCY, "copy_latency_ns": COPY_LATENCY, "copy_bytes_per_s": BYTES_PER_S}
    return SimDevice(host, **(known | options))


def on(host: VirtualHost, body: Body, **others: Body) -> None:
    host.run({"main": body, **others})


# Kernels


def test_a_kernel_on_an_idle_stream_starts_one_latency_after_its_launch(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.launch(COST, [100 * US])
        assert host.now_ns() == COST.total_ns
        assert not device.current_stream().query()
        device.current_stream().synchronize()
        assert host.now_ns() == COST.total_ns + LATENCY + 100 * US
        assert device.current_stream().query()

    on(host, body)


def test_kernels_longer_than_their_launch_run_back_to_back(host: VirtualHost, device: SimDevice) -> None:
    n, kernel = 200, 40 * US

    def body() -> None:
        device.launch(COST, [kernel] * n)
        assert host.now_ns() == n * COST.total_ns
        device.synchronize()
        assert host.now_ns() == COST.total_ns + LATENCY + n * kernel

    on(host, body)


def test_kernels_shorter_than_their_launch_wait_for_the_host(host: VirtualHost, device: SimDevice) -> None:
    n, kernel = 200, 5 * US

    def body() -> None:
        device.launch(COST, [kernel] * n)
        device.synchronize()
        assert host.now_ns() == n * COST.total_ns + LATENCY + kernel

    on(host, body)


def test_a_queue_that_forms_is_worked_off_while_the_host_goes_on(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.launch(COST, [500 * US] + [5 * US] * 10)  # the first one is still running when all are launched
        device.synchronize()
        assert host.now_ns() == COST.total_ns + LATENCY + 500 * US + 10 * 5 * US

    on(host, body)


def test_a_spin_costs_the_host_nothing_and_tells_its_end(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        assert device.spin(MS) == LATENCY + MS
        assert device.spin(MS) == LATENCY + 2 * MS
        assert host.now_ns() == 0

    on(host, body)


def test_launching_nothing_does_nothing(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.launch(COST, [])
        assert host.now_ns() == 0
        assert device.current_stream().query()

    on(host, body)


def test_a_graph_is_one_host_call_and_its_kernels_run_back_to_back(host: VirtualHost, device: SimDevice) -> None:
    replay = LaunchCost(gil_ns=20 * US, free_ns=280 * US)

    def body() -> None:
        device.replay(replay, [5 * US] * 300)
        assert host.now_ns() == replay.total_ns
        device.synchronize()
        assert host.now_ns() == replay.total_ns + LATENCY + 300 * 5 * US

    on(host, body)


def test_the_launch_after_a_full_queue_waits_for_the_oldest_kernel_to_end(host: VirtualHost, device: SimDevice) -> None:
    kernel = 10 * MS

    def body() -> None:
        device.launch(COST, [kernel] * LAUNCH_QUEUE_DEPTH)
        assert host.now_ns() == LAUNCH_QUEUE_DEPTH * COST.total_ns  # 25 ms; two kernels have ended
        gone = (host.now_ns() - COST.total_ns - LATENCY) // kernel
        device.launch(COST, [kernel] * gone)
        assert host.now_ns() == (LAUNCH_QUEUE_DEPTH + gone) * COST.total_ns
        device.launch(COST, [kernel])
        assert host.now_ns() == COST.total_ns + LATENCY + (gone + 1) * kernel + COST.total_ns

    on(host, body)


def test_a_launcher_far_ahead_ends_a_queue_depth_before_the_gpu(host: VirtualHost, device: SimDevice) -> None:
    kernel, n = MS, LAUNCH_QUEUE_DEPTH + 500

    def body() -> None:
        device.launch(FREE, [kernel] * n)
        assert host.now_ns() == LATENCY + (n - LAUNCH_QUEUE_DEPTH) * kernel
        device.synchronize()
        assert host.now_ns() == LATENCY + n * kernel

    on(host, body)


def test_a_launcher_blocked_by_a_full_queue_frees_the_gil(host: VirtualHost, device: SimDevice) -> None:
    seen = []

    def launcher() -> None:
        device.launch(FREE, [100 * MS] * (LAUNCH_QUEUE_DEPTH + 1))
        seen.append(("launched", host.now_ns()))

    def other() -> None:
        host.spend(3 * MS)
        seen.append(("worked", host.now_ns()))

    on(host, launcher, other=other)
    assert seen[0] == ("worked", 3 * MS)
    assert seen[1] == ("launched", LATENCY + 100 * MS)


def test_graph_replays_fill_the_launch_queue_too(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        for _ in range(LAUNCH_QUEUE_DEPTH + 1):
            device.replay(FREE, [MS])
        assert host.now_ns() == LATENCY + MS

    on(host, body)


def test_graph_replays_that_have_ended_are_forgotten(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        for _ in range(50):
            device.replay(COST, [US])
            device.synchronize()
        assert len(device.current_stream().pending) <= 1

    on(host, body)


def test_each_stream_has_its_own_queue(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.launch(FREE, [MS] * LAUNCH_QUEUE_DEPTH)
        with device.stream(device.Stream()):
            device.launch(FREE, [MS] * LAUNCH_QUEUE_DEPTH)
        assert host.now_ns() == 0

    on(host, body)


# Streams


def test_streams_run_side_by_side(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        other = device.Stream()
        first = device.spin(MS)
        with device.stream(other) as current:
            assert current is other is device.current_stream()
            assert device.spin(2 * MS) == LATENCY + 2 * MS
        assert device.current_stream() is not other
        assert first == LATENCY + MS
        device.synchronize()
        assert host.now_ns() == LATENCY + 2 * MS

    on(host, body)


def test_an_exclusive_gpu_runs_one_kernel_at_a_time(host: VirtualHost) -> None:
    device = make(host, exclusive=True)

    def body() -> None:
        device.spin(MS)
        with device.stream(device.Stream()):
            assert device.spin(2 * MS) == LATENCY + 3 * MS
        assert device.spin(MS) == LATENCY + 4 * MS

    on(host, body)


def test_kernels_of_an_exclusive_gpu_do_not_wait_for_copies_of_other_streams(host: VirtualHost) -> None:
    device = make(host, exclusive=True)

    def body() -> None:
        with device.stream(device.Stream()):
            device.to_host(Ids(1), nbytes=int(BYTES_PER_S))  # a second of copying
        assert device.spin(MS) == LATENCY + MS

    on(host, body)


def test_the_current_stream_is_each_tasks_own(host: VirtualHost, device: SimDevice) -> None:
    default, mine, seen = device.current_stream(), device.Stream(), []

    def main() -> None:
        with device.stream(mine):
            host.wait_until(2 * MS, "the other")
            seen.append(device.current_stream() is mine)
        seen.append(device.current_stream() is default)

    def other() -> None:
        host.wait_until(MS, "main")
        seen.append(device.current_stream() is default)

    on(host, main, other=other)
    assert seen == [True] * 3
    assert device.current_stream() is default


def test_the_current_stream_is_restored_after_an_error(host: VirtualHost, device: SimDevice) -> None:
    before = device.current_stream()
    with pytest.raises(OSError, match="boom"), device.stream(device.Stream()):
        raise OSError("boom")
    assert device.current_stream() is before


def test_wait_stream_orders_what_comes_after_it_and_no_more(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        first, second = device.Stream(), device.Stream()
        with device.stream(first):
            device.spin(MS)
        second.wait_stream(first)
        with device.stream(first):
            device.spin(MS)  # after the wait: not waited for
        with device.stream(second):
            assert device.spin(MS) == LATENCY + MS + MS
        assert device.busy_ns() == 3 * MS

    on(host, body)


def test_wait_event_waits_for_what_was_recorded_when_it_was_called(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        first, second, event = device.Stream(), device.Stream(), device.Event()
        second.wait_event(event)  # not recorded: no wait
        with device.stream(second):
            assert device.spin(US) == LATENCY + US
        with device.stream(first):
            device.spin(MS)
            event.record()
            second.wait_event(event)
            device.spin(MS)
            event.record()  # a new point: the wait above keeps the old one
        with device.stream(second):
            assert device.spin(MS) == LATENCY + 2 * MS

    on(host, body)


# Events


def test_an_event_is_done_when_the_work_before_it_is(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        event = device.Event()
        assert event.query()
        event.synchronize()
        assert host.now_ns() == 0
        end = device.spin(MS)
        event.record()
        device.spin(MS)
        assert not event.query()
        host.wait_until(end - 1, "just before")
        assert not event.query()
        event.synchronize()
        assert host.now_ns() == end
        assert event.query()
        assert not device.current_stream().query()

    on(host, body)


def test_an_event_recorded_on_an_idle_stream_is_done_at_once(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        host.spend(MS)
        event = device.Event()
        event.record(device.Stream())
        assert event.query()
        event.synchronize()
        assert host.now_ns() == MS

    on(host, body)


def test_waiting_for_an_event_frees_the_gil(host: VirtualHost, device: SimDevice) -> None:
    ends = {}

    def waiter() -> None:
        event = device.Event()
        device.spin(10 * MS)
        event.record()
        event.synchronize()
        ends["waiter"] = host.now_ns()

    def worker() -> None:
        host.spend(3 * MS)
        ends["worker"] = host.now_ns()

    on(host, waiter, worker=worker)
    assert ends == {"worker": 3 * MS, "waiter": LATENCY + 10 * MS}


@pytest.mark.parametrize(
    ("spin_waits", "blocking", "late"),
    [(False, False, True), (False, True, True), (True, False, False), (True, True, True)],
)
def test_only_a_spinning_wait_ends_without_overshoot(spin_waits: bool, blocking: bool, late: bool) -> None:
    host = VirtualHost(overshoot_ns=60 * US)
    device = make(host, spin_waits=spin_waits)

    def body() -> None:
        event = device.Event(blocking=blocking)
        end = device.spin(MS)
        event.record()
        event.synchronize()
        assert host.now_ns() == end + (60 * US if late else 0)

    on(host, body)


def test_elapsed_time_is_in_milliseconds_between_two_points(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        first, second = (device.Event(enable_timing=True) for _ in range(2))
        first.record()
        device.spin(3 * MS)
        second.record()
        device.synchronize()
        assert first.elapsed_time(second) == pytest.approx(3 + LATENCY / MS, abs=1e-12)
        assert second.elapsed_time(first) == -first.elapsed_time(second)

    on(host, body)


def test_elapsed_time_refuses_events_without_timing_or_record(host: VirtualHost, device: SimDevice) -> None:
    timed, plain, unrecorded = device.Event(enable_timing=True), device.Event(), device.Event(enable_timing=True)
    timed.record()
    plain.record()
    for pair in ((timed, plain), (plain, timed), (timed, unrecorded), (unrecorded, timed)):
        with pytest.raises(RuntimeError):
            pair[0].elapsed_time(pair[1])


def test_elapsed_time_refuses_a_point_that_is_not_reached_yet(host: VirtualHost, device: SimDevice) -> None:
    # As on a GPU, where it raises "device not ready": nobody knows yet when the point will be reached.
    def body() -> None:
        first, second = (device.Event(enable_timing=True) for _ in range(2))
        first.record()
        device.spin(MS)
        second.record()
        with pytest.raises(RuntimeError):
            first.elapsed_time(second)

    on(host, body)


# Copies


def test_a_pinned_copy_does_not_block_and_reads_stale_until_it_has_ended(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        kernel_end = device.spin(MS)
        copy = device.to_host(Ids(7, 8), nbytes=2500)
        assert host.now_ns() == 0
        end = kernel_end + COPY_LATENCY + 100
        event = device.Event()
        event.record()
        host.wait_until(end - 1, "just before")
        assert copy.tolist() == [SimCopy.STALE, SimCopy.STALE]
        assert not event.query()
        event.synchronize()
        assert host.now_ns() == end
        assert copy.tolist() == [7, 8]

    on(host, body)


def test_a_pageable_copy_blocks_until_it_has_ended(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.spin(MS)
        assert device.to_host(Ids(7), nbytes=2500, pinned=False).tolist() == [7]
        assert host.now_ns() == LATENCY + MS + COPY_LATENCY + 100

    on(host, body)


def test_a_pageable_copy_is_readable_though_another_task_used_its_stream_meanwhile(
    host: VirtualHost, device: SimDevice
) -> None:
    read = []

    def other() -> None:
        host.wait_until(100 * US, "the copy to be enqueued")
        device.spin(50 * MS)

    def body() -> None:
        device.spin(MS)
        read.append(device.to_host(Ids(7), nbytes=4, pinned=False).tolist())

    on(host, body, other=other)
    assert read == [[7]]


def test_a_copy_lasts_by_its_size_and_keeps_its_place_in_the_stream(host: VirtualHost, device: SimDevice) -> None:
    def body() -> None:
        device.to_host(Ids(), nbytes=25_000_000)
        assert device.spin(MS) == COPY_LATENCY + MS + MS
        assert device.busy_ns() == MS

    on(host, body)


# A step


@pytest.mark.parametrize("graph", [None, LaunchCost(gil_ns=20 * US, free_ns=80 * US)])
def test_a_step_is_its_forward_and_then_its_sampling(host: VirtualHost, graph: LaunchCost | None) -> None:
    device = make(host)
    spec = StepSpec(
        forward_ns=(50 * US,) * 40,
        sample_ns=(20 * US,) * 10,
        launch=COST,
        sample_launch=COST,
        graph=graph,
        plan_sync=True,
    )

    class Decode:
        size, input_ids, seq_lens = 2, None, None

        def next_ids(self) -> Ids:
            return Ids(1, 2)

    def body() -> None:
        model, batch = device.model(spec), Decode()
        first = graph.total_ns if graph else COST.total_ns
        end = 0
        for _ in range(2):  # the planning of the second waits for the first
            model.plan(batch)
            assert host.now_ns() == end
            model.forward(batch)
            assert model.sample(batch).tolist() == [1, 2]
            assert host.now_ns() == end + spec.launch_ns
            end = max(end + first + LATENCY + spec.gpu_ns, end + spec.launch_ns + LATENCY + 20 * US)
        device.synchronize()
        assert host.now_ns() == end
        assert device.busy_ns() == 2 * spec.gpu_ns

    on(host, body)


# Any program of launches

durations = st.integers(0, 200).map(lambda n: n * US) | st.integers(0, 3 * MS)
costs = st.builds(LaunchCost, gil_ns=st.sampled_from([0, US, 15 * US]), free_ns=st.sampled_from([0, 10 * US, 60 * US]))
operations = st.one_of(
    st.tuples(st.just("launch"), costs, st.lists(durations, max_size=12)),
    st.tuples(st.just("many"), costs, durations, st.integers(0, 60)),
    st.tuples(st.just("replay"), costs, st.lists(durations, max_size=4)),
    st.tuples(st.just("spin"), durations),
    st.tuples(st.just("copy"), st.integers(0, 10**6), st.booleans()),
    st.tuples(st.just("work"), durations),
    st.tuples(st.just("record"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.integers(0, 1)),
    st.tuples(st.just("wait_event"), st.integers(0, 1)),
    st.tuples(st.just("synchronize")),
)
programs = st.lists(st.lists(operations, max_size=6), min_size=1, max_size=3)


def play(host: VirtualHost, program: list[list[Any]], exclusive: bool) -> tuple[list[Any], SimDevice, int]:
    device = make(host, exclusive=exclusive)
    events = [device.Event() for _ in range(2)]
    seen: list[Any] = [[] for _ in program]
    total = 0

    def task(i: int) -> Body:
        def body() -> None:
            nonlocal total
            stream = device.Stream()
            with device.stream(stream):
                for op in program[i]:
                    match op:
                        case "launch", cost, kernels:
                            device.launch(cost, kernels)
                            total += sum(kernels)
                        case "many", cost, kernel, times:
                            device.launch(cost, [kernel] * times)
                            total += kernel * times
                        case "replay", cost, kernels:
                            device.replay(cost, kernels)
                            total += sum(kernels)
                        case "spin", ns:
                            device.spin(ns)
                            total += ns
                        case "copy", nbytes, pinned:
                            device.to_host(Ids(1), nbytes=nbytes, pinned=pinned)
                        case "work", ns:
                            host.spend(ns)
                        case "record", which:
                            events[which].record()
                        case "wait", which:
                            events[which].synchronize()
                        case "wait_event", which:
                            stream.wait_event(events[which])
                        case ("synchronize",):
                            stream.synchronize()
                            assert stream.query()
                    seen[i].append((host.now_ns(), stream.end_ns, stream.busy_ns))

        return body

    host.run({str(i): task(i) for i in range(len(program))})
    return [seen, host.now_ns(), [s.end_ns for s in device._streams]], device, total


@settings(max_examples=100, deadline=None)
@given(
    program=programs,
    exclusive=st.booleans(),
    switch_interval_ns=st.sampled_from([200 * US, 5 * MS]),
    depth=st.sampled_from([3, 1000]),
)
def test_busy_time_is_the_sum_of_all_kernels_and_collapsing_launches_changes_nothing(
    program: list[list[Any]], exclusive: bool, switch_interval_ns: int, depth: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("microbench.devices.sim.LAUNCH_QUEUE_DEPTH", depth)
        collapsed, device, total = play(VirtualHost(switch_interval_ns=switch_interval_ns), program, exclusive)
        assert device.busy_ns() == total
        assert collapsed == play(Uncollapsed(switch_interval_ns=switch_interval_ns), program, exclusive)[0]
    if exclusive:
        assert total <= max(stream.end_ns for stream in device._streams)
    for stream in device._streams:
        assert stream.busy_ns <= stream.end_ns
