"""The results folder of a check: one summary of all stages, tables of modelled against measured, and a page to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from microbench.gpucheck import compare
from microbench.gpucheck.parent import Outcome
from microbench.records import write_bytes_atomic, write_json_atomic
from microbench.target import SIMULATED

SCHEMA_VERSION = 1
SUMMARY, PAGE = "summary.json", "README.md"


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything a reader wants first: device, how each stage ended, what failed, tables and their scores."""
    found = {o.stage: o.found for o in outcomes}

    def of(stage: str, kind: str) -> list[dict[str, Any]]:
        return [f for f in found.get(stage, ()) if f.get("kind") == kind]

    gpu_steps = compare.gpu_steps(of("steps", "gpu_step"), of("modelled", "step"))
    steps = compare.steps(of("steps", "step"), of("modelled", "step"))
    checks = of("protocol", "check")
    device = next(iter(of("open", "device")), {})
    simulated = str(device.get("target", "")).endswith(f":{SIMULATED}")
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "gpu-check",
        "device": device.get("name"),
        "target": device.get("target"),
        "target_says": device.get("says"),
        "environment": device.get("environment"),
        "gpu_state": device.get("state"),
        "notes": device.get("notes", []),
        "complete": all(o.state == "done" for o in outcomes),
        "stages": [
            {"stage": o.stage, "state": o.state, "seconds": round(o.seconds, 1), "why": o.why} for o in outcomes
        ],
        "checks": {"held": sum(c["failed"] is None for c in checks), "of": len(checks)},
        "failed_checks": [c for c in checks if c["failed"] is not None],
        "skipped": [f for o in outcomes for f in o.found if f.get("kind") == "skip"],
        "calibration": of("calibrate", "row"),
        "gpu_steps": gpu_steps,
        "steps": steps,
        "scores": {}
        if simulated
        else {
            "gpu step, calibrated model": compare.score(gpu_steps, "calibrated_error"),
            "gpu step, shipped model": compare.score(gpu_steps, "shipped_error"),
            "step under a scheduler, calibrated model": compare.score(steps, "error"),
        },
    }


def write(folder: Path, document: dict[str, Any]) -> None:
    """Write the summary and the page; the stages' own findings are already there."""
    write_json_atomic(folder / SUMMARY, document)
    write_bytes_atomic(folder / PAGE, page(document).encode())


def page(document: dict[str, Any]) -> str:
    """The summary as Markdown."""
    environment = document["environment"] or {}
    lines = [
        f"# GPU check: {document['device'] or 'no device'}",
        "",
        f"Target `{document['target']}`: {document['target_says']}. {environment.get('started_utc', '')}, driver "
        f"{environment.get('gpu_driver')}, CUDA {environment.get('cuda_version')}, torch "
        f"{environment.get('torch_version')}, {environment.get('cpu_model')}.",
        "",
        *_table(
            ("stage", "ended", "s", "why"),
            [(s["stage"], s["state"], f"{s['seconds']:g}", s["why"]) for s in document["stages"]],
        ),
        "",
        f"Protocol checks that held: {document['checks']['held']} of {document['checks']['of']}.",
    ]
    lines += [f"* this GPU is a {note}" if "slice" in note else f"* this GPU is {note}" for note in document["notes"]]
    lines += [f"* failed on {c['target']}: {c['check']}: {c['failed']}" for c in document["failed_checks"]]
    lines += [f"* skipped {s['what']}: {s['why']}" for s in document["skipped"]]
    lines += ["", "## Modelled against measured", ""]
    if not document["scores"]:
        lines.append("Nothing is scored: no GPU was measured, only the code was tried.")
    for name, score in document["scores"].items():
        lines.append(f"* {name}: {_score(score)}")
    lines += ["", "GPU time of a step, ms (measured by events around its kernels, host out of the way):", ""]
    lines += _table(
        ("model", "batch", "launch", "measured", "calibrated", "error", "shipped", "error"),
        [
            (
                r["model"], str(r["batch"]), r["launch_mode"], _ms(r["measured_ms"]), _ms(r["calibrated_model_ms"]),
                _percent(r["calibrated_error"]), _ms(r["shipped_model_ms"]), _percent(r["shipped_error"]),
            )
            for r in document["gpu_steps"]
        ],
    )  # fmt: skip
    lines += ["", "Step under each scheduler, ms (on the GPU; on this host with the calibrated GPU modelled):", ""]
    lines += _table(
        ("model", "batch", "launch", "scheduler", "measured", "modelled", "error", "verdicts"),
        [
            (
                r["model"], str(r["batch"]), r["launch_mode"], r["scheduler"], _ms(r["measured_ms"]),
                _ms(r["modelled_ms"]), _percent(r["error"]),
                " / ".join(str(v) for v in (r["measured_verdict"], r["modelled_verdict"]) if v),
            )
            for r in document["steps"]
        ],
    )  # fmt: skip
    lines += ["", "## Calibration", ""]
    lines += _table(
        ("group", "name", "measured", "shipped model", "unit", "clock", "note"),
        [
            (r["group"], r["name"], _figure(r["measured"]), _figure(r["modelled"]), r["unit"], r["clock"], r["note"])
            for r in document["calibration"]
        ],
    )
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return ["(nothing measured)"]
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return head + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def _score(score: dict[str, Any]) -> str:
    if not score["n"]:
        return "nothing compared"
    met = "met" if score["met"] else "missed"
    return f"median error {score['median_error']:.1%} of {score['n']} (target {score['target']:.0%}: {met})"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
