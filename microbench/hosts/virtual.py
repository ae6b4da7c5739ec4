"""The virtual host: tasks on a computed clock, with CPython's GIL as a token. Twin of `hosts.real`.

A task holds the GIL whenever it runs, except inside `spend(free_ns=...)` and while it waits. Rules, as in
CPython's ceval_gil.c (3.10 to 3.13):

* Releasing signals one waiter, which needs `wake_ns` to run again and finds the GIL taken if the releaser was
  quicker; it then waits anew.
* A waiter that saw no hand-over for a whole switch interval asks for one. The holder gives way at the next point
  between bytecodes (not inside an `atomic` piece) and can't take the GIL back before another task had it.

Same inputs, same result to the nanosecond: events at equal times run in the order they were scheduled, and what is
drawn is drawn from a generator with a fixed seed.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from greenlet import getcurrent, greenlet

from microbench.errors import Aborted, Deadlock

GIL_WAITS_KEPT = 10_000
NAP_NS = 150_000
"""A thread that slept shorter is woken quickly: its core has not gone idle (see `costs.handoff.wake_ns`)."""


class _Task:
    """One task: its greenlet, what it waits for, and the token that makes its outdated timers no-ops."""

    __slots__ = ("asleep_since", "glet", "hold_token", "name", "signalled", "switches_seen", "timer_token", "waits_for")

    def __init__(self, name: str, glet: greenlet) -> None:
        self.name, self.glet = name, glet
        self.waits_for = ""
        self.timer_token = self.hold_token = self.switches_seen = self.asleep_since = 0
        self.signalled = False


class VirtualChannel:
    """A FIFO; `put` costs `queue_ns` with the GIL, a blocked `get` wakes `wake_ns` after it."""

    def __init__(self, host: VirtualHost, name: str) -> None:
        self._host, self.name = host, name
        self._items: deque[Any] = deque()
        self._getters: deque[_Task] = deque()

    def put(self, item: Any) -> None:
        self._host.spend(self._host.queue_ns)
        self._items.append(item)
        if self._getters:
            self._host._wake_later(self._getters.popleft())

    def get(self) -> Any:
        self._host.spend(self._host.queue_ns)
        while not self._items:
            self._host._block(self._getters, f"channel {self.name!r}")
        return self._items.popleft()


class VirtualLatch:
    """A flag; waiting for one that is set costs nothing."""

    def __init__(self, host: VirtualHost, name: str) -> None:
        self._host, self.name = host, name
        self._is_set = False
        self._waiters: deque[_Task] = deque()

    def set(self) -> None:
        self._is_set = True
        while self._waiters:
            self._host._wake_later(self._waiters.popleft())

    def wait(self) -> None:
        while not self._is_set:
            self._host._block(self._waiters, f"event {self.name!r}")


class VirtualHost:
    """Computes what the tasks would take. All times in ns.

    wake_ns: from a signal (GIL freed, queue filled, event set) until the woken thread runs; of several values one is
        drawn each time, from a generator with a fixed seed. One value alone makes threads fall into step, which real
        ones don't.
    nap_wake_ns: the same for a thread that slept less than NAP_NS: its core has not gone idle. Default: as wake_ns.
    overshoot_ns: how much later than asked a timed wait ends.
    dispatch_factor: what a launch's free part takes in a step over what it was asked to (caches are cold there).
    signal_ns: what waking another thread costs the one that signals (a futex call).
    queue_ns: one queue operation without waiting.
    gil: False models a free-threaded interpreter.
    """

    name = "virtual"

    def __init__(
        self,
        *,
        wake_ns: int | Sequence[int] = 50_000,
        nap_wake_ns: int | Sequence[int] | None = None,
        dispatch_factor: float = 1.0,
        signal_ns: int = 0,
        overshoot_ns: int = 0,
        queue_ns: int = 1_500,
        switch_interval_ns: int = 5_000_000,
        gil: bool = True,
    ) -> None:
        self._wakes_ns = (wake_ns,) if isinstance(wake_ns, int) else tuple(wake_ns)
        nap = wake_ns if nap_wake_ns is None else nap_wake_ns
        self._nap_wakes_ns = (nap,) if isinstance(nap, int) else tuple(nap)
        self._random = random.Random(0)
        self.dispatch_factor, self.signal_ns = dispatch_factor, signal_ns
        self.overshoot_ns, self.queue_ns = overshoot_ns, queue_ns
        self.switch_interval_ns, self.gil = switch_interval_ns, gil
        self._now = 0
        self._heap: list[tuple[int, int, Callable[[], Any]]] = []
        self._order = 0
        self._tasks: dict[greenlet, _Task] = {}
        self._hub: greenlet | None = None
        self._closing = False
        self.gil_waits: deque[tuple[str, int, int]] = deque(maxlen=GIL_WAITS_KEPT)
        self._reset_gil()

    def now_ns(self) -> int:
        return self._now

    def spend(self, gil_ns: int, free_ns: int = 0, *, atomic: bool = False) -> None:
        if self._undisturbed(gil_ns + free_ns, 1):
            return
        task = self._task()
        if task is None:  # outside a run, or while one is being torn down
            self._now += gil_ns + free_ns
            return
        if gil_ns:
            self._hold(task, gil_ns, atomic)
        if free_ns:
            signalled = self._release(task)
            self._advance(task, free_ns + signalled * self.signal_ns)
            self._take(task)

    def repeat(self, gil_ns: int, free_ns: int, times: int) -> Iterator[tuple[int, int]]:
        free_ns = round(free_ns * self.dispatch_factor)
        while times:
            done = self._undisturbed(gil_ns + free_ns, times)
            if not done:
                self.spend(gil_ns, free_ns)
                done = 1
            times -= done
            yield done, self._now

    def _undisturbed(self, period_ns: int, times: int) -> int:
        """Let up to `times` periods pass in which nothing else happens; returns how many did."""
        if self._waiters or self._drop_requested:
            return 0
        if self._heap and period_ns:
            times = min(times, max(0, self._heap[0][0] - self._now - 1) // period_ns)
        self._now += times * period_ns
        return times

    def wait_until(self, when_ns: int, what: str, *, spin: bool = False) -> None:
        if when_ns <= self._now:
            return
        task = self._task()
        self._check_open(what)
        if task is None:
            self._now = when_ns
            return
        self._release(task)
        task.waits_for = what
        self._advance(task, max(0, when_ns + (0 if spin else self.overshoot_ns) - self._now))
        task.waits_for = ""
        self._take(task)

    def channel(self, name: str) -> VirtualChannel:
        return VirtualChannel(self, name)

    def latch(self, name: str) -> VirtualLatch:
        return VirtualLatch(self, name)

    def run(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        self._hub = getcurrent()
        self._heap.clear()
        self._reset_gil()
        for name, body in tasks.items():
            glet = greenlet(lambda body=body: self._main(body))
            task = self._tasks[glet] = _Task(name, glet)
            self._at(self._now, task.glet.switch)
        try:
            while self._heap and self._tasks:
                self._now, _, callback = heapq.heappop(self._heap)
                callback()
            if self._tasks:
                raise Deadlock((t.name, t.waits_for or "the GIL") for t in self._tasks.values())
        finally:
            self._tear_down()

    def _tear_down(self) -> None:
        """End what is left of the tasks; what they do while they unwind costs nothing and can't wait."""
        self._heap.clear()
        self._reset_gil()
        self._closing = True
        stuck = list(self._tasks)
        self._tasks.clear()
        for glet in stuck:
            with suppress(Exception):
                glet.throw(Aborted("another task failed"))
        self._closing = False

    def _check_open(self, what: str) -> None:
        if self._closing:
            raise Aborted(f"another task failed while this one waited for {what}")

    # -- tasks and time ------------------------------------------------------------------------------------

    def _main(self, body: Callable[[], None]) -> None:
        task = self._tasks[getcurrent()]
        self._take(task)
        body()
        del self._tasks[task.glet]
        self._release(task)

    def _task(self) -> _Task | None:
        return self._tasks.get(getcurrent())

    def _at(self, when_ns: int, callback: Callable[[], Any]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when_ns, self._order, callback))

    def _pause(self) -> None:
        assert self._hub is not None
        self._hub.switch()

    def _advance(self, task: _Task, ns: int) -> None:
        target = self._now + ns
        if self._heap and self._heap[0][0] <= target:
            self._at(target, task.glet.switch)
            self._pause()
        else:
            self._now = target

    def _block(self, waiters: deque[_Task], what: str) -> None:
        task = self._task()
        self._check_open(what)
        if task is None:
            raise Deadlock([("outside a run", what)])
        task.waits_for = what
        task.asleep_since = self._now
        waiters.append(task)
        self._release(task)
        self._pause()
        task.waits_for = ""
        self._take(task)

    def _wake_ns(self, task: _Task) -> int:
        wakes = self._nap_wakes_ns if self._now - task.asleep_since < NAP_NS else self._wakes_ns
        return wakes[0] if len(wakes) == 1 else wakes[int(self._random.random() * len(wakes))]

    def _wake_later(self, task: _Task) -> None:
        self._at(self._now + self._wake_ns(task), task.glet.switch)
        self.spend(self.signal_ns)

    # -- the GIL -------------------------------------------------------------------------------------------

    def _reset_gil(self) -> None:
        self._holder: _Task | None = None
        self._last_holder: _Task | None = None
        self._waiters: deque[_Task] = deque()
        self._switches = 0
        self._drop_requested = False
        self._holding: Callable[[], None] | None = None

    def _take(self, task: _Task) -> None:
        if not self.gil:
            return
        if self._holder is None:
            self._grant(task)
        else:
            since = self._now
            self._enqueue(task)
            self._pause()
            self.gil_waits.append((task.name, since, self._now))

    def _grant(self, task: _Task) -> None:
        self._holder = task
        if task is not self._last_holder:  # taking back what one just released is no switch
            self._switches += 1
            self._last_holder = task
        self._drop_requested = False

    def _enqueue(self, task: _Task) -> None:
        self._waiters.append(task)
        task.signalled = False
        task.asleep_since = self._now
        self._arm(task)

    def _arm(self, task: _Task) -> None:
        task.timer_token += 1
        task.switches_seen = self._switches
        token = task.timer_token
        self._at(self._now + self.switch_interval_ns, lambda: self._timed_out(task, token))

    def _timed_out(self, task: _Task, token: int) -> None:
        if token != task.timer_token or task not in self._waiters or task.signalled:
            return
        unchanged = self._switches == task.switches_seen
        self._arm(task)
        if self._holder is not None and unchanged:
            self._drop_requested = True
            if self._holding:
                self._holding()

    def _signal_one(self) -> bool:
        if not self._waiters or self._waiters[0].signalled:
            return False
        task = self._waiters[0]
        task.signalled = True
        self._at(self._now + self._wake_ns(task), lambda: self._woken(task))
        return True

    def _woken(self, task: _Task) -> None:
        task.signalled = False
        if self._holder is not None:
            task.asleep_since = self._now
            self._arm(task)
            return
        self._waiters.remove(task)
        task.timer_token += 1
        self._grant(task)
        task.glet.switch()

    def _release(self, task: _Task) -> bool:
        """Give the GIL up; whether somebody had to be woken for it."""
        if not self.gil:
            return False
        if self._drop_requested and self._waiters:
            self._hand_over(task, requeue=False)
            return True
        self._holder = None
        self._drop_requested = False
        return self._signal_one()

    def _hand_over(self, task: _Task, *, requeue: bool) -> None:
        """Forced: the holder stops until the longest waiter has the GIL; `requeue`: and wants it back."""
        taker = self._waiters.popleft()
        taker.timer_token += 1
        self._holder = None

        def taken() -> None:
            self._grant(taker)
            if requeue:
                self._enqueue(task)
            else:
                self._at(self._now, task.glet.switch)
            taker.glet.switch()

        # Nobody else can slip in: other takers only enqueue while a hand-over is under way.
        self._holder = taker
        self._drop_requested = False
        since = self._now
        self._at(self._now + self._wake_ns(taker), taken)
        self._pause()
        if requeue:
            self.gil_waits.append((task.name, since, self._now))

    def _hold(self, task: _Task, ns: int, atomic: bool) -> None:
        """Work `ns` with the GIL, giving way when asked (after it, when `atomic`)."""
        if not self.gil:
            self._advance(task, ns)
            return
        remaining = ns
        while remaining > 0:
            if self._drop_requested and self._waiters and not atomic:
                self._hand_over(task, requeue=True)
                continue
            end = self._now + remaining
            if not self._heap or self._heap[0][0] > end:
                self._now = end
                break
            task.hold_token += 1
            token = task.hold_token

            def finish(token: int = token) -> None:
                if token == task.hold_token:
                    task.glet.switch()

            def interrupt() -> None:
                task.hold_token += 1
                task.glet.switch()

            self._at(end, finish)
            self._holding = None if atomic else interrupt
            self._pause()
            self._holding = None
            remaining = end - self._now
        if self._drop_requested and self._waiters:
            self._hand_over(task, requeue=True)
