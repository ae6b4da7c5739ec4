"""Numbers as people print and paste them; a text that can be read in two ways is not read.

A comma or a point with three digits behind it may group or may be the decimal mark. What the other numbers of the same
block show decides; where they don't, the number stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " "})
"""No-break and thin spaces, which some locales group digits with."""

_GROUPED = re.compile(r"[0-9]{1,3}(?: [0-9]{3})+(?=[.,]|$)")
_PLAIN = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_GROUPS = {
    ",": re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"),
    ".": re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)?"),
}
_ONE_MARK = re.compile(r"[+-]?[0-9]{1,3}[.,][0-9]{3}")
"""One mark with three digits behind it: 1,026 or 1.026."""


def decimal_marks(texts: Iterable[str]) -> frozenset[str]:
    """The decimal marks that these numbers show beyond doubt: a subset of "." and ","."""
    found = set()
    for text in texts:
        text = _joined(text)
        if _ONE_MARK.fullmatch(text):
            continue
        if text.count(",") > 1 and _GROUPS[","].fullmatch(text):
            found.add(".")
        elif _COMMA.fullmatch(text) or (text.count(".") + text.count(",") > 1 and _GROUPS["."].fullmatch(text)):
            found.add(",")
        elif "." in text and (_PLAIN.fullmatch(text) or _GROUPS[","].fullmatch(text)):
            found.add(".")
    return frozenset(found)


def parse_number(text: str, marks: frozenset[str] = frozenset()) -> float | None:
    """The finite number that `text` says, given the decimal marks seen around it; None if it is none, or unclear.

    With no mark seen, a point is the decimal mark, as in all of the tools' own output.
    """
    text = _joined(text)
    if _ONE_MARK.fullmatch(text):
        if "," in text:
            return _finite(text.replace(",", "")) if marks == {"."} else None
        return None if "," in marks else _finite(text)
    if _PLAIN.fullmatch(text):
        return _finite(text)
    if marks == {".", ","}:
        return None
    if _GROUPS[","].fullmatch(text) and text.count(",") + text.count(".") > 1:
        return None if "," in marks else _finite(text.replace(",", ""))
    if _GROUPS["."].fullmatch(text) and text.count(",") + text.count(".") > 1:
        return None if "." in marks else _finite(text.replace(".", "").replace(",", "."))
    if _COMMA.fullmatch(text):
        return None if "." in marks else _finite(text.replace(",", "."))
    return None


def _joined(text: str) -> str:
    """Without spaces between groups of three digits."""
    text = text.translate(SPACES).strip()
    return text.replace(" ", "") if _GROUPED.match(text.lstrip("+-")) else text


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
