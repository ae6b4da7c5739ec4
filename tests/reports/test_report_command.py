"""`microbench report`: tables, JSON, and one line for what can't be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from microbench.cli import main

FOLDER = Path(__file__).parent / "blocks"
ON, OFF = (str(FOLDER / f"sglang-2558-overlap-{way}.txt") for way in ("on", "off"))


def run(*args: str, columns: str = "160") -> Result:
    return CliRunner().invoke(main, ["report", *args], env={"COLUMNS": columns})


def test_read_shows_every_metric_of_few_runs() -> None:
    result = run("read", ON, OFF)
    assert result.exit_code == 0
    for figure in ("69.61", "59.99", "506842", "40437.78", "p99_itl_ms", "not set"):
        assert figure in result.stdout


@pytest.mark.parametrize("columns", ["40", "80", "160"])
def test_no_figure_is_cut_in_a_table_of_many_runs(columns: str) -> None:
    result = run("read", *map(str, sorted(FOLDER.glob("*.txt"))), columns=columns)
    assert result.exit_code == 0
    for figure in ("204746.56", "2359.16", "28390.427", "1114.36"):
        assert figure in result.stdout
    assert "sgl-project-sg…D_sglang0.3.txt: cut off: no closing rule" in result.stdout


def test_read_json(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("", encoding="utf-8")
    result = run("read", ON, str(empty), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    first, second = document["files"]
    assert document["target"] == first["runs"][0]["target"] == "published"
    assert first["runs"][0]["metrics"]["duration"] == 69.61 and first["runs"][0]["truncated"] is False
    assert second == {"source": str(empty), "problems": ["the file is empty"], "runs": []}


def test_names_and_rows_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "[red]x.txt"
    block = Path(ON).read_text(encoding="utf-8").replace("Mean TTFT", "[bold]Mittlere TTFT")
    path.write_text(block, encoding="utf-8")
    result = run("read", str(path))
    assert result.exit_code == 0
    assert "[red]x.txt: unknown row: [bold]Mittlere TTFT (ms):" in result.stdout


def test_compare() -> None:
    result = run("compare", ON, OFF)
    assert result.exit_code == 0
    assert "1.1604" in result.stdout and "+16.0 %" in result.stdout and "worse" in result.stdout
    document = json.loads(run("compare", ON, OFF, "--json").stdout)
    rows = {row["metric"]: row for row in document["metrics"]}
    assert rows["median_itl_ms"]["ratio_on_over_off"] == pytest.approx(31.34 / 27.18)
    assert rows["median_itl_ms"]["verdict"] == "worse" and document["target"] == "published"


def test_compare_two_runs_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    path.write_text(
        "".join(json.dumps({"duration": d, "completed": 5, "mean_ttft_ms": 1.5}) + "\n" for d in (2.0, 4.0)), "utf-8"
    )
    result = run("compare", str(path), str(path))
    assert result.exit_code == 2 and "2 runs in one file; say which" in result.stderr
    document = json.loads(run("compare", "--run", "1,2", str(path), str(path), "--json").stdout)
    assert document["metrics"][0]["ratio_on_over_off"] == 0.5
    same = json.loads(run("compare", "--run", "2", str(path), str(path), "--json").stdout)
    assert same["metrics"][0]["verdict"] == "same"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("read",), "Missing argument 'FILE...'."),
        (("read", "{tmp}"), "{tmp}: a folder; give a file with results"),
        (("read", "{tmp}/nope"), "{tmp}/nope: cannot be read: No such file or directory"),
        (("read", "/dev/zero"), "/dev/zero: not a regular file; give a file with results"),
        (("read", "{tmp}/" + "x" * 5000), "{tmp}/xxxx"),
        (("read", "{tmp}/binary"), "{tmp}/binary: a binary file: no result block and no JSON line in it"),
        (("compare", "{tmp}/binary", "{on}"), "{tmp}/binary: a binary file: no result block and no JSON line in it"),
        (("compare", "{on}"), "Missing argument 'OFF'."),
        (("compare", "{on}", "{on}", "--run", "2"), "{on}: there is no run 2; the last is 1"),
        (
            ("compare", "{on}", "{on}", "--run", "1,2,3"),
            "Invalid value for '--run': '1,2,3' is neither a run such as 2",
        ),
        (("compare", "{on}", "{on}", "--run", "-1"), "Invalid value for '--run': '-1' is neither a run such as 2"),
        (("strange",), "No such command 'strange'."),
    ],
)
def test_bad_input_is_one_line(args: tuple[str, ...], line: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 50)
    result = run(*(arg.format(tmp=tmp_path, on=ON) for arg in args))
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"microbench: {line.format(tmp=tmp_path, on=ON)}")
    assert result.stderr.count("\n") == 1


def test_bare_report_shows_its_help() -> None:
    result = run()
    assert result.exit_code == 2 and "Example:" in result.stdout and "compare" in result.stdout
    for name in ("read", "compare"):
        shown = run(name, "--help")
        assert shown.exit_code == 0 and "--json" in shown.stdout and "Example:" in shown.stdout
