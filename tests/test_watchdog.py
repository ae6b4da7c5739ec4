"""A wait that can't be interrupted ends the process, in one line that names the thread and what it waited for."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from microbench.devices.watchdog import EXIT_CODE, Watchdog, watched

LINE = (
    "microbench: thread '{}' waited longer than 0.05 s for {}; "
    "it can't be interrupted, so the process ends: is the GPU lost or stuck?"
)


class Event:
    """A point that is reached when told so."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def synchronize(self) -> None:
        assert self.reached.wait(10)

    def query(self) -> bool:
        return self.reached.is_set()

    def __repr__(self) -> str:
        return "<event 7>"


def hung(what: Any, wait: Any, name: str) -> list[str]:
    """The lines written about a wait of a thread called `name`, which goes on once there is one."""
    lines: list[str] = []
    over = threading.Event()

    def end(line: str) -> None:
        lines.append(line)
        over.set()

    watchdog = Watchdog(0.05, end=end, period_s=0.01)
    thread = threading.Thread(target=lambda: watchdog.watch(what, lambda: wait(over)), name=name, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert watchdog.waits == {}
    return lines


def test_a_hung_wait_is_named() -> None:
    lines = hung("a stream to drain", lambda over: over.wait(10), "forward")
    assert lines[0] == LINE.format("forward", "a stream to drain")


def test_an_object_is_named_by_its_repr() -> None:
    assert hung(Event(), lambda over: over.wait(10), "scheduler")[0] == LINE.format("scheduler", "<event 7>")


def test_a_short_wait_is_none_of_its_business() -> None:
    assert hung("nothing", lambda over: time.sleep(0.02), "main") == []


def test_a_wait_gives_its_result_and_its_error() -> None:
    watchdog = Watchdog(60)
    assert watchdog.watch("a number", lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        watchdog.watch("an error", lambda: 1 // 0)
    assert watchdog.waits == {}


def test_the_oldest_of_several_waits_is_the_one_that_is_named() -> None:
    lines: list[str] = []
    watchdog = Watchdog(0.05, end=lines.append, period_s=60)
    seen: list[int] = []

    def inner() -> None:
        time.sleep(0.06)
        seen.append(len(watchdog.waits))
        watchdog.check()

    watchdog.watch("the outer", lambda: watchdog.watch("the inner", inner))
    assert seen == [2]
    assert lines == [LINE.format(threading.current_thread().name, "the outer")]
    watchdog.check()
    assert len(lines) == 1


def test_a_watched_class_differs_in_synchronize_only() -> None:
    watchdog = Watchdog(0.05, period_s=60)
    kind = watched(Event, watchdog)
    event: Any = Event()
    event.__class__ = kind
    assert isinstance(event, Event)
    assert (kind.__name__, kind.query, kind.__basicsize__) == ("Event", Event.query, Event.__basicsize__)
    seen: list[Any] = []
    event.reached.wait = lambda timeout: seen.extend(watchdog.waits.values()) or True
    event.synchronize()
    assert [entry[:2] for entry in seen] == [(event, threading.get_ident())]
    assert watchdog.waits == {}


def test_torchs_own_classes_can_be_watched() -> None:
    import torch

    # A Python class over a type of torch's extension, as torch.cuda.Event and Stream are in a build with CUDA.
    for base in (torch.Event, torch.Stream):
        mine = type("Mine", (base,), {})
        thing = mine()
        thing.__class__ = watched(mine, Watchdog(60))
        assert isinstance(thing, mine)
        assert type(thing).query is base.query


def test_no_thread_before_the_first_wait_and_none_left_behind() -> None:
    watchdog = Watchdog(60, period_s=0.01)
    assert watchdog._thread is None
    watchdog.watch("nothing", lambda: None)
    patrol: Any = watchdog._thread
    assert patrol.daemon
    for _ in range(3):
        watchdog.watch("nothing", lambda: None)
    assert watchdog._thread is patrol
    gone = weakref.ref(watchdog)
    del watchdog
    gc.collect()
    patrol.join(10)
    assert gone() is None
    assert not patrol.is_alive()


def test_the_process_ends_and_what_was_written_stays(tmp_path: Path) -> None:
    script = (
        "import sys, time; from microbench.devices.watchdog import Watchdog; open(sys.argv[1], 'w').write('kept');"
        "Watchdog(0.05, period_s=0.01).watch('an event', lambda: time.sleep(30))"
    )
    kept = tmp_path / "results"
    done = subprocess.run([sys.executable, "-c", script, str(kept)], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (EXIT_CODE, LINE.format("MainThread", "an event") + "\n")
    assert kept.read_text() == "kept"
