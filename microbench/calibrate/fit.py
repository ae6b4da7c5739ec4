"""Fits: a line through points, and the constants of one class of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import fmean, median

from microbench.costs.slopes import theil_sen
from synthetic_models import Gpu
from synthetic_models.gpus import kernel_ns
from synthetic_models.kernels import Kernel

Point = tuple[Kernel, float]
"""A kernel (all its launches) and the ns it took on the GPU."""
STEPS = (0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 1.01, 1.03, 1.07, 1.18, 1.4, 2.0)


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(offset, slope) of a robust line, neither below 0. Raises ValueError with fewer than two different x."""
    slope, offset = theil_sen(list(zip(x, y, strict=True)))
    return max(offset, 0.0), max(slope, 0.0)


def error(gpu: Gpu, points: Sequence[Point]) -> float:
    """Median of |modelled / measured - 1|."""
    return median(abs(kernel_ns(gpu, kernel) / ns - 1) for kernel, ns in points)


def fit_class(gpu: Gpu, name: str, points: Sequence[Point]) -> Gpu:
    """`gpu` with the constants of its kernel class `name` moved to where they fit `points` best.

    Coordinate descent on the mean |log(modelled / measured)|, starting from the constants it has; shares of a peak stay
    at most 1. Points without a time are left out; without any the class stays as it is.
    """
    points = [(kernel, ns) for kernel, ns in points if ns > 0]
    if not points:
        return gpu

    def loss(candidate: Gpu) -> float:
        return fmean(abs(math.log(max(kernel_ns(candidate, kernel), 1) / ns)) for kernel, ns in points)

    best, lowest, moved = gpu, loss(gpu), True
    while moved:
        moved = False
        for constant in fields(getattr(best, name)):
            for step in STEPS:
                limits = getattr(best, name)
                value = getattr(limits, constant.name)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                changed = round(value * step) if isinstance(value, int) else min(value * step, 1.0)
                candidate = replace(best, **{name: replace(limits, **{constant.name: changed})})
                if (found := loss(candidate)) < lowest * (1 - 1e-4):
                    best, lowest, moved = candidate, found, True
    return best
