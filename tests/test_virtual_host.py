"""The virtual host to the nanosecond: the rules of its GIL, waits and channels, against formulas stated here."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.devices.sim import SimDevice
from microbench.devices.spec import LaunchCost, StepSpec
from microbench.engines import Workload
from microbench.engines.priced import PricedWork
from microbench.engines.prices import shipped_profile
from microbench.errors import Deadlock
from microbench.hosts.virtual import VirtualHost
from microbench.schedulers import Run, scheduler
from microbench.trace import Trace

US, MS = 1_000, 1_000_000
WAKE, QUEUE, INTERVAL = 50 * US, 1_500, 5 * MS
Body = Callable[[], None]


class Uncollapsed(VirtualHost):
    """Proves nothing, so that every piece takes the long way."""

    def _undisturbed(self, period_ns: int, times: int) -> int:
        return 0


HOSTS = (VirtualHost, Uncollapsed)


@pytest.fixture(params=HOSTS, ids=lambda h: h.__name__)
def host(request: pytest.FixtureRequest) -> VirtualHost:
    made: VirtualHost = request.param(wake_ns=WAKE, queue_ns=QUEUE, switch_interval_ns=INTERVAL)
    return made


def ends(host: VirtualHost, **bodies: Body) -> dict[str, int]:
    """When each task ends, from the start of the run; tasks start in the order given."""
    start, found = host.now_ns(), {}

    def timed(name: str, body: Body) -> Body:
        def task() -> None:
            body()
            found[name] = host.now_ns() - start

        return task

    host.run({name: timed(name, body) for name, body in bodies.items()})
    return found


def exhaust(iterator: Iterator[Any]) -> None:
    for _ in iterator:
        pass


# The GIL


def test_a_released_gil_goes_to_the_waiter_one_wake_up_later(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.spend(100 * US, 60 * US), b=lambda: host.spend(7 * US))
    assert found == {"b": 100 * US + WAKE + 7 * US, "a": 160 * US}


def test_a_release_signals_only_one_waiter(host: VirtualHost) -> None:
    found = ends(
        host,
        a=lambda: host.spend(100 * US, 300 * US),
        b=lambda: host.spend(7 * US),
        c=lambda: host.spend(7 * US),
    )
    b = 100 * US + WAKE + 7 * US
    assert found == {"b": b, "c": b + WAKE + 7 * US, "a": 400 * US}


def test_a_waiter_loses_the_race_to_a_releaser_that_is_back_before_the_wake_up(host: VirtualHost) -> None:
    def launches() -> None:
        exhaust(host.repeat(100 * US, 10 * US, 10))

    last_release = 9 * 110 * US + 100 * US
    found = ends(host, a=launches, b=lambda: host.spend(7 * US))
    assert found == {"a": 10 * 110 * US, "b": last_release + WAKE + 7 * US}


def test_a_waiter_woken_at_the_very_moment_the_releaser_is_back_wins(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.spend(100 * US, WAKE), b=lambda: host.spend(7 * US))
    b = 100 * US + WAKE + 7 * US
    assert found == {"b": b, "a": b + WAKE}


def test_a_whole_switch_interval_without_a_switch_forces_the_holder_to_give_way(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.spend(20 * MS), b=lambda: host.spend(MS))
    b = INTERVAL + WAKE + MS
    assert found == {"b": b, "a": b + WAKE + 15 * MS}


def test_a_forced_hand_over_falls_between_pieces_as_within_one(host: VirtualHost) -> None:
    found = ends(host, a=lambda: exhaust(host.repeat(US, 0, 20_000)), b=lambda: host.spend(MS))
    b = INTERVAL + WAKE + MS
    assert found == {"b": b, "a": b + WAKE + 15 * MS}


def test_two_tasks_in_pure_python_alternate_by_the_switch_interval(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.spend(12 * MS), b=lambda: host.spend(12 * MS))
    a = 4 * (INTERVAL + WAKE) + 2 * MS
    assert found == {"a": a, "b": a + WAKE + 2 * MS}


def test_the_switch_interval_counts_from_when_the_waiter_started_to_wait(host: VirtualHost) -> None:
    def late() -> None:
        host.wait_until(3 * MS, "its time")
        host.spend(MS)

    b = 3 * MS + INTERVAL + WAKE + MS
    worked_before = 3 * MS + INTERVAL  # `b` frees the GIL before `a` starts
    assert ends(host, b=late, a=lambda: host.spend(20 * MS)) == {"b": b, "a": b + WAKE + 20 * MS - worked_before}


def test_a_waiter_that_saw_a_switch_within_its_interval_starts_anew(host: VirtualHost) -> None:
    def late() -> None:
        host.wait_until(3 * MS, "its time")
        host.spend(MS)

    found = ends(host, c=late, a=lambda: host.spend(12 * MS), b=lambda: host.spend(12 * MS))
    b_in = INTERVAL + WAKE
    c_in = b_in + INTERVAL + WAKE  # on a's request: c's interval, begun at 3 ms, saw b take over
    a_in = c_in + MS + WAKE
    a = a_in + 12 * MS - INTERVAL
    assert c_in + INTERVAL < a < c_in + 2 * INTERVAL  # b saw a take over, so it doesn't ask before a's end
    assert found == {"c": c_in + MS, "a": a, "b": a + WAKE + 12 * MS - INTERVAL}


def test_taking_back_the_gil_that_nobody_else_had_is_no_switch(host: VirtualHost) -> None:
    # CPython counts a switch only when the holder changes. `b` loses each race and so starts anew each time, but `c` is
    # never signalled: after a whole interval without a hand-over it asks for one.
    found = ends(
        host,
        a=lambda: exhaust(host.repeat(100 * US, 10 * US, 200)),
        b=lambda: host.spend(US),
        c=lambda: host.spend(US),
    )
    assert min(found["b"], found["c"]) == INTERVAL + WAKE + US


def test_an_atomic_piece_is_not_interrupted_and_gives_way_at_its_end(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.spend(20 * MS, atomic=True), b=lambda: host.spend(MS))
    b = 20 * MS + WAKE + MS
    assert found == {"b": b, "a": b + WAKE}


def test_a_short_atomic_piece_that_nobody_asked_to_end_keeps_the_gil(host: VirtualHost) -> None:
    def a() -> None:
        host.spend(2 * MS, atomic=True)
        host.spend(2 * MS)

    assert ends(host, a=a, b=lambda: host.spend(MS)) == {"a": 4 * MS, "b": 4 * MS + WAKE + MS}


def test_the_task_that_gave_way_cannot_take_the_gil_back_before_another_had_it(host: VirtualHost) -> None:
    order = []

    def hog(name: str, pieces: int) -> Body:
        def body() -> None:
            for _ in range(pieces):
                host.spend(MS)
                order.append(name)

        return body

    host.run({"a": hog("a", 8), "b": hog("b", 2)})
    assert order == ["a"] * 4 + ["b"] * 2 + ["a"] * 4  # a's fifth piece ends as it must give way


def test_without_a_gil_tasks_do_not_wait_for_each_other() -> None:
    for kind in HOSTS:
        host = kind(gil=False)
        found = ends(host, a=lambda h=host: h.spend(20 * MS, MS), b=lambda h=host: h.spend(7 * MS), c=lambda: None)
        assert found == {"c": 0, "b": 7 * MS, "a": 21 * MS}


@pytest.mark.parametrize("interval_us", [1, 10, 60])
def test_a_switch_interval_near_or_below_the_wake_up_still_lets_all_finish(interval_us: int) -> None:
    for kind in HOSTS:
        host = kind(wake_ns=WAKE, switch_interval_ns=interval_us * US)
        found = ends(
            host,
            a=lambda h=host: exhaust(h.repeat(30 * US, 10 * US, 20)),
            b=lambda h=host: exhaust(h.repeat(20 * US, 0, 20)),
            c=lambda h=host: h.spend(300 * US, 5 * US, atomic=True),
        )
        assert set(found) == {"a", "b", "c"}
        assert max(found.values()) >= (600 + 400 + 300) * US


# Waits


def test_a_timed_wait_ends_late_by_the_overshoot_unless_it_spins() -> None:
    for kind in HOSTS:
        host = kind(overshoot_ns=60 * US)
        seen = []

        def task(host: VirtualHost = host, seen: list[int] = seen) -> None:
            for spin in (False, True, False):
                host.wait_until(host.now_ns() + MS, "a point", spin=spin)
                seen.append(host.now_ns())

        host.run({"a": task})
        assert seen == [MS + 60 * US, 2 * MS + 60 * US, 3 * MS + 120 * US]


def test_a_wait_for_the_past_costs_nothing_and_keeps_the_gil(host: VirtualHost) -> None:
    def a() -> None:
        host.spend(MS)
        host.wait_until(MS, "now")
        host.wait_until(0, "the past")
        host.spend(MS)

    assert ends(host, a=a, b=lambda: host.spend(US)) == {"a": 2 * MS, "b": 2 * MS + WAKE + US}


def test_a_task_waits_without_the_gil(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.wait_until(10 * MS, "x"), b=lambda: host.spend(4 * MS))
    assert found == {"b": 4 * MS, "a": 10 * MS}


def test_a_task_back_from_a_wait_must_win_the_gil_first(host: VirtualHost) -> None:
    found = ends(host, a=lambda: host.wait_until(MS, "x"), b=lambda: host.spend(4 * MS))
    assert found == {"b": 4 * MS, "a": 4 * MS + WAKE}


# Channels and latches


def test_an_item_that_is_there_costs_two_queue_operations(host: VirtualHost) -> None:
    channel = host.channel("x")

    def task() -> None:
        channel.put(None)
        assert channel.get() is None

    assert ends(host, a=task) == {"a": 2 * QUEUE}


def test_a_blocked_get_ends_one_wake_up_after_the_put(host: VirtualHost) -> None:
    channel = host.channel("x")
    found = ends(host, getter=channel.get, putter=lambda: channel.put(1))
    put = QUEUE + WAKE + QUEUE
    assert found == {"putter": put, "getter": put + WAKE}


def test_a_woken_getter_waits_for_a_putter_that_keeps_the_gil(host: VirtualHost) -> None:
    channel = host.channel("x")

    def putter() -> None:
        channel.put(1)
        host.spend(MS)

    put = QUEUE + WAKE + QUEUE
    assert ends(host, getter=channel.get, putter=putter) == {"putter": put + MS, "getter": put + MS + WAKE}


def test_a_channel_hands_out_items_and_serves_getters_in_order(host: VirtualHost) -> None:
    channel, got = host.channel("x"), []

    def getter(name: str) -> Body:
        return lambda: got.append((name, channel.get()))

    def putter() -> None:
        for item in ("first", "second", "third"):
            channel.put(item)
            host.wait_until(host.now_ns() + MS, "the next")

    host.run({"a": getter("a"), "b": getter("b"), "c": getter("c"), "putter": putter})
    assert got == [("a", "first"), ("b", "second"), ("c", "third")]


def test_a_woken_getter_whose_item_was_taken_waits_again(host: VirtualHost) -> None:
    channel, got = host.channel("x"), []

    def putter() -> None:
        channel.put("first")
        got.append(("putter", channel.get()))
        host.wait_until(host.now_ns() + MS, "a while")
        channel.put("second")

    host.run({"getter": lambda: got.append(("getter", channel.get())), "putter": putter})
    assert got == [("putter", "first"), ("getter", "second")]


def test_setting_a_latch_is_free_and_wakes_every_waiter(host: VirtualHost) -> None:
    latch = host.latch("x")

    def setter() -> None:
        host.spend(MS)
        latch.set()

    assert ends(host, a=latch.wait, b=latch.wait, setter=setter) == {"setter": MS, "a": MS + WAKE, "b": MS + WAKE}


def test_waiting_for_a_latch_that_is_set_costs_nothing(host: VirtualHost) -> None:
    latch = host.latch("x")

    def task() -> None:
        latch.set()
        latch.set()
        latch.wait()
        latch.wait()

    assert ends(host, a=task) == {"a": 0}


# Ends of a run


def test_a_deadlock_names_who_waits_for_what(host: VirtualHost) -> None:
    with pytest.raises(Deadlock) as caught:
        host.run({"a": host.channel("batches").get, "b": host.latch("done").wait, "c": lambda: host.spend(MS)})
    assert str(caught.value) == "deadlock: task 'a' waits for channel 'batches'; task 'b' waits for event 'done'"
    assert ends(host, a=lambda: host.spend(MS)) == {"a": MS}


WAITS: dict[str, Callable[[VirtualHost], None]] = {
    "channel": lambda host: host.channel("x").get(),
    "latch": lambda host: host.latch("x").wait(),
    "point in time": lambda host: host.wait_until(10**12, "x"),
    "GIL": lambda host: host.spend(10 * MS),
    "free part": lambda host: host.spend(0, 10**12),
}


@pytest.mark.parametrize("fails_first", [True, False])
@pytest.mark.parametrize("wait", WAITS)
def test_an_error_in_one_task_ends_all_and_is_raised_with_its_traceback(
    host: VirtualHost, wait: str, fails_first: bool
) -> None:
    left, error = [], OSError("boom")

    def the_culprit() -> None:
        host.wait_until(host.now_ns() + US, "the other")
        host.spend(MS)
        raise error

    def other() -> None:
        try:
            WAITS[wait](host)
        finally:
            left.append("other")

    tasks = {"culprit": the_culprit, "other": other} if fails_first else {"other": other, "culprit": the_culprit}
    with pytest.raises(OSError, match="boom") as caught:
        host.run(tasks)
    assert caught.value is error
    assert "the_culprit" in {f.name for f in traceback.extract_tb(error.__traceback__)}
    assert left == ["other"]
    assert ends(host, a=lambda: host.spend(MS), b=lambda: host.spend(MS)) == {"a": MS, "b": MS + WAKE + MS}


@pytest.mark.parametrize("wait", ["channel", "GIL", "point in time"])
def test_a_task_that_cleans_up_through_the_host_does_not_hide_the_error(wait: str) -> None:
    host, cleaned = VirtualHost(wake_ns=WAKE), []
    results = host.channel("results")

    def other(name: str) -> Body:
        def body() -> None:
            try:
                host.wait_until(US, "the start")  # then it is inside the `try`, also when it waits for the GIL
                WAITS[wait](host)
            finally:
                cleaned.append(name)
                results.put(None)

        return body

    def the_culprit() -> None:
        host.wait_until(2 * MS if wait != "GIL" else 0, "the others")
        host.spend(MS)
        raise OSError("boom")

    with pytest.raises(OSError, match="boom"):
        host.run({"a": other("a"), "b": other("b"), "culprit": the_culprit})
    assert sorted(cleaned) == ["a", "b"]
    assert ends(host, a=lambda: host.spend(MS)) == {"a": MS}


@pytest.mark.parametrize("fails_at", range(1, 6))
@pytest.mark.parametrize("name", ["overlap_thread:attribute", "overlap_thread:per_batch", "overlap_thread:none"])
def test_a_launch_that_fails_in_the_forward_thread_ends_the_scheduler_with_its_error(name: str, fails_at: int) -> None:
    # The scheduler tells the forward thread to stop as it leaves: it may stand anywhere then, also before the GIL.
    host = VirtualHost()
    device = SimDevice(host)
    cost = LaunchCost(gil_ns=15 * US, free_ns=10 * US)
    spec = StepSpec(forward_ns=(20 * US,) * 288, sample_ns=(20 * US,) * 10, launch=cost, sample_launch=cost)
    workload = Workload(requests=500, max_prompt=4096, generated=16, stream=True)
    work = PricedWork(host, shipped_profile(), "sglang-0.4.0.post1", workload, overlap=True)
    model, steps = device.model(spec), iter(range(1, 100))
    launch_sampling = model.sample

    def sample(batch: Any) -> Any:
        if next(steps) == fails_at:
            raise OSError("boom")
        return launch_sampling(batch)

    model.sample = sample  # type: ignore[method-assign]
    with pytest.raises(OSError, match="boom"):
        scheduler(name)[1](Run(host, device, model, work, Trace(host.now_ns)), 20)


def test_waits_outside_a_run_move_the_clock_as_work_does() -> None:
    host = VirtualHost()
    host.spend(MS)
    host.wait_until(3 * MS, "a point")
    assert host.now_ns() == 3 * MS


def test_after_an_error_work_outside_a_run_still_moves_the_clock() -> None:
    host = VirtualHost()

    def fails() -> None:
        host.spend(MS)
        raise OSError("boom")

    with pytest.raises(OSError, match="boom"):
        host.run({"a": fails, "b": lambda: host.spend(MS)})
    before = host.now_ns()
    host.spend(MS)
    assert host.now_ns() - before == MS


def test_keyboard_interrupts_pass_through(host: VirtualHost) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.run({"a": host.channel("x").get, "b": interrupted})


def test_the_clock_goes_on_over_runs_and_ends_with_the_last_task(host: VirtualHost) -> None:
    for i in range(1, 4):
        host.run({"a": lambda: host.spend(MS), "b": lambda: host.spend(US, MS)})
        assert host.now_ns() == i * (MS + WAKE + US + MS)


# Any program

amounts = st.integers(0, 40).map(lambda n: n * 10 * US) | st.integers(0, 7_000_000)
operations = st.one_of(
    st.tuples(st.just("spend"), amounts, amounts, st.booleans()),
    st.tuples(st.just("repeat"), amounts, amounts, st.integers(0, 40)),
    st.tuples(st.just("wait"), amounts, st.booleans()),
    st.tuples(st.just("put")),
    st.tuples(st.just("get")),
)
programs = st.lists(st.lists(operations, max_size=5), min_size=2, max_size=3)
settings_of_hosts = st.fixed_dictionaries(
    {
        "wake_ns": st.sampled_from([0, 5 * US, 50 * US]),
        "overshoot_ns": st.sampled_from([0, 60 * US]),
        "queue_ns": st.sampled_from([0, QUEUE]),
        "switch_interval_ns": st.sampled_from([100 * US, 5 * MS]),
        "gil": st.booleans() | st.just(True),
    }
)
checked = settings(max_examples=150, deadline=None)


class Played:
    """What a program did: the end of every piece by task, in the order they were seen, and how the run ended."""

    def __init__(self, host: VirtualHost, program: list[list[Any]], *, by_spend: bool = False) -> None:
        self.host, self.by_spend = host, by_spend
        self.seen: list[tuple[int, int]] = []
        self.by_task: list[list[int]] = [[] for _ in program]
        self.gil_ns = 0
        self.own_ns = [0] * len(program)
        channel = host.channel("x")
        try:
            host.run({str(i): self._task(i, ops, channel) for i, ops in enumerate(program)})
            self.outcome = "finished"
        except Deadlock as error:
            self.outcome = str(error)
        self.end_ns = host.now_ns()

    def _task(self, i: int, ops: list[Any], channel: Any) -> Body:
        def body() -> None:
            for op in ops:
                self._do(i, op, channel)

        return body

    def _do(self, i: int, op: tuple[Any, ...], channel: Any) -> None:
        host = self.host
        match op:
            case "spend", gil, free, atomic:
                host.spend(gil, free, atomic=atomic)
                self._ended(i, gil, gil + free)
            case "repeat", gil, free, times if self.by_spend:
                for _ in range(times):
                    host.spend(gil, free)
                    self._ended(i, gil, gil + free)
            case "repeat", gil, free, times:
                done = 0
                for count, end_ns in host.repeat(gil, free, times):
                    assert count >= 1
                    assert end_ns == host.now_ns()
                    done += count
                    for behind in range(count - 1, -1, -1):
                        self._ended(i, gil, gil + free, end_ns - behind * (gil + free))
                assert done == times
            case "wait", ns, spin:
                host.wait_until(host.now_ns() + ns, "x", spin=spin)
                self._ended(i, 0, (ns + (0 if spin else host.overshoot_ns)) if ns else 0)
            case ("put",):
                channel.put(None)
                self._ended(i, host.queue_ns, host.queue_ns)
            case ("get",):
                channel.get()
                self._ended(i, host.queue_ns, host.queue_ns)

    def _ended(self, i: int, gil_ns: int, own_ns: int, at_ns: int | None = None) -> None:
        at_ns = self.host.now_ns() if at_ns is None else at_ns
        self.seen.append((i, at_ns))
        self.by_task[i].append(at_ns)
        self.gil_ns += gil_ns
        self.own_ns[i] += own_ns


@checked
@given(program=programs, options=settings_of_hosts)
def test_repeat_is_spend_many_times_over(program: list[list[Any]], options: dict[str, Any]) -> None:
    collapsed = Played(VirtualHost(**options), program)
    for other in (
        Played(VirtualHost(**options), program, by_spend=True),
        Played(Uncollapsed(**options), program),
        Played(Uncollapsed(**options), program, by_spend=True),
    ):
        assert collapsed.by_task == other.by_task
        assert collapsed.outcome == other.outcome
        if collapsed.outcome == "finished":
            assert collapsed.end_ns == other.end_ns


@checked
@given(program=programs, options=settings_of_hosts)
def test_the_same_program_gives_the_same_trace(program: list[list[Any]], options: dict[str, Any]) -> None:
    first, second = (Played(VirtualHost(**options), program) for _ in range(2))
    assert (first.seen, first.outcome, first.end_ns) == (second.seen, second.outcome, second.end_ns)


@checked
@given(program=programs, options=settings_of_hosts)
def test_time_only_goes_on_and_is_not_spent_twice(program: list[list[Any]], options: dict[str, Any]) -> None:
    played = Played(Uncollapsed(**options), program)
    times = [at for _, at in played.seen]
    assert times == sorted(times)
    if options["gil"]:
        assert played.gil_ns <= played.end_ns
    for own, ended in zip(played.own_ns, played.by_task, strict=True):
        assert not ended or own <= ended[-1]


@checked
@given(ops=st.lists(operations.filter(lambda op: op[0] != "get"), max_size=8), options=settings_of_hosts)
def test_a_task_alone_takes_exactly_what_it_spends(ops: list[Any], options: dict[str, Any]) -> None:
    for kind in HOSTS:
        played = Played(kind(**options), [ops])
        assert played.outcome == "finished"
        assert played.end_ns == played.own_ns[0]
