"""Fits the constants of a kernel class to measured points: robust least squares of log(modelled / measured)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from microbench.errors import UsageError
from microbench.validate.points import Point
from synthetic_models import Gpu, KernelClass, kernel_ns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

SOFT: Final = 0.1
"""Errors beyond 10 % count linearly, not squared: a few odd kernels must not bend the fit."""
STEPS: Final = 200
DIGITS: Final = 3
START: Final = {"compute": 0.6, "memory": 0.6, "floor_ns": 5_000, "depth_ns": 300, "serial": 0.5, "ramp": 0.9}


def fit(gpu: Gpu, name: str, free: Sequence[str], points: Sequence[Point]) -> KernelClass:
    """The class `name` of `gpu` with its constants `free` fitted from START, rounded to three digits; the others stay.

    The first kernel of each point belongs to the class; what its other kernels take is modelled and taken off. Raises
    UsageError for too few points.
    """
    import numpy as np

    if len(points) < 4 * len(free):
        raise UsageError(f"{len(points)} points are too few to fit {len(free)} constants of {name} of {gpu.name}")
    start = with_constants(getattr(gpu, name), {constant: START[constant] for constant in free})
    first = [point.kernels[0] for point in points]
    memory = np.array([(k.read_bytes + k.write_bytes) / gpu.bandwidth * 1e9 for k in first])
    compute = np.array([k.flops / gpu.bf16_flops * 1e9 for k in first])
    doublings = np.log2(1 + np.array([k.k for k in first]) / 64)
    rest = np.array([sum(kernel_ns(gpu, k) for k in point.kernels[1:]) for point in points], dtype=float)
    ns = np.array([point.ns for point in points])
    constant = {field.name: float(getattr(start, field.name)) for field in fields(start)}
    shares = [name for name in free if not name.endswith("_ns")]
    top = np.array([0.0 if name in shares else np.inf for name in free])

    def errors(logs: Array) -> Array:
        here = constant | dict(zip(free, np.exp(logs).tolist(), strict=True))
        return np.asarray(np.log((launches_ns(here, memory, compute, doublings) + rest) / ns))

    found = np.exp(_minimum(errors, np.log([constant[name] for name in free]), top))
    values = {name: float(f"{value:.{DIGITS}g}") for name, value in zip(free, found.tolist(), strict=True)}
    return with_constants(start, values)


def with_constants(limits: KernelClass, constants: Mapping[str, float]) -> KernelClass:
    """`limits` with these constants, times rounded to whole ns."""
    changes: dict[str, Any] = {name: round(v) if name.endswith("_ns") else v for name, v in constants.items()}
    return replace(limits, **changes)


def launches_ns(constant: dict[str, float], memory: Array, compute: Array, doublings: Array) -> Array:
    """KernelClass.launch_ns for many launches at once."""
    import numpy as np

    start = constant["floor_ns"] + constant["depth_ns"] * doublings
    memory, compute = memory / constant["memory"], compute / constant["compute"]
    longer, shorter = np.maximum(memory, compute), np.minimum(memory, compute)
    work = longer * (1 + (shorter / longer) ** (1 / constant["serial"])) ** constant["serial"]
    return np.asarray((start ** constant["ramp"] + work ** constant["ramp"]) ** (1 / constant["ramp"]))


def _minimum(errors: Callable[[Array], Array], start: Array, top: Array) -> Array:
    """The logs, none above `top`, at which the robust sum of `errors` is least: Levenberg-Marquardt, reweighted.

    The loss of an error e is sqrt(1 + (e / SOFT)^2), so its weight is 1 over that.
    """
    import numpy as np

    def loss(e: Array) -> float:
        return float(np.sqrt(1 + (e / SOFT) ** 2).mean())

    best, damping = np.minimum(start, top), 1e-2
    e = errors(best)
    for _ in range(STEPS):
        slopes = np.stack([(errors(best + h) - e) / 1e-5 for h in np.eye(len(best)) * 1e-5], axis=1)
        weights = 1 / np.sqrt(1 + (e / SOFT) ** 2)
        slope = slopes.T @ (weights * e)
        free = ~((best >= top) & (slope < 0))  # what is at its top and would go above stays there
        if not free.any():
            break
        normal = (slopes.T @ (weights[:, None] * slopes))[np.ix_(free, free)]
        move = np.zeros(len(best))
        move[free] = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slope[free])
        tried = np.minimum(best + np.clip(move, -0.5, 0.5), top)
        gained = loss(e) - loss(found := errors(tried))
        if gained > 0:
            best, e, damping = tried, found, max(damping / 3, 1e-9)
        else:
            damping *= 4
        if 0 < gained < 1e-10 or damping > 1e9:
            break
    return best
