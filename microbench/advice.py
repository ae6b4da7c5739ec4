"""Advice for one model on one GPU: verdict, gain, the cost that decides, the engine's flag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from microbench.case import Case, model_spec
from microbench.engines import EngineProfile, Workload
from microbench.engines.prices import HostProfile, shipped_profile
from microbench.explain import deciding_cost, without_each_cost
from microbench.measure import Budget, sample
from microbench.target import Target
from microbench.thresholds import flag
from synthetic_models import Architecture, Gpu

GENERATED_SHARE = 0.2
"""Share of a request's context that it has generated itself: 512 of 2560 in the founding benchmark's middle."""


def decode_case(
    architecture: Architecture,
    gpu: Gpu,
    engine: EngineProfile,
    *,
    batch: int,
    context: int,
    target: Target,
    host_speed: float = 1.0,
) -> Case:
    """The decode step of `batch` requests of `context` tokens in the mean, a fifth of them generated.

    Raises synthetic_models.DoesNotFit when the batch doesn't fit.
    """
    spec = model_spec(architecture, gpu, engine, batch=batch, context=context, card=target.card)
    generated = max(1, round(context * GENERATED_SHARE))
    workload = Workload(requests=batch, max_prompt=max(1, 2 * (context - generated)), generated=generated)
    return Case(target=target, engine=engine, spec=spec, workload=workload, host_speed=host_speed)


def advice(
    architecture: Architecture,
    gpu: Gpu,
    engine: EngineProfile,
    *,
    batch: int,
    context: int,
    target: Target,
    seconds: float = 10.0,
    profile: HostProfile | None = None,
    host_speed: float = 1.0,
) -> dict[str, Any]:
    """The JSON document of `microbench advise`. Raises synthetic_models.DoesNotFit when the batch doesn't fit."""
    case = decode_case(architecture, gpu, engine, batch=batch, context=context, target=target, host_speed=host_speed)
    spec = case.spec
    base, overlap = engine.schedulers
    profile = profile or shipped_profile()
    sampled = sample(case, (base, overlap), budget=Budget(seconds=seconds), profile=profile)
    ratio, verdict = sampled.ratio(base, overlap), sampled.verdict(base, overlap)
    computed = replace(case, target=replace(target, host="virtual", device="sim", gpu=gpu, index=0, simulated=False))
    gains = without_each_cost(computed, base, overlap, profile)
    return {
        "verdict": str(verdict),
        "gain": round(ratio.gain, 5),
        "interval": [round(ratio.gain_interval.low, 5), round(ratio.gain_interval.high, 5)],
        "deciding_cost": deciding_cost(gains),
        "gain_without": {name: round(gain, 5) for name, gain in gains.items()},
        "gpu_step_ms": round(spec.gpu_ns / 1e6, 4),
        "launch_mode": "graph" if spec.graph else "eager",
        "step_ms": {name: round(sampled.step_ns(name) / 1e6, 4) for name in (base, overlap)},
        "flag": flag(engine.name, verdict),
        "target": str(target),
        "target_says": target.says,
        "explained_on": str(computed.target),
        "host_profile": f"{profile.machine}, measured {profile.measured}",
        "host_speed": host_speed,
    }
