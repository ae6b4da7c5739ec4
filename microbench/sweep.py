"""Sweep models and batches on one target: rows of a tidy table, one a scheduler and point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from microbench.case import Case, model_spec
from microbench.devices.spec import LaunchCost
from microbench.engines import EngineProfile, Workload
from microbench.engines.prices import HostProfile
from microbench.errors import Unavailable
from microbench.measure import Budget, Sampled, sample
from microbench.target import Target
from synthetic_models import Architecture, Gpu, max_batch

MEAN_PROMPT = 2048
"""Mean of the founding benchmark's prompt lengths, uniform in 1..4096."""
GENERATED = 512
"""Output tokens each request already has: half of the founding benchmark's mean output, so the middle of its run."""
CONTEXT = MEAN_PROMPT + GENERATED


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model at one decode batch, with its launch cost when it isn't the engine's."""

    architecture: Architecture
    batch: int
    launch: LaunchCost | None = None


def fitting_points(models: Sequence[Architecture], batches: Sequence[int], gpu: Gpu) -> list[Point]:
    """Every model at every batch that fits the GPU's memory."""
    return [Point(architecture=m, batch=b) for m in models for b in batches if b <= max_batch(m, gpu, CONTEXT)]


def point_case(point: Point, target: Target, engine: EngineProfile, gpu: Gpu) -> Case:
    """The decode step of `point` with the founding benchmark's requests in mid-run."""
    spec = model_spec(
        point.architecture,
        gpu,
        engine,
        batch=point.batch,
        context=CONTEXT,
        launch=point.launch,
        card=target.card,
    )
    workload = Workload(requests=point.batch, max_prompt=2 * MEAN_PROMPT, generated=GENERATED)
    return Case(target=target, engine=engine, spec=spec, workload=workload)


def sweep(
    points: Sequence[Point],
    *,
    target: Target,
    engine: EngineProfile,
    gpu: Gpu,
    schedulers: Sequence[str],
    profile: HostProfile | None = None,
    budget: Callable[[int], Budget] = lambda i: Budget(),
    progress: Callable[[float], None] = lambda share: None,
    skip: Callable[[Point, str], None] = lambda point, why: None,
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each point as soon as it is measured. `budget(i)` is asked before point i; `progress` gets 0..1.

    A point that the target can't run (a real GPU's memory) is passed to `skip` with the reason.
    Raises KeyboardInterrupt after the rows of a point that Ctrl-C cut short.
    """
    for i, point in enumerate(points):
        case = point_case(point, target, engine, gpu)
        try:
            sampled = sample(
                case,
                schedulers,
                budget=budget(i),
                profile=profile,
                progress=lambda share, i=i: progress((i + share) / len(points)),  # type: ignore[misc]
            )
        except Unavailable as why:
            skip(point, str(why))
            continue
        yield rows(point, case, sampled, schedulers)
        if sampled.interrupted:
            raise KeyboardInterrupt
        progress((i + 1) / len(points))


def rows(point: Point, case: Case, sampled: Sampled, schedulers: Sequence[str]) -> list[dict[str, Any]]:
    """One row a scheduler; times in ms, ratios against the first scheduler.

    launch_us: what one launch (or replay) was told to cost the host; None on a real GPU, where it costs what it costs.
    """
    base, modelled = schedulers[0], case.target.modelled
    result = []
    for name in schedulers:
        blocks = sampled.blocks[name]
        row: dict[str, Any] = {
            "target": str(case.target),
            "modelled_gpu": modelled,
            "measured_host": case.target.host == "real",
            "engine": case.engine.name,
            "model": point.architecture.name,
            "parameters": point.architecture.parameters,
            "batch": point.batch,
            "context": case.spec.context,
            "launch_mode": "graph" if case.spec.graph else "eager",
            "launch_us": (case.spec.graph or case.spec.launch).total_ns / 1e3 if modelled else None,
            "modelled_gpu_step_ms": case.spec.gpu_ns / 1e6,
            "scheduler": name,
            "step_ms": sampled.step_ns(name) / 1e6,
            "rounds": len(blocks),
            "steps": sum(b.steps for b in blocks),
        }
        busy = sampled.busy_ns(name)
        row["gpu_busy_ms"] = None if busy is None else busy / 1e6
        row |= {f"{segment}_ms": ns / 1e6 for segment, ns in sampled.host_ns(name).items()}
        ratio = None if name == base else sampled.ratio(base, name)
        row |= {
            "ratio": ratio and ratio.value,
            "ratio_low": ratio and ratio.low,
            "ratio_high": ratio and ratio.high,
            "verdict": None if ratio is None else str(sampled.verdict(base, name)),
            "samples_ms": [b.step_ns / 1e6 for b in blocks],
        }
        result.append(row)
    return result
