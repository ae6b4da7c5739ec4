"""Rules for engines: from which model size and GPU step time overlap pays, and the flags that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from microbench.engines import engine
from microbench.stats import Crossover, Verdict, crossover

SCHEMA_VERSION = 1


def crossovers(rows: Iterable[Mapping[str, Any]], scheduler: str) -> list[dict[str, Any]]:
    """One entry for each (part, target, engine, launch cost, batch): the ladder of models and where it crosses.

    rows: those of `sweep` with a verdict for `scheduler`.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["scheduler"] == scheduler:
            key = (row["part"], row["target"], row["engine"], row["launch_mode"], row["launch_us"], row["batch"])
            groups.setdefault(key, []).append(row)
    entries = []
    for (part, target, engine_name, mode, launch_us, batch), group in sorted(groups.items(), key=lambda g: g[0][-1]):
        ladder = sorted(group, key=lambda r: r["parameters"])
        by_size = crossover([(r["parameters"], Verdict(r["verdict"])) for r in ladder])
        entries.append(
            {
                "part": part,
                "target": target,
                "engine": engine_name,
                "launch_mode": mode,
                "launch_us": launch_us,
                "batch": int(batch),
                "scheduler": scheduler,
                "state": str(by_size.state),
                "model_parameters": _bracket(by_size),
                "modelled_gpu_step_ms": _step_bracket(by_size, ladder),
                "rungs": [
                    {
                        "model": r["model"],
                        "parameters": int(r["parameters"]),
                        "modelled_gpu_step_ms": round(float(r["modelled_gpu_step_ms"]), 4),
                        "gain": round(1 - float(r["ratio"]), 4),
                        "interval": [round(1 - float(r["ratio_high"]), 4), round(1 - float(r["ratio_low"]), 4)],
                        "verdict": str(r["verdict"]),
                        "flag": flag(engine_name, Verdict(r["verdict"])),
                    }
                    for r in ladder
                ],
            }
        )
    return entries


def thresholds(rows: Sequence[Mapping[str, Any]], scheduler: str) -> dict[str, Any]:
    """The document written as thresholds.json."""
    return {"schema_version": SCHEMA_VERSION, "entries": crossovers(rows, scheduler)}


def flag(engine_name: str, verdict: Verdict) -> str | None:
    """What to pass to the engine: its switch when overlap loses, None where its default (overlap on) stands."""
    return engine(engine_name).flag if verdict is Verdict.LOSES else None


def _bracket(found: Crossover) -> dict[str, float | None]:
    return {"above": found.lower, "at_most": found.upper}


def _step_bracket(found: Crossover, ladder: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    step = {float(r["parameters"]): round(float(r["modelled_gpu_step_ms"]), 4) for r in ladder}
    return {
        "above": None if found.lower is None else step[found.lower],
        "at_most": None if found.upper is None else step[found.upper],
    }
