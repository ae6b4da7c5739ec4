"""A slower or faster host: the same steps as if this machine's CPU had another speed.

On the virtual host every price is multiplied; on the real one each piece of the engine's Python is followed by extra
Python in proportion to the CPU time it took, and launches cost more. A real host can't be made faster. How long a
sleeping thread takes to wake stays on both: that is the kernel and the core's idle state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from microbench.devices.spec import LaunchCost, StepSpec
from microbench.engines import EngineProfile
from microbench.engines.prices import HostProfile, Price
from microbench.errors import UsageError
from microbench.protocols import EngineWork
from microbench.target import Target

_PIECES = ("schedule", "advance", "outputs", "futures", "snapshot", "resolve", "publish", "process", "stream")


def spec_at(spec: StepSpec, speed: float) -> StepSpec:
    """`spec` with launches as a host of `speed` times this one's pays them."""

    return replace(
        spec,
        launch=_launch(spec.launch, speed),
        sample_launch=_launch(spec.sample_launch, speed),
        graph=_launch(spec.graph, speed) if spec.graph else None,
    )


def engine_at(engine: EngineProfile, speed: float) -> EngineProfile:
    """`engine` with launches as a host of `speed` times this one's pays them."""
    return replace(
        engine,
        launch=_launch(engine.launch, speed),
        sample_launch=_launch(engine.sample_launch, speed),
        graph_launch=_launch(engine.graph_launch, speed),
    )


def profile_at(profile: HostProfile, speed: float) -> HostProfile:
    """`profile` of a host of `speed` times its speed: prices, queue operations and signals."""

    def at(price: Price) -> Price:
        return replace(
            price,
            fixed=price.fixed / speed,
            per_request=price.per_request / speed,
            per_prompt_token=price.per_prompt_token / speed,
            per_output_token=price.per_output_token / speed,
            free_ns=round(price.free_ns / speed),
        )

    return replace(
        profile,
        signal_ns=round(profile.signal_ns / speed),
        queue_ns=round(profile.queue_ns / speed),
        prices={e: {name: at(price) for name, price in pieces.items()} for e, pieces in profile.prices.items()},
    )


def slowed(work: EngineWork, speed: float) -> EngineWork:
    """`work` on a host of `speed` < 1 times this one's: each piece takes 1 / speed of its CPU time.

    The extra is Python that holds the GIL, as nearly all of an engine's work does.
    """
    return cast(EngineWork, _SlowedWork(work, 1 / speed - 1))


def check_speed(target: Target, speed: float) -> None:
    """Raise UsageError where a host can't be given this speed."""
    if speed == 1:
        return
    if target.host == "real" and speed > 1:
        raise UsageError(f"a real host can be slowed, not made {speed:g} times as fast; use a virtual+sim target")
    if not target.modelled:
        raise UsageError(f"target {target}: launches cost there what they cost; leave the host speed at 1")


def _launch(cost: LaunchCost, speed: float) -> LaunchCost:
    return LaunchCost(gil_ns=round(cost.gil_ns / speed), free_ns=round(cost.free_ns / speed))


class _SlowedWork:
    def __init__(self, work: EngineWork, extra: float) -> None:
        self._work = work
        for name in _PIECES:
            setattr(self, name, _then_extra(getattr(work, name), extra))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _then_extra(piece: Callable[..., Any], extra: float) -> Callable[..., Any]:
    cpu_ns = time.thread_time_ns

    def call(*args: Any) -> Any:
        start = cpu_ns()
        result = piece(*args)
        now = cpu_ns()
        until = now + round((now - start) * extra)
        while cpu_ns() < until:
            pass
        return result

    return call
