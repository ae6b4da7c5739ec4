"""Writes an answer into a results folder: tables, manifest, thresholds and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from microbench.answer import Answer, verdict_words
from microbench.environment import environment
from microbench.records import write_json_atomic, write_results
from microbench.stats import median
from microbench.thresholds import thresholds

if TYPE_CHECKING:
    import pandas


LADDERS = ("measured", "grid")
"""Parts of a run whose rows make a ladder of models at the engine's own launch cost."""


def write_answer(folder: Path, answer: Answer) -> dict[str, Any]:
    """Write everything into `folder`; returns the JSON document of `microbench run`."""
    question = answer.question
    manifest = {
        "kind": "run",
        "partial": answer.partial,
        "environment": environment(),
        "target": str(question.target),
        "target_says": question.target.says,
        "grid_target": str(question.grid_target),
        "engine": question.engine.name,
        "launch_us": question.engine.launch.total_ns / 1e3,
        "gpu": question.gpu.name,
        "pair": [m.name for m in question.pair],
        "schedulers": list(question.schedulers),
        "verdict": verdict_words(answer),
        "explained_batch": answer.explained_batch,
        "gains_without": answer.gains_without,
        "noise_floor_us": {c.variant: median(c.samples_ns) / 1e3 for c in answer.floor},
        "host_profile": answer.profile.to_json() if answer.profile else None,
    }
    written = write_results(folder, answer.rows, manifest)
    rules = thresholds([r for r in answer.rows if r["part"] in LADDERS], question.schedulers[1])
    write_json_atomic(folder / "thresholds.json", rules)
    figures: list[Path] = []
    if answer.rows:
        from microbench.records import read_results
        from plots import draw_all

        figures = draw_all(*read_results(folder), folder)
    return {
        "target": str(question.target),
        "partial": answer.partial,
        "verdict": written["verdict"],
        "results": str(folder),
        "figures": [str(f) for f in figures],
        "points": [
            {
                k: r[k]
                for k in (
                    "model",
                    "batch",
                    "launch_us",
                    "gpu_step_ms",
                    "scheduler",
                    "step_ms",
                    "ratio",
                    "ratio_low",
                    "ratio_high",
                    "verdict",
                )
            }
            for r in answer.rows
            if r["part"].startswith("measured")
        ],
    }


def frame_thresholds(frame: pandas.DataFrame, manifest: dict[str, Any]) -> dict[str, Any]:
    """The thresholds of a results folder that was read back."""
    rows = frame[frame["part"].isin(LADDERS) & frame["verdict"].notna()].to_dict("records")
    return thresholds(rows, manifest["schedulers"][1])
