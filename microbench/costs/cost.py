"""Cost: the samples of one isolated cost, with what a reader needs to trust them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from microbench.protocols import Device
from microbench.stats import summary


def clock_of(device: Device, clock: str = "host") -> str:
    """The `clock` of a cost measured on this device."""
    return f"{clock}; GPU modelled" if device.modelled else clock


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Samples of one cost in ns.

    group, variant: the row it makes in a table, for example `thread hand-off` and `queue.Queue, idle`.
    clock: `host` (this host's wall clock around something that ends by itself), `host submit` (around the calls that
        enqueue, not waiting), `device event` (between two events on the device), or `host completion` (until the wait
        returned); with `; GPU modelled` where what was launched or waited for is a model: a device event is then an
        output of the model, and of the other clocks only the host's part is measured.
    facts: further figures of the row, units in their names.
    marks: why the row is doubtful, such as `throttled: power cap`; empty where nothing is known against it.
    """

    group: str
    variant: str
    samples_ns: tuple[int, ...]
    clock: str = "host"
    facts: dict[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, summarised, times in us; a percentile is None where n is too small for it."""
        found = summary(self.samples_ns)
        us = {name: None if ns is None else ns / 1e3 for name, ns in vars(found).items() if name != "n"}
        return {
            "group": self.group,
            "variant": self.variant,
            "clock": self.clock,
            "median_us": us["median"],
            "interval_us": [us["low"], us["high"]],
            "p10_us": us["p10"],
            "p90_us": us["p90"],
            "p99_us": us["p99"],
            "n": found.n,
            "facts": self.facts,
            "marks": list(self.marks),
        }
