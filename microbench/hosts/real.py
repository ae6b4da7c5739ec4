"""The real host: real threads, the real GIL, real queues; what it is told to spend, it burns as CPU time.

It exists so that a modelled GPU still costs this machine's Python. Its computed twin is `hosts.virtual`.
"""

from __future__ import annotations

import ctypes
import hashlib
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from microbench.errors import Aborted, WaitTimedOut

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_CLOCK_MONOTONIC, _TIMER_ABSTIME = 1, 1
_FAILED = object()


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _sleep_until(when_ns: int) -> None:
    """One absolute sleep without the GIL; may end early on a signal."""
    if _libc is None:
        time.sleep(max(0, when_ns - time.monotonic_ns()) / 1e9)
    else:
        deadline = _Timespec(when_ns // 10**9, when_ns % 10**9)
        _libc.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(deadline), None)


LONGEST_OP_NS = 50_000
"""A longer GIL-free piece is many short ops until its CPU time is used: one op of that size would miss all caches."""
_LONGEST_SLEEP_NS = 50_000_000  # a failure elsewhere ends a wait within this
_BURN_NS_PER_ROUND = 300


def _burn_until(when_ns: int) -> None:
    """Burn most of the time left in one call that doesn't hold the GIL; the caller repeats until it is over."""
    rounds = (when_ns - time.monotonic_ns()) // _BURN_NS_PER_ROUND // 2
    hashlib.pbkdf2_hmac("sha256", b"spin", b"salt", max(rounds, 1))


def _set_timer_slack(ns: int) -> int:
    """Set this thread's timer slack (its children inherit it); returns the one before. Linux only."""
    if _libc is None:
        return 0
    before = int(_libc.prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0))
    _libc.prctl(_PR_SET_TIMERSLACK, max(ns, 1), 0, 0, 0)
    return before


class RealChannel:
    """`queue.Queue` with a time-out that says what it waited for."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._queue: queue.Queue[Any] = queue.Queue()

    def put(self, item: Any) -> None:
        self._queue.put(item)

    def get(self) -> Any:
        try:
            item = self._queue.get(timeout=self.timeout_s)
        except queue.Empty:
            raise WaitTimedOut(threading.current_thread().name, f"channel {self.name!r}", self.timeout_s) from None
        if item is _FAILED:
            raise Aborted(f"another task failed while this one waited for channel {self.name!r}")
        return item

    def fail(self) -> None:
        self._queue.put(_FAILED)


class RealLatch:
    """`threading.Event` with a time-out that says what it waited for."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._event = threading.Event()
        self._failed = False

    def set(self) -> None:
        self._event.set()

    def wait(self) -> None:
        if not self._event.wait(self.timeout_s):
            raise WaitTimedOut(threading.current_thread().name, f"event {self.name!r}", self.timeout_s)
        if self._failed:
            raise Aborted(f"another task failed while this one waited for event {self.name!r}")

    def fail(self) -> None:
        self._failed = True
        self._event.set()


class RealHost:
    """Runs tasks as threads. `switch_interval_s`: the GIL's, set for the length of a run and restored."""

    name = "real"

    def __init__(self, *, timeout_s: float = 60.0, switch_interval_s: float | None = None) -> None:
        self.timeout_s = timeout_s
        self.switch_interval_s = switch_interval_s
        self._channels: list[RealChannel] = []
        self._latches: deque[RealLatch] = deque(maxlen=64)  # made once a step; older ones have no waiter
        self._ops: dict[int, Any] = {}
        self._failed = False

    now_ns = staticmethod(time.monotonic_ns)

    def spend(self, gil_ns: int, free_ns: int = 0, *, atomic: bool = False) -> None:
        for _ in self.repeat(gil_ns, free_ns, 1):
            pass

    def repeat(self, gil_ns: int, free_ns: int, times: int) -> Iterator[tuple[int, int]]:
        # Python first, as CPU time and not to a deadline: time spent waiting for the GIL is not work. What the caller
        # does between two repetitions is part of it. Then a real op, which takes what it takes, as dispatching does.
        cpu_ns, now_ns = time.thread_time_ns, self.now_ns
        op = (self._ops.get(free_ns) or self._op_of(free_ns)) if free_ns else None
        start = cpu_ns()
        for _ in range(times):
            while cpu_ns() - start < gil_ns:
                pass
            if op:
                op()
            start = cpu_ns()
            yield 1, now_ns()

    def wait_until(self, when_ns: int, what: str, *, spin: bool = False) -> None:
        started = time.monotonic_ns()
        if when_ns - started > self.timeout_s * 1e9:
            raise WaitTimedOut(threading.current_thread().name, what, self.timeout_s)
        while time.monotonic_ns() < when_ns:
            if self._failed:
                raise Aborted(f"another task failed while this one waited for {what}")
            if spin:
                _burn_until(when_ns)
            else:
                _sleep_until(min(when_ns, time.monotonic_ns() + _LONGEST_SLEEP_NS))

    def channel(self, name: str) -> RealChannel:
        channel = RealChannel(name, self.timeout_s)
        self._channels.append(channel)
        if self._failed:
            channel.fail()
        return channel

    def latch(self, name: str) -> RealLatch:
        latch = RealLatch(name, self.timeout_s)
        self._latches.append(latch)
        if self._failed:
            latch.fail()
        return latch

    def run(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        errors: list[BaseException] = []
        done = {name: threading.Event() for name in tasks}

        def fail(error: BaseException) -> None:
            errors.append(error)
            self._failed = True
            for channel in list(self._channels):
                channel.fail()
            for latch in list(self._latches):
                latch.fail()

        def guarded(name: str) -> None:
            try:
                tasks[name]()
            except BaseException as error:
                fail(error)
            finally:
                done[name].set()

        this = threading.current_thread()
        own_name, slack, interval = this.name, _set_timer_slack(1), sys.getswitchinterval()
        try:
            if self.switch_interval_s is not None:
                sys.setswitchinterval(self.switch_interval_s)
            first, *others = tasks
            this.name = first  # so that a time-out names the task
            for name in others:
                threading.Thread(target=guarded, args=(name,), name=name, daemon=True).start()
            guarded(first)
            for name in others:
                self._join(name, done[name], fail)
        finally:
            self._failed = False
            this.name = own_name
            sys.setswitchinterval(interval)
            _set_timer_slack(slack)
            self._channels.clear()
            self._latches.clear()
        if errors:
            raise next((e for e in errors if not isinstance(e, Aborted)), errors[0])

    def _join(self, name: str, done: threading.Event, fail: Callable[[BaseException], None]) -> None:
        """Wait for the end of a thread, longer than any one of its own waits may take."""
        patience_s = 2 * self.timeout_s + 1
        try:
            ended = done.wait(patience_s)
        except KeyboardInterrupt as error:
            fail(error)
            ended = done.wait(patience_s)
        if not ended:
            fail(WaitTimedOut("main", f"the end of thread {name!r}", patience_s))

    def _op_of(self, free_ns: int) -> Callable[[], None]:
        """A torch op of about `free_ns` (in a loop, caches warm) that runs without the GIL, as dispatched ops do.

        It is fixed work: with cold caches, or while the machine is slow, it takes longer, and so does the launch. Past
        LONGEST_OP_NS it is CPU time.
        """
        import torch

        torch.set_num_threads(1)
        chunk_ns = free_ns if free_ns <= LONGEST_OP_NS else 10_000

        def timed_ns(tensor: Any) -> float:
            best = float("inf")
            for _ in range(5):
                start = time.thread_time_ns()
                for _ in range(40):
                    torch.add(tensor, 1.0, out=tensor)
                best = min(best, (time.thread_time_ns() - start) / 40)
            return best

        n = 1024
        tensor = torch.zeros(n)
        while timed_ns(tensor) < chunk_ns and n < 10**7:
            n = int(n * 1.1)
            tensor = torch.zeros(n)
        cpu_ns = time.thread_time_ns

        def op() -> None:
            torch.add(tensor, 1.0, out=tensor)

        def many() -> None:
            end = cpu_ns() + free_ns
            while cpu_ns() < end:
                torch.add(tensor, 1.0, out=tensor)

        chosen = self._ops[free_ns] = op if chunk_ns == free_ns else many
        return chosen
