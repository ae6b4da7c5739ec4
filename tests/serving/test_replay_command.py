"""`microbench replay`: what it prints and writes, and one line for each bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from microbench.cli import main

FEW = ("--num-prompts", "4", "--random-input", "40", "--random-output", "6")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["replay", *args])


def test_it_prints_a_block_a_scheduler_and_says_that_it_is_computed() -> None:
    result = call(*FEW)
    assert result.exit_code == 0, result.output
    assert result.output.count(" Serving Benchmark Result ") == 2
    assert result.output.count("virtual host (computed), modelled GPU a100-80g") == 3


def test_json_is_one_strict_document_and_rows_name_their_target() -> None:
    result = call(*FEW, "--json", "--scheduler", "run_to_completion,overlap_loop", "--gpu", "h100")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(result.output.splitlines()[-1], parse_constant=refuse)
    assert [r["scheduler"] for r in document["results"]] == ["run_to_completion", "overlap_loop"]
    assert {(r["target"], r["modelled"]) for r in document["results"]} == {("virtual+sim:h100", True)}
    off, on = document["results"]
    assert document["ratios"]["overlap_loop"]["duration"] == pytest.approx(on["duration"] / off["duration"])


def test_lines_are_appended_for_scripts_that_read_the_benchmarks_file(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text('{"backend": "before"}')
    assert call(*FEW, "--output-file", str(file)).exit_code == 0
    first, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert first == {"backend": "before"}
    assert [line["backend"] for line in lines] == ["sglang", "sglang"]
    assert all(line["request_rate"] == float("inf") and line["completed"] == 4 for line in lines)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--engine", "nope"), "unknown engine 'nope'; known:"),
        (("--scheduler", "nope"), "unknown scheduler 'nope'; known:"),
        (("--scheduler", "overlap_loop,overlap_loop"), "twice"),
        (("--model", "nope"), "nope"),
        (("--gpu", "nope"), "nope"),
        (("--target", "nope"), "unknown target 'nope'; known:"),
        (("--target", "virtual+sim:h100", "--gpu", "a100-80g"), "name one"),
        (("--target", "real+torch"), "needs a modelled GPU"),
        (("--num-prompts", "0"), "num-prompts 0"),
        (("--request-rate", "nan"), "request-rate nan"),
        (("--request-rate", "-3"), "request-rate -3"),
        (("--random-range-ratio", "2"), "random-range-ratio 2"),
        (("--max-concurrency", "0"), "max-concurrency 0"),
        (("--seed", "-1"), "seed -1"),
        (("--host-speed", "0"), "not between"),
        (("--num-prompts", "x"), "not a valid integer"),
        (("--model", "llama-3.1-70b", "--gpu", "a10g"), "0 fit beside the weights"),
        (("--output-file", "/dev/null/x.jsonl"), "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(args: tuple[str, ...], says: str) -> None:
    result = call(*FEW, *args)
    line = result.output.strip().splitlines()[-1]
    assert (result.exit_code, says in line) == (2, True), result.output
    assert line.startswith("microbench: ")
