"""Scores the GPU models: on measured kernels that their fit never saw, and on whole decode steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from microbench.errors import UsageError
from microbench.stats import median
from microbench.validate.estimates import Estimate, median_engine
from microbench.validate.fit import fit
from microbench.validate.points import MIB, Point, points
from microbench.validate.tables import OPERATORS, SYSTEMS
from synthetic_models import GPUS, Batch, Gpu, architecture, gpu, kernel_ns, step_time

SMALL_GEMM_WEIGHTS: Final = 4_000_000
LM_HEAD: Final = (50_000, 8_192)
"""A GEMM at least this wide and at most this deep."""
FREE: Final = {
    "gemm": ("gemm", ("compute", "memory", "floor_ns", "depth_ns", "serial")),
    "prefill attention": ("prefill_attention", ("compute", "memory", "floor_ns", "ramp")),
    "decode attention": ("attention", ("memory", "floor_ns", "ramp")),
}
"""What is fitted to an operator: a class of Gpu, its free constants. Prefill first: decode takes its compute share."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """|modelled / measured - 1| of a class of kernels, or of whole steps, on one GPU; targets where there are any."""

    gpu: str
    name: str
    n: int
    median: float
    p90: float
    target_median: float | None = None
    target_p90: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether all targets are met; None without any."""
        if self.target_median is None:
            return None
        return self.median <= self.target_median and (self.target_p90 is None or self.p90 <= self.target_p90)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "met": self.met}


def scores(gpu: Gpu, folder: Path, steps: Sequence[Estimate]) -> tuple[Score, ...]:
    """All scores of `gpu`: kernels on the held-out points of the tables in `folder`, decode forwards on `steps`."""
    found: list[Score] = []
    for operator in OPERATORS:
        found += kernel_scores(gpu, operator, [point for point in points(folder, gpu.name, operator) if point.held_out])
    return (*found, *step_scores(gpu, steps))


def kernel_scores(gpu: Gpu, operator: str, held_out: Sequence[Point]) -> Iterator[Score]:
    """The scores of an operator, whole and by class; classes without points are left out."""
    errors = [
        (abs(sum(kernel_ns(gpu, kernel) for kernel in point.kernels) / point.ns - 1), point) for point in held_out
    ]
    for name, belongs, target in _classes(gpu, operator):
        if some := [error for error, point in errors if belongs(point)]:
            yield _score(gpu, name, some, target)


def step_scores(gpu: Gpu, steps: Iterable[Estimate]) -> Iterator[Score]:
    """The scores of whole decode forwards against every engine's estimate, against their median, and by model."""
    own = [one for one in steps if one.gpu == gpu.name]
    if not own:
        return
    target = (0.08, 0.25) if gpu.name == "a100-80g" else (0.05, 0.15) if gpu.name in ("h100", "h200") else None
    yield _score(gpu, "decode step, each engine", [_step_error(gpu, one) for one in own], target)
    yield _score(gpu, "decode step, median engine", [_step_error(gpu, one) for one in median_engine(own)])
    for model in dict.fromkeys(one.model for one in own):
        yield _score(gpu, f"decode step, {model}", [_step_error(gpu, one) for one in own if one.model == model])


def refit(gpu: Gpu, folder: Path) -> Gpu:
    """`gpu` with its GEMM and attention constants fitted anew to the points in `folder` that are not held out."""
    for operator, (name, free) in FREE.items():
        seen = [point for point in points(folder, gpu.name, operator) if not point.held_out]
        changes: dict[str, Any] = {name: fit(gpu, name, free, seen)}
        gpu = replace(gpu, **changes)
        if name == "prefill_attention":
            gpu = replace(gpu, attention=replace(gpu.attention, compute=gpu.prefill_attention.compute))
    return gpu


def measured_gpus() -> tuple[Gpu, ...]:
    """The GPUs that there are tables of."""
    return tuple(GPUS[name] for name in SYSTEMS)


def constants(gpu: Gpu, found: Iterable[Score]) -> str:
    """The entry of `synthetic_models.fitted.FITTED` that these constants and scores make."""
    lines = [f'    "{gpu.name}": Fitted(']
    for name in ("gemm", "attention", "prefill_attention"):
        limits = getattr(gpu, name)
        given = {
            k: v for k, v in asdict(limits).items() if k in _ALWAYS or v != type(limits).__dataclass_fields__[k].default
        }
        lines.append(f"        {name}=KernelClass({', '.join(f'{k}={v!r}' for k, v in given.items())}),")
    lines.append("        held_out={")
    lines += [
        f'            "{one.name}": Error(n={one.n}, median={one.median:.3f}, p90={one.p90:.3f}),' for one in found
    ]
    return "\n".join([*lines, "        },", "    ),"])


_ALWAYS: Final = ("compute", "memory", "floor_ns")
Target = tuple[float, float | None]


def _classes(gpu: Gpu, operator: str) -> Iterator[tuple[str, Callable[[Point], bool], Target | None]]:
    if operator == "gemm":
        yield "GEMM", lambda point: True, (0.08, None)
        yield "GEMM, memory-bound", lambda point: not _small(point) and not _compute_bound(gpu, point), (0.08, None)
        yield "GEMM, compute-bound", lambda point: not _small(point) and _compute_bound(gpu, point), (0.08, None)
        yield "GEMM, small", _small, (0.08, None)
        yield "LM head", lambda point: point.shape[1] >= LM_HEAD[0] and point.shape[2] <= LM_HEAD[1], None
    elif operator == "decode attention":
        yield "decode attention, KV >= 64 MB", lambda point: point.kv_bytes >= 64 * MIB, (0.06, None)
        yield "decode attention, less KV", lambda point: point.kv_bytes < 64 * MIB, None
        yield "decode attention, head_dim 64", lambda point: point.shape[5] == 64, None
    else:
        yield "prefill attention", lambda point: True, None
        yield "prefill attention, head_dim 64", lambda point: point.shape[5] == 64, None


def _small(point: Point) -> bool:
    return point.shape[1] * point.shape[2] < SMALL_GEMM_WEIGHTS


def _compute_bound(gpu: Gpu, point: Point) -> bool:
    """By the datasheet's peaks."""
    kernel = point.kernels[0]
    return kernel.flops / gpu.bf16_flops > (kernel.read_bytes + kernel.write_bytes) / gpu.bandwidth


def _step_error(gpu: Gpu, one: Estimate) -> float:
    modelled = step_time(architecture(one.model), gpu, Batch.decode(one.batch, one.context)).forward_total_ns
    return abs(modelled / one.ns - 1)


def _score(gpu: Gpu, name: str, errors: Sequence[float], target: Target | None = None) -> Score:
    median_target, p90_target = target or (None, None)
    return Score(
        gpu=gpu.name, name=name, n=len(errors), median=median(errors), p90=p90(errors),
        target_median=median_target, target_p90=p90_target,
    )  # fmt: skip


def p90(errors: Sequence[float]) -> float:
    """The 90th percentile, between the two nearest errors."""
    return errors[0] if len(errors) == 1 else quantiles(errors, n=10, method="inclusive")[-1]


def chosen_gpus(names: Sequence[str]) -> tuple[Gpu, ...]:
    """The named GPUs, all with tables if none is named. Raises UnknownName, or UsageError for one without tables."""
    models = tuple(dict.fromkeys(gpu(name) for name in names)) or measured_gpus()
    for model in models:
        if model.name not in SYSTEMS:
            raise UsageError(
                f"GPU {model.name}: unmeasured, there are no tables to score it on; try {', '.join(SYSTEMS)}"
            )
    return models


def document(found: Mapping[Gpu, Sequence[Score]], folder: Path, fitted: Mapping[str, str]) -> dict[str, Any]:
    """The scores as one JSON document."""
    return {
        "schema_version": 1,
        "kind": "validate gpu",
        "tables": str(folder),
        "refitted": bool(fitted),
        "scores": [one.to_json() for some in found.values() for one in some],
        "constants": dict(fitted),
    }


def show(found: Mapping[Gpu, Sequence[Score]], folder: Path, fitted: Mapping[str, str]) -> None:
    """Print the constants if fitted anew, the score table, and what misses its target."""
    import click

    from microbench.terminal import table

    for text in fitted.values():
        click.echo(text)
    every = [one for some in found.values() for one in some]
    table(
        f"Error of the GPU models on held-out points, constants {'fitted anew' if fitted else 'as shipped'}",
        ("GPU, class", "points", "median", "p90", "target", "met"),
        [
            (f"{one.gpu}, {one.name}", str(one.n), f"{one.median:.1%}", f"{one.p90:.1%}", *_verdict(one))
            for one in every
        ],
    )
    click.echo(f"Tables: {folder}")
    click.echo(
        "Not measured, so not scored: norm, rope, activation, KV write, combine, sampling; l4, l40s, a10g, rtx-4090."
    )
    for one in every:
        if one.met is False:
            click.echo(f"Missed: {one.gpu}, {one.name}: {one.median:.1%} and {one.p90:.1%}, target {_verdict(one)[0]}")


def _verdict(one: Score) -> tuple[str, str]:
    if one.target_median is None:
        return "", ""
    target = f"{one.target_median:.0%}" + (f", p90 {one.target_p90:.0%}" if one.target_p90 is not None else "")
    return target, "yes" if one.met else "no"
