"""gpu-check: stages in processes of their own, what they found kept whatever happens to them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from microbench.cli import main
from microbench.errors import Unavailable
from microbench.gpucheck import compare, parent, results
from microbench.gpucheck.parent import Outcome, run_stages
from microbench.gpucheck.plan import MODELS, STAGES, plan

STAND_IN = """
import json, os, signal, sys, time
stage, folder, seconds, index, dry = sys.argv[1:]
def say(**found): print(json.dumps(found), flush=True)
say(kind="check", check=stage, failed=None)
print("chatter of a library, no JSON", flush=True)
{body}
"""


def stages(folder: Path, body: str, *, seconds: float = 30.0) -> dict[str, Outcome]:
    """The outcomes with a stand-in for the child, which runs `body`."""
    script = folder / "child.py"
    script.write_text(STAND_IN.format(body=body))
    return {o.stage: o for o in run_stages(folder, seconds=seconds, command=(sys.executable, str(script)))}


def test_every_stage_runs_and_its_findings_are_on_disk(tmp_path: Path) -> None:
    outcomes = stages(tmp_path, "")
    assert list(outcomes) == [s.name for s in STAGES]
    assert {o.state for o in outcomes.values()} == {"done"}
    for name, outcome in outcomes.items():
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert (
            [json.loads(line) for line in lines]
            == list(outcome.found)
            == [{"kind": "check", "check": name, "failed": None}]
        )


def test_a_stage_that_fails_costs_only_itself(tmp_path: Path) -> None:
    body = "if stage == 'costs': sys.exit('torch.AcceleratorError: something')"
    outcomes = stages(tmp_path, body)
    assert outcomes["costs"].state == "failed"
    assert outcomes["costs"].why == "torch.AcceleratorError: something"
    assert outcomes["costs"].found
    assert outcomes["steps"].state == "done"


def test_after_a_lost_device_only_what_needs_none_still_runs(tmp_path: Path) -> None:
    body = "if stage == 'calibrate': print('CUDA error: unspecified launch failure', file=sys.stderr); sys.exit(3)"
    outcomes = stages(tmp_path, body)
    assert [o.state for o in outcomes.values()] == ["done", "done", "lost", "not run", "not run", "done"]
    assert outcomes["steps"].why == "the device was lost"
    assert outcomes["calibrate"].why == "CUDA error: unspecified launch failure"


def test_a_stage_that_hangs_is_ended_within_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "GRACE_S", 0.5)
    body = "if stage == 'protocol': signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    monkeypatch.setattr(parent, "KILL_AFTER_S", 0.5)
    outcomes = stages(tmp_path, body, seconds=12)
    assert outcomes["protocol"].state == "timed out"
    assert outcomes["protocol"].found, "what it found before it hung is kept"
    assert outcomes["calibrate"].state == "done"


def test_a_killed_stage_names_the_signal(tmp_path: Path) -> None:
    outcomes = stages(tmp_path, "if stage == 'steps': os.kill(os.getpid(), signal.SIGKILL)")
    assert outcomes["steps"].state == "failed"
    assert outcomes["steps"].why.startswith("ended by signal 9")


def test_no_device_is_one_line_and_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^torch sees no GPU$"):
        stages(tmp_path, "print('torch sees no GPU', file=sys.stderr); sys.exit(2)")
    assert {p.name for p in tmp_path.glob("*.jsonl")} == {"open.jsonl"}


def test_when_the_time_is_up_the_rest_is_not_run(tmp_path: Path) -> None:
    outcomes = stages(tmp_path, "", seconds=0.5)
    assert {o.state for o in outcomes.values()} == {"not run"}
    assert {o.why for o in outcomes.values()} == {"the time is up"}


def test_the_whole_check_is_of_the_models_it_is_for() -> None:
    whole = plan(dry=False, index=2)
    assert [m.name for m in whole.models] == list(MODELS)
    assert (whole.target, whole.libraries) == ("real+torch:2", ("real+torch:2", "real+cupy:2"))
    assert not whole.dry
    assert plan(dry=True).dry
    assert sum(s.share for s in STAGES) == pytest.approx(1)


def test_modelled_is_held_against_measured_and_scored() -> None:
    measured = [
        {"model": "m", "batch": b, "launch_mode": "graph", "gpu_step_ms": 2.0, "shipped_model_ms": 3.0} for b in (1, 2)
    ]
    modelled = [{"model": "m", "batch": 1, "modelled_gpu_step_ms": 2.1}]
    table = compare.gpu_steps(measured, modelled)
    assert [r["calibrated_error"] for r in table] == [pytest.approx(0.05), None]
    assert compare.score(table, "calibrated_error") == {
        "n": 1, "median_error": pytest.approx(0.05), "target": 0.1, "met": True,
    }  # fmt: skip
    assert compare.score(table, "shipped_error")["met"] is False
    assert compare.score([], "error")["met"] is None


def test_a_step_without_a_twin_is_shown_without_an_error() -> None:
    row: dict[str, Any] = {
        "model": "m", "batch": 1, "scheduler": "s", "launch_mode": "eager", "step_ms": 4.0, "verdict": None,
    }  # fmt: skip
    assert compare.steps([row], [])[0]["error"] is None
    assert compare.steps([row], [row | {"step_ms": 5.0}])[0]["error"] == pytest.approx(0.25)


def test_the_page_of_a_check_that_found_nothing_says_so() -> None:
    outcomes = [Outcome(stage=s.name, state="not run", seconds=0, found=(), why="the time is up") for s in STAGES]
    text = results.page(results.summary(outcomes))
    assert text.count("(nothing measured)") == 3
    assert "nothing compared" in text
    assert "the time is up" in text


def test_a_dry_run_walks_the_whole_plan(tmp_path: Path) -> None:
    folder = tmp_path / "check"
    result = CliRunner().invoke(main, ["gpu-check", "--dry-run", "--out", str(folder), "--seconds", "90", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout.splitlines()[-1])
    assert {s["stage"]: s["state"] for s in document["stages"]} == {s.name: "done" for s in STAGES}
    assert document["complete"]
    assert "no GPU, and no model of one" in document["target_says"]
    assert document["checks"]["held"] == document["checks"]["of"] > 10
    assert {r["model"] for r in document["steps"]} == {"tiny"}
    assert all(r["error"] is not None for r in document["steps"])
    assert document["scores"] == {}, "a simulated library is no GPU to score a model against"
    assert "no GPU" in (folder / results.PAGE).read_text()


def test_without_a_gpu_the_check_says_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = CliRunner().invoke(main, ["gpu-check", "--out", str(tmp_path / "check")])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "torch" in result.stderr
