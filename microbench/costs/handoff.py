"""Thread hand-off: from just before the sender signals until the waiting thread runs Python again."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from microbench.costs.cost import Cost
from microbench.errors import WaitTimedOut
from microbench.hosts.real import RealHost

TIMEOUT_S = 30.0
_Pair = tuple[Callable[[int], None], Callable[[], int | None]]


def _queue(make: Callable[[], Any]) -> _Pair:
    q = make()

    def receive() -> int | None:
        try:
            return int(q.get(timeout=TIMEOUT_S))
        except queue.Empty:
            return None

    return q.put, receive


def _event() -> _Pair:
    # An Event is a latch: the stamp travels beside it, and the sender waits until it was taken.
    event, slot = threading.Event(), [0]

    def send(stamp: int) -> None:
        slot[0] = stamp
        event.set()

    def receive() -> int | None:
        if not event.wait(TIMEOUT_S):
            return None
        event.clear()
        return slot[0]

    return send, receive


def _condition() -> _Pair:
    condition = threading.Condition()
    items: list[int] = []

    def send(stamp: int) -> None:
        with condition:
            items.append(stamp)
            condition.notify()

    def receive() -> int | None:
        with condition:
            if not condition.wait_for(lambda: items, TIMEOUT_S):
                return None
            return items.pop()

    return send, receive


def _baton() -> _Pair:
    # One lock: released means "it is your turn" (the idea of trio's thread cache).
    baton, slot = threading.Lock(), [0]
    baton.acquire()

    def send(stamp: int) -> None:
        slot[0] = stamp
        baton.release()

    def receive() -> int | None:
        return slot[0] if baton.acquire(timeout=TIMEOUT_S) else None

    return send, receive


PRIMITIVES: dict[str, Callable[[], _Pair]] = {
    "queue.Queue": lambda: _queue(queue.Queue),
    "queue.SimpleQueue": lambda: _queue(queue.SimpleQueue),
    "threading.Event": _event,
    "threading.Condition": _condition,
    "lock baton": _baton,
}


@contextmanager
def busy_thread() -> Iterator[None]:
    """One thread of pure Python that never gives the GIL up by itself."""
    stop = False

    def spin() -> None:
        while not stop:
            pass

    thread = threading.Thread(target=spin, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop = True
        thread.join(TIMEOUT_S)


def handoff(primitive: str, *, hand_overs: int = 300, pause_ns: int = 200_000) -> Cost:
    """One-way latency of `primitive` to a thread that already waits.

    Raises WaitTimedOut naming the thread when a signal doesn't arrive.
    """
    return _hand_over(primitive, hand_overs, pause_ns)[0]


def _hand_over(primitive: str, hand_overs: int, pause_ns: int) -> tuple[Cost, list[int]]:
    """The cost, and how long each send kept the sender."""
    send, receive = PRIMITIVES[primitive]()
    samples: list[int] = []
    sending: list[int] = []
    taken = threading.Semaphore(0)
    clock, host = time.monotonic_ns, RealHost()

    def consume() -> None:
        for _ in range(hand_overs):
            stamp = receive()
            now = clock()
            if stamp is None:
                return
            samples.append(now - stamp)
            taken.release()

    thread = threading.Thread(target=consume, name="receiver", daemon=True)
    thread.start()
    for _ in range(hand_overs):
        # Long enough that the receiver sleeps again; this core stays busy, as that of a launching thread does.
        host.wait_until(clock() + pause_ns, "the pause before a hand-off", spin=True)
        stamp = clock()
        send(stamp)
        sending.append(clock() - stamp)
        if not taken.acquire(timeout=TIMEOUT_S):
            raise WaitTimedOut("sender", f"a hand-off through {primitive}", TIMEOUT_S)
    thread.join(TIMEOUT_S)
    interval = sys.getswitchinterval()
    stalled = sum(s > interval * 1e9 / 2 for s in samples) / len(samples)
    cost = Cost(
        group="thread hand-off",
        variant=f"{primitive}, idle",
        samples_ns=tuple(samples),
        facts={"stalled_share": stalled, "switch_interval_s": interval},
    )
    return cost, sending


def handoff_busy(primitive: str, *, hand_overs: int = 60) -> Cost:
    """The same next to one busy Python thread: every wake-up must also win the GIL."""
    with busy_thread():
        cost = handoff(primitive, hand_overs=hand_overs)
    return Cost(group=cost.group, variant=f"{primitive}, busy", samples_ns=cost.samples_ns, facts=cost.facts)


def wake_ns(*, after_ns: int, hand_overs: int = 400) -> tuple[int, ...]:
    """Ten quantiles (5 %, 15 %, ... 95 %) of the time a thread needs to run again after it slept for `after_ns`.

    Through the barest primitive. The longer the sleep, the deeper the core's idle state and the later the wake-up.
    """
    ordered = sorted(handoff("lock baton", hand_overs=hand_overs, pause_ns=after_ns).samples_ns)
    return tuple(ordered[int(len(ordered) * (i + 0.5) / 10)] for i in range(10))


def signal_ns(*, hand_overs: int = 300) -> int:
    """Median time that waking a waiting thread keeps the one who signals, through the barest primitive."""
    return round(median(_hand_over("lock baton", hand_overs, 200_000)[1]))
