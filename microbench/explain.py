"""Which cost decides: remove one at a time in the virtual host and see how the answer changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from microbench.case import Case
from microbench.devices.spec import LaunchCost
from microbench.engines.prices import HostProfile
from microbench.measure import sample

_FREE = LaunchCost(gil_ns=0, free_ns=0)


def without_each_cost(case: Case, base: str, other: str, profile: HostProfile) -> dict[str, float]:
    """Gain of `other` over `base` (1 - step time ratio) with one cost removed: {cost: gain}, `nothing` first.

    `case` must be on the virtual host.
    """
    spec = case.spec
    variants: dict[str, tuple[Case, HostProfile]] = {"nothing": (case, profile)}
    launches = replace(spec, launch=_FREE, sample_launch=_FREE, graph=_FREE if spec.graph else None)
    variants["kernel launches"] = replace(case, spec=launches), profile
    variants["GIL contention"] = case, replace(profile, gil=False)
    variants["thread wake-ups"] = case, replace(profile, wake_ns=(0,), nap_wake_ns=(0,), signal_ns=0, queue_ns=0)
    if spec.plan_sync:
        variants["plan synchronisation"] = replace(case, spec=replace(spec, plan_sync=False)), profile
    if case.workload.stream:
        variants["output streaming"] = replace(case, workload=replace(case.workload, stream=False)), profile
    gains = {}
    for name, (changed, priced) in variants.items():
        sampled = sample(changed, (base, other), profile=priced)
        gains[name] = 1 - sampled.ratio(base, other).value
    return gains


def deciding_cost(gains: Mapping[str, float]) -> str:
    """The cost whose removal changes the gain most, or `none` when no removal changes it by 1 point."""
    now = gains["nothing"]
    changes = {name: abs(gain - now) for name, gain in gains.items() if name != "nothing"}
    name = max(changes, key=lambda n: changes[n])
    return name if changes[name] >= 0.01 else "none"
