"""What this package raises. Each message is one line that says what to do."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class UnknownName(ValueError):
    """No architecture or GPU has this name."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown {what} {short(name)}; known: {', '.join(known)}")


class BadConfig(ValueError):
    """A config.json does not describe a dense decoder that can be modelled."""


class DoesNotFit(ValueError):
    """The weights and the KV cache of a batch exceed the memory of the GPU."""


def short(value: object) -> str:
    """A repr of any value in one line of at most about 60 characters."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except ValueError:
        # Python refuses to print an int of more than 4,300 digits.
        return "a huge number"
