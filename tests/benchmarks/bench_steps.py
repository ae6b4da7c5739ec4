"""Whole decode steps of Qwen2.5 0.5B and 3B under each scheduler, measured interleaved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from microbench.engines import engine
from microbench.engines.prices import HostProfile
from microbench.measure import Budget, Sampled, sample
from microbench.schedulers import SCHEDULERS
from microbench.sweep import Point, point_case
from microbench.target import Target
from synthetic_models import architecture, gpu

MODELS = ("qwen2.5-0.5b", "qwen2.5-3b")
BATCHES = (32, 200)
ENGINE = "sglang-0.4.0.post1"


@pytest.fixture(scope="module")
def sampled(target: Target, profile: HostProfile) -> Callable[[str, int], Sampled]:
    """One interleaved measurement of all schedulers for each model and batch, made on first use."""
    made: dict[tuple[str, int], Sampled] = {}

    def get(model: str, batch: int) -> Sampled:
        if (model, batch) not in made:
            card = target.gpu or gpu("a100-80g")
            case = point_case(Point(architecture=architecture(model), batch=batch), target, engine(ENGINE), card)
            made[model, batch] = sample(
                case, tuple(SCHEDULERS), budget=Budget(seconds=15, steps=8, max_rounds=10), profile=profile
            )
        return made[model, batch]

    return get


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", MODELS)
def test_step(
    benchmark: object,
    report: Callable[..., None],
    sampled: Callable[[str, int], Sampled],
    model: str,
    batch: int,
    scheduler: str,
) -> None:
    benchmark.group = f"8 decode step, {model}, batch {batch}, {ENGINE}"  # type: ignore[attr-defined]
    found = sampled(model, batch)
    busy_ns = found.busy_ns(scheduler)
    extra: dict[str, object] = {f"host_{k}_ms": v / 1e6 for k, v in found.host_ns(scheduler).items()}
    if scheduler != "run_to_completion":
        ratio = found.ratio("run_to_completion", scheduler)
        extra |= {
            "step_ratio_to_run_to_completion": ratio.value,
            "step_ratio_interval": [ratio.low, ratio.high],
            "verdict": str(found.verdict("run_to_completion", scheduler)),
        }
    report(
        [b.step_ns for b in found.blocks[scheduler]],
        engine=ENGINE,
        model=model,
        batch=batch,
        scheduler=scheduler,
        gpu_busy_ms=None if busy_ns is None else busy_ns / 1e6,
        **extra,
    )
