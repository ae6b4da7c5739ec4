"""Errors that reach a user. Each message is one line: what is wrong, where, and what to do.

MicrobenchError
    UsageError          bad input; the command exits with 2
    Unavailable         a target that this machine can't open; the command exits with 2
    WaitTimedOut        a blocking wait took too long
    Deadlock            on the virtual host: nobody can go on
    Aborted             this task was ended because another one failed
"""

from __future__ import annotations

from collections.abc import Iterable


class MicrobenchError(Exception):
    """Base of all errors raised here."""


class UsageError(MicrobenchError, ValueError):
    """The input is wrong."""


class Unavailable(MicrobenchError):
    """The target can't be opened on this machine."""


class WaitTimedOut(MicrobenchError, TimeoutError):
    """A wait took longer than the host's time-out."""

    def __init__(self, thread: str, what: str, timeout_s: float) -> None:
        super().__init__(f"thread {thread!r} waited longer than {timeout_s:g} s for {what}")


class Deadlock(MicrobenchError):
    """Every task of a virtual host waits for another."""

    def __init__(self, waits: Iterable[tuple[str, str]]) -> None:
        super().__init__("deadlock: " + "; ".join(f"task {task!r} waits for {what}" for task, what in waits))


class Aborted(MicrobenchError):
    """Another task failed first; its error is the one to read."""


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that isn't in a table."""
    return UsageError(f"unknown {what} {name!r}; known: {', '.join(known)}")
