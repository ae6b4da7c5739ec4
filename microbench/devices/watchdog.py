"""A time-out for waits that nothing can interrupt: a call that blocks inside a driver never comes back to Python.

Such a wait is registered before and forgotten after. A thread that looks once a second ends the process when one took
too long, because no exception can reach the thread that hangs; results already written stay.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any, TypeVar

from microbench.errors import WaitTimedOut

T = TypeVar("T")

EXIT_CODE = 1


def end_process(line: str) -> None:
    """Write `line` to stderr and end the process at once, without cleaning up: cleaning up would wait, too."""
    os.write(2, f"{line}\n".encode())
    os._exit(EXIT_CODE)


class Watchdog:
    """Calls `end` with one line when a wait takes longer than `timeout_s`, looking every `period_s`.

    `waits`: what each wait in progress is for, its thread's id, and when it began (`time.monotonic_ns`).
    """

    def __init__(self, timeout_s: float, *, end: Callable[[str], None] = end_process, period_s: float = 1.0) -> None:
        self.timeout_s, self.end, self.period_s = timeout_s, end, period_s
        self.waits: dict[int, tuple[Any, int, int]] = {}
        self._thread: threading.Thread | None = None

    def watch(self, what: Any, wait: Callable[..., T], *args: Any) -> T:
        """`wait(*args)`, with the time-out. `what` is shown in the line: a text, or an object that its repr names."""
        if self._thread is None:
            self._start()
        entry = (what, get_ident(), monotonic_ns())
        key = id(entry)  # no other living entry has this one, so waits may nest
        self.waits[key] = entry
        try:
            return wait(*args)
        finally:
            del self.waits[key]

    def check(self) -> None:
        """End the process if the oldest wait is too old."""
        oldest = min(list(self.waits.values()), key=lambda entry: entry[2], default=None)
        if oldest is None or monotonic_ns() - oldest[2] <= self.timeout_s * 1e9:
            return
        what, ident, _ = oldest
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        shown = what if isinstance(what, str) else repr(what)
        timed_out = WaitTimedOut(names.get(ident, str(ident)), shown, self.timeout_s)
        self.end(f"microbench: {timed_out}; it can't be interrupted, so the process ends: is the GPU lost or stuck?")

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=_patrol, args=(weakref.ref(self), self.period_s), name="watchdog", daemon=True
        )
        self._thread.start()


def _patrol(reference: weakref.ref[Watchdog], period_s: float) -> None:
    """Look after the waits until the watchdog is gone, which this thread doesn't keep."""
    while True:
        time.sleep(period_s)
        watchdog = reference()
        if watchdog is None:
            return
        watchdog.check()
        del watchdog


def watched(kind: Any, watchdog: Watchdog) -> Any:
    """A subclass of `kind` whose `synchronize` is watched. It adds no field, and every other method is `kind`'s own."""

    def synchronize(self: Any) -> None:
        watchdog.watch(self, kind.synchronize, self)

    return type(kind.__name__, (kind,), {"__slots__": (), "synchronize": synchronize})
