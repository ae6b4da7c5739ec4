"""What an engine's host work costs on a given machine: the prices the virtual host charges.

Measured by `engines.pricing` on a real host; a profile measured on the machine named in it ships with the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

PIECES = ("schedule", "advance", "futures", "resolve", "answer", "publish", "read", "process", "build", "serialise")


@dataclass(frozen=True, kw_only=True)
class Price:
    """Host time of one piece of work in ns, linear in what it handles, with the GIL.

    releases: times the piece gives the GIL up (torch calls, a send) for `free_ns` each, on top.
    """

    fixed: float = 0.0
    per_request: float = 0.0
    per_prompt_token: float = 0.0
    per_output_token: float = 0.0
    releases: int = 0
    free_ns: int = 0

    def held_ns(self, requests: int, prompt_tokens: int, output_tokens: int) -> int:
        """Time with the GIL for a batch of `requests` with so many prompt and output tokens in total."""
        return round(
            self.fixed
            + self.per_request * requests
            + self.per_prompt_token * prompt_tokens
            + self.per_output_token * output_tokens
        )


@dataclass(frozen=True, kw_only=True)
class HostProfile:
    """One machine as the virtual host sees it.

    wake_ns, nap_wake_ns: from a signal until the woken thread runs Python again, as quantiles, after a longer and after
        a short sleep.
    signal_ns: what that costs the one who signals.
    overshoot_ns: how late a timed wait ends.
    dispatch_factor: what the free part of a launch takes in a step over what it was asked to.
    queue_ns: one queue operation without waiting. prices: by engine, then by piece.
    gil: False asks what a free-threaded interpreter with the same prices would do.
    """

    machine: str
    measured: str
    wake_ns: tuple[int, ...]
    nap_wake_ns: tuple[int, ...]
    signal_ns: int
    overshoot_ns: int
    queue_ns: int
    dispatch_factor: float
    prices: Mapping[str, Mapping[str, Price]]
    gil: bool = True

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HostProfile:
        prices = {e: {piece: Price(**p) for piece, p in pieces.items()} for e, pieces in data["prices"].items()}
        return cls(
            **{**data, "wake_ns": tuple(data["wake_ns"]), "nap_wake_ns": tuple(data["nap_wake_ns"]), "prices": prices}
        )


@cache
def shipped_profile() -> HostProfile:
    """The profile that comes with the package; `machine` and `measured` say where it is from."""
    return HostProfile.from_json(json.loads(resources.files("microbench").joinpath("data/host.json").read_text()))
