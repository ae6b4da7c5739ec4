"""The real host: real threads and real time, so only order, ratios with room, and what is left behind are asserted."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from microbench.errors import WaitTimedOut
from microbench.hosts.real import RealHost

US, MS = 1_000, 1_000_000
SET_TIMER_SLACK, GET_TIMER_SLACK = 29, 30


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    threads, interval = set(threading.enumerate()), sys.getswitchinterval()
    yield
    late = [t for t in threading.enumerate() if t not in threads]
    for thread in late:
        thread.join(5)
    assert sys.getswitchinterval() == interval


def alone(host: RealHost, body: Callable[[], None]) -> None:
    host.run({"main": body})


# Work


def test_spend_burns_its_cpu_time() -> None:
    host = RealHost()
    used = []
    for _ in range(3):
        start = time.thread_time_ns()
        host.spend(20 * MS)
        used.append(time.thread_time_ns() - start)
    assert min(used) >= 20 * MS
    assert min(used) < 30 * MS


def test_time_spent_waiting_for_the_gil_is_not_work() -> None:
    host = RealHost(switch_interval_s=0.001)
    cpu = {}
    started = time.monotonic_ns()

    def task(name: str) -> Callable[[], None]:
        def body() -> None:
            start = time.thread_time_ns()
            host.spend(40 * MS)
            cpu[name] = time.thread_time_ns() - start

        return body

    host.run({"a": task("a"), "b": task("b")})
    assert min(cpu.values()) >= 40 * MS
    assert max(cpu.values()) < 100 * MS
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        assert time.monotonic_ns() - started >= 75 * MS  # they can't have run side by side


def test_repeat_yields_once_a_piece_and_includes_the_time_of_its_caller() -> None:
    host = RealHost()
    start = time.thread_time_ns()
    ends = []
    for count, end_ns in host.repeat(500 * US, 0, 20):
        assert count == 1
        ends.append(end_ns)
        busy_until = time.thread_time_ns() + 200 * US
        while time.thread_time_ns() < busy_until:
            pass
    used = time.thread_time_ns() - start
    assert len(ends) == 20
    assert ends == sorted(ends)
    assert 9 * MS < used < 13.5 * MS  # 20 times 0.5 ms, not 0.7


def test_the_part_without_the_gil_lets_another_thread_run() -> None:
    # Between two looks of a thread that never gives the GIL up by itself, the other one can't work, unless it needs
    # no GIL: with a long switch interval the counter moves only inside the free parts.
    host = RealHost(switch_interval_s=5.0)
    host.spend(0, 2 * MS)  # sized once, outside what is compared
    counted, stop = {}, threading.Event()

    def counter() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            counted["n"] = n
            if n % 50 == 0:
                time.sleep(0)

    def moved_during(work: Callable[[], None]) -> int:
        before = counted.get("n", 0)
        work()
        return counted.get("n", 0) - before

    def main() -> None:
        try:
            time.sleep(0.005)
            with_gil = min(moved_during(lambda: host.spend(5 * MS)) for _ in range(3))
            without = max(moved_during(lambda: host.spend(0, 2 * MS)) for _ in range(5))
        finally:
            stop.set()
        assert without > max(10 * with_gil, 100)

    host.run({"main": main, "counter": counter})


# Waits


@pytest.mark.parametrize("spin", [False, True])
def test_wait_until_never_returns_early(spin: bool) -> None:
    host = RealHost()
    early = []

    def body() -> None:
        for ahead in (0, 1, 999, 20 * US, 70 * US, 300 * US, MS, 5 * MS):
            for _ in range(5):
                when = host.now_ns() + ahead
                host.wait_until(when, "a point", spin=spin)
                early.append(when - host.now_ns())

    alone(host, body)
    assert max(early) <= 0


def test_a_wait_for_the_past_returns_at_once() -> None:
    host = RealHost()
    before = host.now_ns()
    host.wait_until(0, "the past")
    assert host.now_ns() - before < 50 * MS


def test_a_sleeping_wait_burns_no_cpu_and_a_spinning_one_does() -> None:
    host = RealHost()
    used = {}
    for spin in (False, True):
        before = time.thread_time_ns()
        host.wait_until(host.now_ns() + 30 * MS, "a point", spin=spin)
        used[spin] = time.thread_time_ns() - before
    assert used[False] < 5 * MS < used[True]


def test_a_wait_lets_another_thread_work() -> None:
    for spin in (False, True):
        host, order = RealHost(switch_interval_s=5.0), []

        def waits(host: RealHost = host, order: list[str] = order, spin: bool = spin) -> None:
            host.wait_until(host.now_ns() + 200 * MS, "a point", spin=spin)
            order.append("waited")

        def works(host: RealHost = host, order: list[str] = order) -> None:
            host.spend(MS)
            order.append("worked")

        host.run({"waits": waits, "works": works})
        assert order == ["worked", "waited"]


TIMEOUTS: dict[str, tuple[Callable[[RealHost], Callable[[], Any]], str]] = {
    "channel": (lambda host: host.channel("results").get, "channel 'results'"),
    "latch": (lambda host: host.latch("launch_done").wait, "event 'launch_done'"),
    "point": (lambda host: lambda: host.wait_until(host.now_ns() + 10**10, "a recorded event"), "a recorded event"),
}


@pytest.mark.parametrize("kind", TIMEOUTS)
@pytest.mark.parametrize("where", ["main", "forward"])
def test_a_time_out_names_the_thread_and_what_it_waited_for(kind: str, where: str) -> None:
    host = RealHost(timeout_s=0.2)
    make, what = TIMEOUTS[kind]
    tasks: dict[str, Callable[[], Any]] = {"main": lambda: time.sleep(0.3), "forward": lambda: None}
    tasks[where] = make(host)
    with pytest.raises(WaitTimedOut, match=r"waited longer than 0\.2 s for ") as caught:
        host.run(tasks)
    thread = "thread 'forward'" if where == "forward" else "thread 'Main"
    assert str(caught.value).lower().startswith(thread.lower())
    assert str(caught.value).endswith(what)
    assert "\n" not in str(caught.value)
    assert threads_named("forward") == []


def test_a_time_out_in_a_thread_is_told_although_the_main_task_ended_before_that_wait_began() -> None:
    host = RealHost(timeout_s=0.2)
    channel = host.channel("results")

    def forward() -> None:
        time.sleep(0.05)
        channel.get()

    with pytest.raises(WaitTimedOut, match=r"thread 'forward' waited longer than 0\.2 s for channel 'results'"):
        host.run({"main": lambda: None, "forward": forward})
    assert threads_named("forward") == []


def test_a_thread_that_does_not_end_is_named() -> None:
    host, release = RealHost(timeout_s=0.1), threading.Event()
    with pytest.raises(WaitTimedOut, match=r"thread 'main' waited longer than 1\.2 s for the end of thread 'stuck'"):
        host.run({"main": lambda: None, "stuck": lambda: release.wait(10)})
    release.set()


def threads_named(*names: str) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name in names]


# Errors

WAITS: dict[str, Callable[[RealHost], Callable[[], Any]]] = {
    "channel": lambda host: host.channel("x").get,
    "latch": lambda host: host.latch("x").wait,
    "many waits": lambda host: lambda: [host.wait_until(host.now_ns() + 5 * MS, "x") for _ in range(2000)],
    "spinning waits": lambda host: lambda: [host.wait_until(host.now_ns() + MS, "x", spin=True) for _ in range(9000)],
    "nothing": lambda host: lambda: None,
    "late channel": lambda host: lambda: (host.spend(60 * MS), host.channel("x").get()),
    "late latch": lambda host: lambda: (host.spend(60 * MS), host.latch("x").wait()),
}


@pytest.mark.parametrize("culprit", ["main", "forward"])
@pytest.mark.parametrize("wait", WAITS)
def test_an_error_in_one_task_ends_the_other_and_is_raised_with_its_traceback(wait: str, culprit: str) -> None:
    host, error = RealHost(timeout_s=8.0, switch_interval_s=0.001), OSError("boom")

    def the_culprit() -> None:
        time.sleep(0.02)
        assert sys.getswitchinterval() == pytest.approx(0.001)
        raise error

    tasks: dict[str, Callable[[], Any]] = dict.fromkeys(("main", "forward"), WAITS[wait](host))
    tasks[culprit] = the_culprit
    started, interval = time.monotonic(), sys.getswitchinterval()
    with pytest.raises(OSError, match="boom") as caught:
        host.run(tasks)
    assert caught.value is error
    assert "the_culprit" in {f.name for f in traceback.extract_tb(error.__traceback__)}
    assert time.monotonic() - started < 4
    assert threads_named("forward") == []
    assert sys.getswitchinterval() == interval
    done = []
    host.run({"main": lambda: done.append(1), "forward": lambda: done.append(2)})
    assert sorted(done) == [1, 2]


def test_an_error_ends_all_getters_of_one_channel() -> None:
    host = RealHost(timeout_s=1.5)
    channel = host.channel("x")

    def fails() -> None:
        time.sleep(0.02)
        raise OSError("boom")

    started = time.monotonic()
    with pytest.raises(OSError, match="boom"):
        host.run({"main": fails, "a": channel.get, "b": channel.get})
    assert time.monotonic() - started < 1


def test_an_error_ends_a_long_wait_for_a_point_in_time_soon() -> None:
    host = RealHost(timeout_s=5.0)

    def fails() -> None:
        time.sleep(0.02)
        raise OSError("boom")

    started = time.monotonic()
    with pytest.raises(OSError, match="boom"):
        host.run({"main": fails, "forward": lambda: host.wait_until(host.now_ns() + 1500 * MS, "x")})
    assert time.monotonic() - started < 1


def test_a_channel_and_a_latch_pass_what_was_put_and_set() -> None:
    host, got = RealHost(timeout_s=5.0), []
    channel, latch = host.channel("x"), host.latch("y")

    def forward() -> None:
        latch.wait()
        got.extend(channel.get() for _ in range(3))

    def main() -> None:
        for item in (1, None, "three"):
            channel.put(item)
        latch.set()

    host.run({"main": main, "forward": forward})
    assert got == [1, None, "three"]


@pytest.mark.parametrize("wait", ["channel", "latch"])
def test_a_keyboard_interrupt_of_the_main_task_passes_through(wait: str) -> None:
    host = RealHost(timeout_s=5.0)

    def interrupted() -> None:
        time.sleep(0.02)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.run({"main": interrupted, "forward": WAITS[wait](host)})
    assert threads_named("forward") == []


@pytest.mark.parametrize("main", ["channel", "latch", "many waits", "spinning waits", "nothing"])
def test_ctrl_c_ends_both_tasks_wherever_the_main_thread_is(main: str) -> None:
    # "nothing": the main task has ended and the main thread waits for the other one.
    host = RealHost(timeout_s=1.5)
    waits = host.latch("never")

    def forward() -> None:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        waits.wait()

    interval = sys.getswitchinterval()
    with pytest.raises(KeyboardInterrupt):
        host.run({"main": WAITS[main](host), "forward": forward})
    assert threads_named("forward") == []
    assert sys.getswitchinterval() == interval


@pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")
@pytest.mark.parametrize("interval", [None, 0.002, 0.0])
def test_the_timer_slack_is_restored_also_after_an_error(interval: float | None) -> None:
    libc = ctypes.CDLL(None)
    before = libc.prctl(GET_TIMER_SLACK, 0, 0, 0, 0)

    def fails() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match=r"boom|interval"):
        RealHost(switch_interval_s=interval).run({"main": fails})
    after = libc.prctl(GET_TIMER_SLACK, 0, 0, 0, 0)
    libc.prctl(SET_TIMER_SLACK, before, 0, 0, 0)
    assert after == before
