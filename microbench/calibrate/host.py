"""Measures this machine's Python and threads into a profile for the virtual host, and reads such files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from microbench.engines import EngineProfile
from microbench.engines.prices import HostProfile, Price
from microbench.errors import UsageError

LARGEST_FILE_BYTES = 1_000_000


def calibrate_host(
    engines: Sequence[EngineProfile], *, progress: Callable[[str, float], None] = lambda stage, share: None
) -> HostProfile:
    """Prices of every engine's pieces against batch and lengths, wake-ups and queues, on this machine as it is now."""
    from dataclasses import replace

    from microbench.engines.pricing import measure_prices, measure_profile

    progress("threads and wake-ups", 0)
    profile = measure_profile(engines[:1])
    prices = dict(profile.prices)
    for done, engine in enumerate(engines[1:], 1):
        progress(engine.name, done / len(engines))
        prices[engine.name] = measure_prices(engine)
    progress("done", 1)
    return replace(profile, prices=prices)


def read_profile(path: Path) -> HostProfile:
    """The host profile that `microbench calibrate --host` wrote. Raises UsageError naming what is wrong with it."""
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes; a host profile is smaller")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a host profile: {error}") from None
    remedy = "make one with `microbench calibrate --host`"
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a host profile; {remedy}")
    names = {f.name for f in fields(HostProfile)}
    wrong = sorted(set(data) - names) or sorted(names - set(data) - {"gil"})
    if wrong:
        raise UsageError(f"{path}: the field {wrong[0]!r} is {'unknown' if wrong[0] in data else 'missing'}; {remedy}")
    try:
        _check(data)
        return HostProfile.from_json(data)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error}; {remedy}") from None


def _check(data: Mapping[str, Any]) -> None:
    """Raise ValueError for a figure that no machine could have."""

    def number(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ValueError(f"{where} is {value!r}, not a number of at least 0")

    for name in ("signal_ns", "overshoot_ns", "queue_ns", "dispatch_factor"):
        number(data[name], name)
    for name in ("wake_ns", "nap_wake_ns"):
        if not isinstance(data[name], list) or not data[name]:
            raise ValueError(f"{name} is {data[name]!r}, not a list of times")
        for value in data[name]:
            number(value, name)
    known = {f.name for f in fields(Price)}
    for engine, pieces in data["prices"].items():
        for piece, price in pieces.items():
            for name, value in price.items():
                if name not in known:
                    raise ValueError(f"{name!r} in the price of {piece} of {engine} is unknown")
                number(value, f"{name} of {piece} of {engine}")
                if name in ("releases", "free_ns") and not isinstance(value, int):
                    raise ValueError(f"{name} of {piece} of {engine} is {value!r}, not an integer")
