"""The command line on bad input: one line that says what is wrong and what is known, exit code 2, nothing measured."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from microbench.cli import main
from microbench.engines import ENGINES
from microbench.records import read_results, write_results
from microbench.schedulers import SCHEDULERS
from synthetic_models import ARCHITECTURES, GPUS, architecture

COMMANDS = ("run", "step", "costs", "advise", "plot", "thresholds")
VIRTUAL = "virtual+sim:a100-80g"
STEP = {"--target": VIRTUAL, "--gpu-ms": "5", "--requests": "8", "--rounds": "1"}
ADVISE = {"--model": "qwen2.5-0.5b", "--gpu": "a100-80g", "--batch": "8", "--context": "512"}
SMALL_MODEL = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 32000,
}


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test in an empty folder; what would measure this machine for seconds is a failure."""

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("measured before the input was refused")

    for name in ("answer.ask", "answer.measure_profile"):
        monkeypatch.setattr(f"microbench.{name}", forbidden)
    monkeypatch.setattr("microbench.measure._interleave", forbidden)
    monkeypatch.chdir(tmp_path)


def call(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def step(**options: str | None) -> Result:
    return call("step", *flat(STEP, options))


def advise(**options: str | None) -> Result:
    return call("advise", *flat(ADVISE, options))


def flat(given: dict[str, str], changes: dict[str, str | None]) -> list[str]:
    """The options of a command, changed; None leaves one out."""
    merged: dict[str, str | None] = given | {f"--{k.replace('_', '-')}": v for k, v in changes.items()}
    return [part for name, value in merged.items() if value is not None for part in (name, value)]


def refused(result: Result, *says: str, code: int = 2) -> str:
    """The one line of a refusal."""
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("microbench: ")
    assert len(lines[0]) > len("microbench: ") + 5
    assert result.exit_code == code
    assert result.stdout == ""
    for text in says:
        assert text in lines[0]
    return lines[0]


# Names


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    refused(advise(model="qwen9"), "qwen9", *ARCHITECTURES)


def test_an_unknown_gpu_is_answered_with_the_known_ones() -> None:
    refused(advise(gpu="voodoo2"), "voodoo2", *GPUS)
    refused(call("run", "--gpu", "voodoo2"), "voodoo2", *GPUS)
    refused(step(target="virtual+sim:voodoo2"), "voodoo2", *GPUS)


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    for result in (advise(engine="ollama"), step(engine="ollama"), call("run", "--engine", "ollama")):
        refused(result, "ollama", *ENGINES)
    refused(call("costs", "--target", "real+sim:a100-80g", "--engine", "ollama"), "ollama", *ENGINES)


def test_an_unknown_scheduler_is_answered_with_the_known_ones() -> None:
    refused(step(scheduler="round_robin"), "round_robin", *SCHEDULERS)


@pytest.mark.parametrize(
    "target", ["", "gpu", "real", "virtual+", "+sim:a100-80g", "real+cuda", "REAL+torch", "real+torch "]
)
def test_an_unknown_target_is_answered_with_the_known_forms(target: str) -> None:
    refused(step(target=target), "virtual+sim:GPU", "real+sim:GPU", "real+torch")


@pytest.mark.parametrize("target", ["virtual+torch", "real+torch:a100-80g", "virtual+sim", "virtual+sim:", "real+sim"])
def test_a_target_that_makes_no_sense_is_answered_with_one_that_does(target: str) -> None:
    refused(step(target=target), "use ")


@pytest.mark.parametrize("name", ["", "\n", "a\nb", "x" * 500, "\x1b[31mred", "é", "--help-me"])
def test_an_odd_name_still_gives_one_line(name: str) -> None:
    line = refused(step(scheduler=name))
    assert "\x1b" not in line
    refused(advise(model=name))
    refused(advise(gpu=name))
    refused(step(engine=name))


@pytest.mark.parametrize("names", ["", ",", " ", "run_to_completion,", "run_to_completion,,overlap_loop"])
def test_an_empty_scheduler_is_refused(names: str) -> None:
    refused(step(scheduler=names), "overlap_loop")


@pytest.mark.parametrize("names", ["overlap_loop,overlap_loop", "overlap_thread, overlap_thread:attribute"])
def test_a_scheduler_named_twice_is_refused(names: str) -> None:
    refused(step(scheduler=names), "twice")


# Numbers


@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "-inf", "1e300", "abc", "", "5ms"])
def test_a_gpu_time_that_is_none_is_refused(value: str) -> None:
    refused(step(gpu_ms=value), "gpu-ms")


@pytest.mark.parametrize("value", ["0", "-5", "8193", "1000000000", "9" * 400, "9" * 5000, "1.5", "nan", "abc", ""])
def test_a_number_of_requests_that_is_none_is_refused(value: str) -> None:
    refused(step(requests=value), "requests")
    refused(advise(batch=value), "batch")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "11", "1e-9", "abc"])
def test_a_switch_interval_that_is_none_is_refused(value: str) -> None:
    refused(step(switch_interval=value), "switch-interval")


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("launches", ["0", "-1", "1000000", "9" * 400]),
        ("launch_gil_us", ["-1", "nan", "inf", "1e9"]),
        ("launch_free_us", ["-1", "nan", "inf", "1e9"]),
        ("graph_launch_us", ["-1", "nan", "inf", "1e9"]),
        ("graph", ["2", "-1", "yes"]),
        ("stream", ["2", "-1", "yes"]),
        ("max_prompt", ["0", "-1", "1000001"]),
        ("generated", ["0", "-1", "1000001"]),
        ("rounds", ["0", "-1", "1001"]),
    ],
)
def test_every_number_of_a_step_has_limits(option: str, values: list[str]) -> None:
    for value in values:
        refused(step(**{option: value}), option.replace("_", "-"))


@pytest.mark.parametrize(
    ("option", "values"),
    [("context", ["0", "-1", "9" * 400, "10000001"]), ("seconds", ["0", "-1", "nan", "inf", "abc"])],
)
def test_every_number_of_an_advice_has_limits(option: str, values: list[str]) -> None:
    for value in values:
        refused(advise(**{option: value}), option)


def test_measuring_time_has_limits() -> None:
    for value in ("0", "nan", "inf", "-3", "1e9", "abc"):
        refused(call("run", "--seconds", value), "seconds")


@pytest.mark.parametrize("missing", ["gpu_ms", "requests"])
def test_a_missing_option_is_named(missing: str) -> None:
    refused(step(**{missing: None}), missing.replace("_", "-"))


@pytest.mark.parametrize("missing", ["model", "gpu", "batch", "context"])
def test_a_missing_option_of_advise_is_named(missing: str) -> None:
    refused(advise(**{missing: None}), f"--{missing}")


@pytest.mark.parametrize(
    "args",
    [("--nope",), ("nope",), ("step", "--nope"), ("plot",), ("plot", "a", "b"), ("thresholds",), ("step", "--gpu-ms")],
)
def test_a_wrong_command_line_is_one_line(args: tuple[str, ...]) -> None:
    refused(call(*args))


def test_a_lone_model_is_refused() -> None:
    refused(call("run", "--model", "qwen2.5-0.5b"), "twice")
    refused(call("run", *("--model", "qwen2.5-0.5b") * 3), "twice")


def test_the_same_model_twice_is_no_pair() -> None:
    refused(call("run", *("--model", "qwen2.5-0.5b") * 2), "model")


def test_the_smallest_and_the_largest_step_allowed_are_computed() -> None:
    small = {"gpu_ms": "0.001", "requests": "1", "launches": "1", "max_prompt": "1", "generated": "1"}
    free = {"launch_gil_us": "0", "launch_free_us": "0", "graph_launch_us": "0", "switch_interval": "1e-6"}
    large = {"gpu_ms": "10000", "requests": "8192", "max_prompt": "1000000", "generated": "1000000"}
    for options in (small, small | free, small | free | {"graph": "1"}, large):
        result = call("step", *flat(STEP, options), "--json")  # type: ignore[arg-type]
        assert result.exit_code == 0, result.stderr
        for found in json.loads(result.stdout)["results"]:
            assert 0 < found["step_ms"] < math.inf


# A model's config.json


def config(folder: Path, content: Any) -> str:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_config_that_is_whole_is_advised_on(tmp_path: Path) -> None:
    result = advise(model=config(tmp_path, SMALL_MODEL))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("field", [k for k in SMALL_MODEL if k != "num_key_value_heads"])
def test_a_config_that_lacks_a_field_names_it(tmp_path: Path, field: str) -> None:
    content = {k: v for k, v in SMALL_MODEL.items() if k != field}
    refused(advise(model=config(tmp_path, content)), field, "config.json")


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "3", "\x00\x01", "[" * 100_000, json.dumps(SMALL_MODEL | {"hidden_size": -1}),
     json.dumps(SMALL_MODEL | {"num_hidden_layers": "4"}), json.dumps(SMALL_MODEL | {"vocab_size": 10**30})],
)  # fmt: skip
def test_a_config_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    refused(advise(model=config(tmp_path, content)), "config.json")


def test_an_encoder_is_refused_as_one(tmp_path: Path) -> None:
    refused(advise(model=config(tmp_path, SMALL_MODEL | {"model_type": "bert"})), "encoder")


def test_a_config_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    refused(advise(model="nowhere/config.json"), "nowhere/config.json")
    (tmp_path / "folder.json").mkdir()
    refused(advise(model="folder.json"), "folder.json")


def test_a_config_in_a_pair_is_checked_before_measuring(tmp_path: Path) -> None:
    bad = config(tmp_path, {})
    refused(call("run", "--model", "qwen2.5-0.5b", "--model", bad), "config.json")


# What doesn't fit


def test_a_batch_that_does_not_fit_says_how_many_do() -> None:
    line = refused(advise(model="qwen2.5-32b", batch="4000", context="8000"), "4000")
    from synthetic_models import gpu, max_batch

    fits = max_batch(architecture("qwen2.5-32b"), gpu("a100-80g"), 8000)
    assert 0 < fits < 4000
    assert str(fits) in line
    assert advise(model="qwen2.5-32b", batch=str(fits), context="8000").exit_code == 0


def test_a_model_that_does_not_fit_at_all_is_refused() -> None:
    refused(advise(model="qwen2.5-0.5b", batch="1", context="10000000"))


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(step(target="real+torch"), "sim:a100-80g")
    refused(advise(target="real+torch"), "sim:a100-80g")
    refused(call("costs", "--target", "real+torch"), "sim:a100-80g")


def test_a_run_on_a_gpu_that_is_not_there_is_refused_before_this_host_is_priced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(call("run", "--target", "real+torch", "--out", "never"), "sim:a100-80g")
    assert not (tmp_path / "never").exists()


def test_a_target_that_models_another_gpu_than_the_one_asked_about_is_refused() -> None:
    # Else kernels of the one are reported under the name of the other.
    refused(advise(gpu="h100", target=VIRTUAL), "h100", "a100-80g")
    refused(call("run", "--gpu", "h100", "--target", "real+sim:a100-80g"), "h100", "a100-80g")


def test_isolated_costs_need_a_real_host() -> None:
    refused(call("costs", "--target", VIRTUAL), "real")


# Folders


@pytest.mark.parametrize("out", ["taken", "taken/results", "taken/../taken"])
def test_an_output_folder_in_whose_place_a_file_lies_is_refused_before_measuring(tmp_path: Path, out: str) -> None:
    (tmp_path / "taken").write_text("mine")
    refused(call("run", "--target", "real+sim:a100-80g", "--out", out), "taken")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no folder")
def test_an_output_folder_that_cannot_be_made_is_refused_before_measuring() -> None:
    refused(call("run", "--target", "real+sim:a100-80g", "--out", "/proc/results"), "/proc/results")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_folder_without_permission_is_refused_before_measuring(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        refused(call("run", "--target", "real+sim:a100-80g", "--out", "here"), "permission")
    finally:
        tmp_path.chmod(0o700)


def results(folder: Path, rows: list[dict[str, Any]] | None = None, **manifest: Any) -> Path:
    write_results(folder, [{"a": 1}] if rows is None else rows, {"environment": {"command": ["x"]}, **manifest})
    return folder


@pytest.mark.parametrize("command", ["plot", "thresholds"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_folder_without_results_is_refused(tmp_path: Path, command: str, as_json: bool) -> None:
    more = ["--json"] if as_json else []
    refused(call(command, "missing", *more), "missing")
    (tmp_path / "empty").mkdir()
    refused(call(command, "empty", *more), "empty")
    (tmp_path / "file").write_text("x")
    refused(call(command, "file", *more), "file")


@pytest.mark.parametrize("command", ["plot", "thresholds"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", "{"),
        ("manifest.json", "[]"),
        ("manifest.json", "{}"),
        ("manifest.json", '{"schema_version": 99}'),
        ("results.parquet", "PAR1"),
        ("results.csv", "a\n2\n"),
        ("results.parquet", None),
        ("results.csv", None),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, command: str, name: str, content: str | None) -> None:
    folder = results(tmp_path / "damaged")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    refused(call(command, "damaged"), "damaged")


@pytest.mark.parametrize("command", ["plot", "thresholds"])
def test_a_table_that_is_no_parquet_file_is_refused_though_its_digest_is_right(tmp_path: Path, command: str) -> None:
    folder = results(tmp_path / "damaged")
    (folder / "results.parquet").write_bytes(b"no table")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["results.parquet"] = hashlib.sha256(b"no table").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    refused(call(command, "damaged"), "damaged")


@pytest.mark.parametrize("command", ["plot", "thresholds"])
def test_results_of_another_kind_are_refused(tmp_path: Path, command: str) -> None:
    results(tmp_path / "other")
    refused(call(command, "other"), "other")


@pytest.mark.parametrize("command", ["plot", "thresholds"])
def test_results_of_a_run_that_was_interrupted_before_its_first_point_are_no_crash(
    tmp_path: Path, command: str
) -> None:
    from microbench.answer import Answer, Question
    from microbench.engines import engine
    from microbench.report import write_answer
    from microbench.target import parse_target
    from synthetic_models import gpu

    pair = (architecture("qwen2.5-0.5b"), architecture("qwen2.5-3b"))
    question = Question(
        target=parse_target("real+sim:a100-80g"),
        gpu=gpu("a100-80g"),
        engine=engine("sglang-0.4.0.post1"),
        ladder=pair,
        pair=pair,
    )
    write_answer(tmp_path / "stopped", Answer(question, partial=True))
    assert read_results(tmp_path / "stopped")[1]["partial"] is True
    result = call(command, "stopped")
    if result.exit_code:
        refused(result, "stopped")


# Help and JSON


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example_that_calls_it(command: str, flag: str) -> None:
    result = call(command, flag)
    assert result.exit_code == 0
    after = result.stdout.partition("Example:")[2].split()
    assert after[:2] == ["microbench", command]


def all_commands() -> dict[str, click.Command]:
    assert isinstance(main, click.Group)
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    assert set(found) >= set(COMMANDS)
    return {name: command for name, command in found.items() if command is not None}


def test_the_help_lists_every_command() -> None:
    result = call("--help")
    assert result.exit_code == 0
    for name, command in all_commands().items():
        assert name in result.stdout
        assert command.help
        subcommands = command.commands.values() if isinstance(command, click.Group) else [command]
        assert all(c.help and c.epilog for c in subcommands), name


def test_examples_of_advise_and_step_are_command_lines_that_parse() -> None:
    for name in ("advise", "step", "run", "costs"):
        words = call(name, "--help").stdout.partition("Example:")[2].split()
        with all_commands()[name].make_context(name, words[2:]) as context:
            assert context.params


def test_step_prints_one_json_document_last_on_stdout() -> None:
    names = ",".join(SCHEDULERS)
    result = call("step", *flat(STEP, {"scheduler": names}), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout.splitlines()[-1])
    assert document == json.loads(result.stdout)
    assert document["target"] == VIRTUAL
    assert [found["scheduler"] for found in document["results"]] == list(SCHEDULERS)
    for found in document["results"]:
        assert found["step_ms"] >= found["gpu_busy_ms"] == pytest.approx(5.2, abs=0.01)
        assert list(found["host_ms"]) == ["schedule", "launch", "wait", "process", "stream"]
        assert all(ms >= 0 for ms in found["host_ms"].values())


def test_a_computed_step_is_the_same_twice() -> None:
    first, second = (call("step", *flat(STEP, {}), "--json").stdout for _ in range(2))
    assert first == second != ""


def test_advise_prints_one_json_document_last_on_stdout() -> None:
    result = call("advise", *flat(ADVISE, {}), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout.splitlines()[-1])
    keys = {"verdict", "gain", "interval", "deciding_cost", "gpu_step_ms", "step_ms", "flag", "target"}
    assert keys <= set(document)
    assert document["verdict"] in {"pays", "loses", "equal", "inconclusive"}
    assert document["target"] == VIRTUAL
    assert document["gpu_step_ms"] > 0
    low, high = document["interval"]
    assert low <= document["gain"] <= high
    base, overlap = document["step_ms"].values()
    assert document["gain"] == pytest.approx(1 - overlap / base, abs=1e-3)


def test_the_installed_command_refuses_in_one_line_too() -> None:
    script = shutil.which("microbench", path=str(Path(sys.executable).parent))
    command = [script] if script else [sys.executable, "-m", "microbench.cli"]
    for args, says in (
        (["step", "--gpu-ms", "nan", "--requests", "5"], "gpu-ms"),
        (["advise", "--model", "qwen9", "--gpu", "a100-80g", "--batch", "1", "--context", "9"], "qwen9"),
        (["nope"], "nope"),
    ):
        done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("microbench: ")
        assert says in done.stderr
