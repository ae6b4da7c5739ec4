"""Words of pinned memory that kernels and the host share: timestamps of the GPU, and streams that wait for the host."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from synthetic_models.cupy_kernels import HELD, TIMED_OUT

SLOTS = 2048
"""A launch blocks when about 1,000 are pending, so a kernel that took its slot this long ago has begun."""


class Words:
    """Two words a slot, in a ring. `array`: pinned, of SHAPE and DTYPE, in C order."""

    SHAPE: ClassVar = (SLOTS, 2)
    DTYPE: ClassVar = "uint64"

    def __init__(self, array: Any) -> None:
        self.array = array
        self.turns = [-1] * SLOTS
        self._next = itertools.count()

    def take(self) -> Slot:
        return Slot(self, next(self._next))


class Slot:
    """Two words, zero at first, that are its own until `SLOTS` more were taken."""

    def __init__(self, words: Words, turn: int) -> None:
        self._words, self._turns, self._turn = words.array[turn % SLOTS], words.turns, turn
        self._turns[turn % SLOTS] = turn
        self._words[:] = 0

    @property
    def address(self) -> int:
        # Under unified addressing, which CUDA has on every 64-bit Linux, pinned memory has this one address.
        return int(self._words.ctypes.data)

    def __getitem__(self, word: int) -> int:
        self._check()
        return int(self._words[word])

    def __setitem__(self, word: int, value: int) -> None:
        self._check()
        self._words[word] = value

    def _check(self) -> None:
        if self._turns[self._turn % SLOTS] != self._turn:
            raise RuntimeError(f"this was used too late: its memory was reused after {SLOTS} more timestamps and holds")


class Timestamp:
    """The GPU's global timer at a point of a stream."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    @property
    def ns(self) -> int | None:
        """On the GPU's own clock; None before the stream came there. Only differences mean anything."""
        return self._slot[0] or None


class Hold:
    """A stream that waits for the host."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def release(self) -> None:
        """Let the stream go on."""
        self._slot[0] = 1

    @property
    def timed_out(self) -> bool | None:
        """Whether the stream went on by itself; None while it is held."""
        outcome = self._slot[1]
        return None if outcome == HELD else outcome == TIMED_OUT
