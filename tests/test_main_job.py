"""The main job end to end on the virtual host, its files, figures and words; and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from microbench import answer as answer_module
from microbench.advice import advice
from microbench.answer import Question, ask, verdict_words
from microbench.cli import main
from microbench.engines import engine
from microbench.engines.prices import shipped_profile
from microbench.errors import Unavailable
from microbench.records import read_results
from microbench.report import write_answer
from microbench.target import parse_target
from synthetic_models import DoesNotFit, architecture, gpu

FILES = {
    "results.parquet",
    "results.csv",
    "manifest.json",
    "thresholds.json",
    "crossover.png",
    "crossover.svg",
    "costs.png",
    "costs.svg",
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "measure_profile", lambda engines: shipped_profile())
    monkeypatch.setattr(answer_module, "GRID_BATCHES", (1, 32, 160, 200, 500))
    monkeypatch.setattr(answer_module, "LAUNCH_US", (10, 25, 100))


def question(**changes: Any) -> Question:
    small, large = architecture("qwen2.5-0.5b"), architecture("qwen2.5-3b")
    given: dict[str, Any] = {
        "target": parse_target("virtual+sim:a100-80g"),
        "gpu": gpu("a100-80g"),
        "engine": engine("sglang-0.4.0.post1"),
        "ladder": (small, architecture("qwen2.5-1.5b"), large),
        "pair": (small, large),
        "measured_batches": (32, 200),
    }
    return Question(**{**given, **changes})


def test_the_answer_is_written_and_reads_back(tmp_path: Path) -> None:
    answer = ask(question())
    document = write_answer(tmp_path, answer)
    assert {p.name for p in tmp_path.iterdir()} == FILES
    frame, manifest = read_results(tmp_path)
    assert len(frame) == len(answer.rows)
    assert set(frame["part"]) == {"measured", "measured launch", "grid", "launch sweep"}
    assert not manifest["partial"]
    assert manifest["verdict"] == document["verdict"] == verdict_words(answer)
    assert set(frame["target"]) == {"virtual+sim:a100-80g"}
    for name in ("crossover.png", "costs.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    entries = json.loads((tmp_path / "thresholds.json").read_text())["entries"]
    assert {e["batch"] for e in entries} >= {1, 32, 160, 200, 500}


def test_the_words_follow_from_the_rows() -> None:
    answer = ask(question())
    words = " ".join(verdict_words(answer))
    for row in answer.select("measured"):
        assert f"batch {row['batch']} ({(row['ratio_low'] - 1) * 100:+.1f} % to" in words
    for row in answer.rows:
        if row["ratio"] is not None:
            row.update(ratio=1.5, ratio_low=1.4, ratio_high=1.6, verdict="loses")
    words = " ".join(verdict_words(answer))
    assert "qwen2.5-0.5b: overlap loses at batch 32 (+40.0 % to +60.0 %), batch 200 (+40.0 % to +60.0 %)." in words
    assert "no longer surely pays once a launch costs 10 us" in words
    assert "pays at" not in words


def test_an_interrupted_run_keeps_its_points_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    sample = answer_module.sweep.__globals__["sample"]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return sample(*args, **kwargs)

    monkeypatch.setitem(answer_module.sweep.__globals__, "sample", interrupted)
    answer = ask(question())
    write_answer(tmp_path, answer)
    frame, manifest = read_results(tmp_path)
    assert manifest["partial"]
    assert frame[["model", "batch"]].drop_duplicates().values.tolist() == [["qwen2.5-0.5b", 1], ["qwen2.5-0.5b", 32]]
    assert "Interrupted" in manifest["verdict"][-1]
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert CliRunner().invoke(main, ["thresholds", str(tmp_path), "--json"]).exit_code == 0


def test_an_interrupt_within_a_point_keeps_the_point_and_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = answer_module.sweep.__globals__["sample"]

    def cut_short(*args: Any, **kwargs: Any) -> Any:
        return replace(sample(*args, **kwargs), interrupted=True)

    monkeypatch.setitem(answer_module.sweep.__globals__, "sample", cut_short)
    answer = ask(question())
    assert answer.partial
    assert {(r["model"], r["batch"]) for r in answer.rows} == {("qwen2.5-0.5b", 1)}


def test_an_error_in_mid_run_keeps_what_was_measured_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, calls = answer_module.sweep.__globals__["sample"], []

    def fails_later(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of sockets")
        return sample(*args, **kwargs)

    monkeypatch.setitem(answer_module.sweep.__globals__, "sample", fails_later)
    answer = ask(question())
    document = write_answer(tmp_path, answer)
    assert document["partial"]
    assert "Ended early by an error: RuntimeError: out of sockets." in document["verdict"]
    assert len({(r["model"], r["batch"]) for r in read_results(tmp_path)[0].to_dict("records")}) == 2


def test_an_interrupt_while_explaining_keeps_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def stops(*args: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"nothing": 0.1}

    monkeypatch.setattr(answer_module, "without_each_cost", stops)
    answer = ask(question())
    assert answer.partial
    assert not answer.gains_without
    write_answer(tmp_path, answer)
    assert {p.name for p in tmp_path.iterdir()} == FILES


def test_a_point_the_target_cannot_run_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = answer_module.sweep.__globals__["sample"]

    def lacks_memory(case: Any, *args: Any, **kwargs: Any) -> Any:
        if case.workload.requests == 200:
            raise Unavailable("needs 30 GB, 24 GB are free")
        return sample(case, *args, **kwargs)

    monkeypatch.setitem(answer_module.sweep.__globals__, "sample", lacks_memory)
    answer = ask(question(measured_batches=(32,)))
    assert answer.skipped[0] == "qwen2.5-0.5b at batch 200: needs 30 GB, 24 GB are free"
    assert not answer.partial


def test_run_refuses_what_it_cannot_measure(tmp_path: Path) -> None:
    def refused(*args: str) -> str:
        result = CliRunner().invoke(main, ["run", "--out", str(tmp_path / "out"), *args])
        assert result.exit_code == 2
        assert not (tmp_path / "out").exists()
        return result.stderr

    assert "the host must be real" in refused("--target", "virtual+sim:a100-80g")
    assert "of one size" in refused("--model", "qwen2.5-3b", "--model", "Qwen/Qwen2.5-3B-Instruct")
    assert "does not fit" in refused("--gpu", "l4", "--model", "qwen2.5-0.5b", "--model", "qwen2.5-72b")


def test_a_batch_that_does_not_fit_is_left_out_of_the_grid() -> None:
    answer = ask(question(gpu=gpu("l4"), target=parse_target("virtual+sim:l4")))
    assert max(r["batch"] for r in answer.rows if r["model"] == "qwen2.5-3b") == 160


@pytest.mark.parametrize("name", ["sglang-0.5.4", "minimal"])
def test_engines_without_a_second_thread_are_asked_about_their_own_loop(name: str) -> None:
    answer = ask(question(engine=engine(name), measured_batches=(32,)))
    assert {r["scheduler"] for r in answer.rows} == {"run_to_completion", "overlap_loop"}
    assert verdict_words(answer)[0].startswith("Question: does overlap_loop pay against run_to_completion")


def test_plot_and_thresholds_read_a_results_folder(tmp_path: Path) -> None:
    write_answer(tmp_path, ask(question()))
    (tmp_path / "crossover.png").unlink()
    plotted = CliRunner().invoke(main, ["plot", str(tmp_path), "--json"])
    assert plotted.exit_code == 0
    assert str(tmp_path / "crossover.png") in json.loads(plotted.stdout)["figures"]
    shown = CliRunner().invoke(main, ["thresholds", str(tmp_path)])
    assert shown.exit_code == 0
    assert "Where overlap pays: virtual+sim:a100-80g" in shown.stdout


def test_advice_names_verdict_cost_and_flag() -> None:
    found = advice(
        architecture("qwen2.5-3b"),
        gpu("a100-80g"),
        engine("sglang-0.5.4"),
        batch=128,
        context=2048,
        target=parse_target("virtual+sim:a100-80g"),
    )
    assert found["verdict"] == "pays"
    assert found["flag"] is None
    assert found["interval"][0] < found["gain"] < found["interval"][1]
    assert set(found["step_ms"]) == {"run_to_completion", "overlap_loop"}
    assert found["target"] == "virtual+sim:a100-80g"
    assert "measured 20" in found["host_profile"]


def test_advice_refuses_what_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="at most batch"):
        advice(
            architecture("qwen2.5-72b"),
            gpu("a100-80g"),
            engine("sglang-0.5.4"),
            batch=1,
            context=2048,
            target=parse_target("virtual+sim:a100-80g"),
        )
