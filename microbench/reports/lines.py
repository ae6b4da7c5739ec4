"""The lines of a text file of any size and of doubtful origin, in bounded memory.

Handles byte order marks (UTF-8, UTF-16, UTF-32), CRLF and lone CR (progress bars), NUL bytes, terminal colours, and
bytes that are no text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
MOST_CHARACTERS = 4096
"""Of a line that is read as a row; the rest of it is dropped, and counted."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]")
_BREAK = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class Piece:
    """A line or a part of a long one. `number` is the line's, from 1; `starts` and `ends` say which part.

    `cut` marks the end of a file that does not end with a line break, so that its last line may be cut off.
    """

    text: str
    number: int
    starts: bool
    ends: bool
    cut: bool = False


class Text:
    """The pieces of one file, and afterwards what there was to remark. Iterate once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.nul = False
        self.odd = 0
        """Characters that are no text: undecodable bytes and control characters."""
        self.characters = 0

    def __iter__(self) -> Iterator[Piece]:
        number, starts, held = 1, True, ""
        for text in self._decoded():
            text = held + text
            held = text[-1] if text.endswith("\r") else ""  # half of a CRLF, perhaps
            text = text[: len(text) - len(held)]
            at = 0
            for found in _BREAK.finditer(text):
                yield Piece(text[at : found.start()], number, starts, True)
                number, starts, at = number + 1, True, found.end()
            if at < len(text):
                yield Piece(text[at:], number, starts, False)
                starts = False
        yield Piece("", number, starts, True, cut=not starts)

    def _decoded(self) -> Iterator[str]:
        first = self._file.read(CHUNK_BYTES)
        name = next((name for mark, name in _MARKS if first.startswith(mark)), "utf-8-sig")
        decoder = codecs.getincrementaldecoder(name)("replace")
        chunk = first
        while chunk:
            yield self._noted(decoder.decode(chunk))
            chunk = self._file.read(CHUNK_BYTES)
        yield self._noted(decoder.decode(b"", final=True))

    def _noted(self, text: str) -> str:
        self.characters += len(text)
        self.nul = self.nul or "\x00" in text
        self.odd += text.count("\ufffd") + len(_CONTROLS.findall(text)) - text.count("\r") - text.count("\x1b")
        return text.replace("\x00", "")


def clean(text: str) -> str:
    """A row without terminal colours and control characters, and without blanks at its end."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text).rstrip()
