"""Writes an answer into a results folder: tables, manifest, thresholds and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from microbench.answer import Answer, verdict_words
from microbench.records import check_writable, write_json_atomic, write_results
from microbench.stats import median
from microbench.thresholds import thresholds

if TYPE_CHECKING:
    import pandas


LADDERS = ("measured", "grid")
"""Parts of a run whose rows make a ladder of models at the engine's own launch cost."""


_POINT = "model batch launch_mode launch_us modelled_gpu_step_ms scheduler step_ms ratio ratio_low ratio_high verdict"
POINT = tuple(_POINT.split())
"""Columns of a measured point in the JSON document."""


def write_answer(folder: Path, answer: Answer) -> dict[str, Any]:
    """Write everything into `folder`, the manifest last; returns the JSON document of `microbench run`."""
    check_writable(folder)
    question, verdict = answer.question, verdict_words(answer)
    manifest = {
        "kind": "run",
        "partial": answer.partial,
        "error": answer.error,
        "environment": dict(answer.environment),
        "target": str(question.target),
        "target_says": question.target.says,
        "grid_target": str(question.grid_target),
        "engine": question.engine.name,
        "launch_us": question.engine.launch.total_ns / 1e3 if question.target.gpu else None,
        "gpu": question.gpu.name,
        "pair": [m.name for m in question.pair],
        "schedulers": list(question.schedulers),
        "verdict": verdict,
        "skipped": answer.skipped,
        "explained_batch": answer.explained_batch,
        "gains_without": answer.gains_without,
        "noise_floor_us": {c.variant: median(c.samples_ns) / 1e3 for c in answer.floor},
        "host_profile": answer.profile.to_json() if answer.profile else None,
    }
    figures: list[Path] = []
    if answer.rows:
        import pandas

        from plots import draw_all

        figures = draw_all(pandas.DataFrame(answer.rows), manifest, folder)
    rules = thresholds([r for r in answer.rows if r["part"] in LADDERS], question.schedulers[1])
    write_json_atomic(folder / "thresholds.json", rules)
    write_results(folder, answer.rows, manifest)
    return {
        "target": str(question.target),
        "target_says": question.target.says,
        "partial": answer.partial,
        "verdict": verdict,
        "results": str(folder),
        "figures": [str(f) for f in figures],
        "points": [{k: r[k] for k in POINT} for r in answer.rows if r["part"].startswith("measured")],
    }


def frame_thresholds(frame: pandas.DataFrame, manifest: dict[str, Any]) -> dict[str, Any]:
    """The thresholds of a results folder that was read back."""
    kept = frame[frame["part"].isin(LADDERS) & frame["verdict"].notna()]
    rows = [{str(column): value for column, value in row.items()} for row in kept.to_dict("records")]
    return thresholds(rows, manifest["schedulers"][1])
