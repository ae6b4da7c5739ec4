"""Predicted pairs: what isn't covered says why, errors are in points of the speed-up, a constant stands beside ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from microbench.cli import main
from microbench.reports.pairs import COLUMNS, Pair, public_pairs
from microbench.validate.reports import Case, Predicted, case_of, predict, score
from microbench.validate.scoreboard import Line, markdown

PAIR = replace(
    public_pairs()[0], id="own", engine="vllm", model="qwen2.5-0.5b", gpu="an H100", gpu_name="h100", gpus=1,
    prompts=8, input_tokens=64.0, output_tokens=16.0, concurrency=None, rate=float("inf"), kind="flag_toggle",
    metric="output_throughput", better="higher", value_on=1.1, value_off=1.0, primary=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "before_after_pr"}, "not a plain toggle"),
        ({"model": ""}, "names no model"),
        ({"engine": "unheard-of"}, "engine unheard-of is not modelled"),
        ({"gpu_name": ""}, "GPU not modelled or not named (an H100)"),
        ({"gpus": 8}, "8 GPUs"),
        ({"gpus": None}, "an unknown number of GPUs"),
        ({"output_tokens": None, "prompts": None}, "gives no output length, number of prompts"),
        ({"rate": None}, "gives no load"),
        ({"model": "a model of one's own"}, "is not modelled"),
    ],
)
def test_a_pair_that_is_not_covered_says_why(change: dict[str, Any], says: str) -> None:
    found = predict(replace(PAIR, **change))
    assert found.speedup is None
    assert says in found.why_not


def test_every_public_pair_is_covered_or_says_why_not() -> None:
    for pair in public_pairs():
        case = case_of(pair)
        assert isinstance(case, Case) or case


def test_a_covered_pair_is_replayed_and_repeatable() -> None:
    found = predict(PAIR)
    assert found.why_not == ""
    assert found == predict(PAIR)
    assert found.speedup is not None
    assert 0.3 < found.speedup < 3
    latency = predict(replace(PAIR, metric="median_tpot_ms", better="lower"))
    assert latency.speedup is not None


def test_a_metric_that_a_replay_has_not_is_not_covered() -> None:
    assert "a replay has no throughput_per_gpu" in predict(replace(PAIR, metric="throughput_per_gpu")).why_not


def predicted(published: float, speedup: float) -> Predicted:
    return Predicted(pair=replace(PAIR, value_on=published), speedup=speedup)


def test_the_score_counts_signs_of_notable_effects_and_sets_a_constant_beside() -> None:
    found = [predicted(1.20, 1.10), predicted(0.90, 1.05), predicted(1.01, 0.99), Predicted(pair=PAIR, why_not="x")]
    pairs = [p.pair for p in found[:3]]
    result = score(found, pairs)
    assert (result["pairs"], result["covered"], result["notable"], result["signs_right"]) == (4, 3, 2, 1)
    assert result["median_error_points"] == pytest.approx(10.0)
    assert result["constant"] == pytest.approx(1.01)
    assert result["constant_signs_right"] == 1
    assert result["constant_median_error_points"] == pytest.approx(11.0)
    assert result["met"] == {"signs": False, "median error": False, "half the constant's error": False}


@given(st.lists(st.tuples(st.floats(0.5, 2), st.floats(0.5, 2)), max_size=20))
def test_a_perfect_prediction_meets_every_target(values: list[tuple[float, float]]) -> None:
    found = [predicted(published, published) for published, _ in values]
    result = score(found, [p.pair for p in found])
    assert result["signs_right"] == result["notable"]
    assert result["met"]["median error"] in (None, True)
    assert all(v is not False for v in result["met"].values())


def test_the_command_reads_ones_own_pairs(tmp_path: Path) -> None:
    def cell(value: Any) -> str:
        return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)

    path = tmp_path / "pairs.csv"
    row = ",".join('"' + cell(getattr(PAIR, name)).replace('"', '""') + '"' for name in COLUMNS)
    path.write_text(",".join(COLUMNS) + "\n" + row + "\n")
    result = CliRunner().invoke(main, ["validate", "reports", "--pairs", str(path), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["score"]["covered"] == 1
    assert "computed" in document["target"]
    shown = CliRunner().invoke(main, ["validate", "reports", "--pairs", str(path)])
    assert "1 of 1 pairs are covered" in shown.stdout
    missing = CliRunner().invoke(main, ["validate", "reports", "--pairs", str(tmp_path / "no.csv")])
    assert (missing.exit_code, len(missing.stderr.strip().splitlines())) == (2, 1)


def test_the_table_of_the_readme_marks_what_is_missed() -> None:
    line = Line(what="a", against="b", n=1, found="c", target="d", met=False, command="e")
    assert "| a | b | 1 | c | d | **missed** |" in markdown([line])
    assert isinstance(PAIR, Pair)
