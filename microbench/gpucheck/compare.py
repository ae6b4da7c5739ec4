"""Modelled against measured: the table that says how far the model of this GPU can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from microbench.stats import median

TARGET_ERROR = 0.10
Row = Mapping[str, Any]


def gpu_steps(measured: Iterable[Row], modelled: Iterable[Row]) -> list[dict[str, Any]]:
    """GPU time of a step by model and batch: measured by events, by the calibrated model and by the shipped one."""
    calibrated = {(r["model"], r["batch"]): float(r["modelled_gpu_step_ms"]) for r in modelled}
    table = []
    for row in measured:
        ms, found = row["gpu_step_ms"], calibrated.get((row["model"], row["batch"]))
        table.append(
            {
                "model": row["model"],
                "batch": row["batch"],
                "launch_mode": row["launch_mode"],
                "measured_ms": ms,
                "calibrated_model_ms": found,
                "calibrated_error": _error(found, ms),
                "shipped_model_ms": row["shipped_model_ms"],
                "shipped_error": _error(row["shipped_model_ms"], ms),
            }
        )
    return table


def steps(measured: Iterable[Row], modelled: Iterable[Row]) -> list[dict[str, Any]]:
    """Step time by model, batch and scheduler on the GPU, and on the same host with the GPU modelled."""

    def key(row: Row) -> tuple[Any, ...]:
        return row["model"], row["batch"], row["scheduler"]

    twins = {key(r): r for r in modelled}
    table = []
    for row in measured:
        twin = twins.get(key(row))
        ms = None if twin is None else float(twin["step_ms"])
        table.append(
            {
                "model": row["model"],
                "batch": row["batch"],
                "scheduler": row["scheduler"],
                "launch_mode": row["launch_mode"],
                "measured_ms": row["step_ms"],
                "modelled_ms": ms,
                "error": _error(ms, row["step_ms"]),
                "measured_verdict": row["verdict"],
                "modelled_verdict": twin and twin["verdict"],
            }
        )
    return table


def score(table: Sequence[Row], column: str) -> dict[str, Any]:
    """Median of |error|, and whether it meets the target; None where nothing was compared."""
    errors = [abs(float(r[column])) for r in table if r[column] is not None]
    if not errors:
        return {"n": 0, "median_error": None, "target": TARGET_ERROR, "met": None}
    middle = median(errors)
    return {"n": len(errors), "median_error": middle, "target": TARGET_ERROR, "met": middle <= TARGET_ERROR}


def _error(modelled: float | None, measured: float | None) -> float | None:
    """None where one of the two is missing, or nothing took time, as on a simulated library."""
    return float(modelled) / measured - 1 if modelled is not None and measured else None
