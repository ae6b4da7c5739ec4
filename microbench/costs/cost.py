"""Cost: the samples of one isolated cost, with what a reader needs to trust them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Samples of one cost in ns.

    group, variant: the row it makes in a table, for example `thread hand-off` and `queue.Queue, idle`.
    clock: what was read: `host` (wall clock of this host), `host cpu`, `device event`, or `modelled` where the
        duration comes from the modelled GPU and only the host's part is measured.
    facts: further figures of the row, units in their names.
    """

    group: str
    variant: str
    samples_ns: tuple[int, ...]
    clock: str = "host"
    facts: dict[str, float] = field(default_factory=dict)
