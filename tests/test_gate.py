"""The gate: a planted regression is caught, unchanged runs stay quiet, unlike things are not compared."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from microbench.cli import main
from microbench.errors import UsageError
from microbench.gate import Change, Side, compare, failing, ratio_interval, read_side
from microbench.records import write_results

MACHINE = {"cpu_model": "one", "python_version": "3.11"}


def noisy(seed: int, *, middle: float = 1.0, n: int = 30) -> list[float]:
    """Samples as shared machines give them: a few per cent of spread, and now and then a hiccup."""
    source = random.Random(seed)
    return [middle * source.lognormvariate(0, 0.02) * (1.5 if source.random() < 0.05 else 1) for _ in range(n)]


def side(rows: dict[str, list[float]], name: str = "side") -> Side:
    return Side(Path(name), "seconds", rows, MACHINE)


def test_a_planted_regression_of_5_percent_is_caught() -> None:
    for seed in range(20):
        found = compare(side({"r": noisy(seed)}), side({"r": noisy(seed + 100, middle=1.05)}), tolerance=0.02)
        assert found[0].change is Change.SLOWER, seed
        back = compare(side({"r": noisy(seed + 100, middle=1.05)}), side({"r": noisy(seed)}), tolerance=0.02)
        assert back[0].change is Change.FASTER, seed


def test_unchanged_runs_stay_quiet() -> None:
    changes = [
        compare(side({"r": noisy(seed)}), side({"r": noisy(seed + 1000)}), tolerance=0.02)[0].change
        for seed in range(200)
    ]
    assert Change.SLOWER not in changes
    assert Change.FASTER not in changes
    assert changes.count(Change.EQUAL) > 100


def test_few_samples_decide_nothing() -> None:
    found = compare(side({"r": [1.0] * 5}), side({"r": [2.0] * 50}), tolerance=0.02)
    assert found[0].change is Change.INCONCLUSIVE


@given(
    a=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40),
    b=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40),
)
def test_the_interval_holds_the_ratio_and_is_repeatable(a: list[float], b: list[float]) -> None:
    found = compare(side({"r": a}), side({"r": b}), tolerance=0.02)[0]
    assert found.interval.low <= found.ratio <= found.interval.high
    assert ratio_interval(a, b) == found.interval


@pytest.mark.parametrize("text", ["", "loses", "loses:", "loses:3", "pays:3%", "loses:x%", "loses:-1%", "loses:nan%"])
def test_what_fails_is_said_in_one_form(text: str) -> None:
    with pytest.raises(UsageError, match="give it as loses:3%"):
        failing(text)
    assert failing("loses:3%") == 0.03


def folder(path: Path, *, overlap: float, machine: dict[str, Any] | None = None, slow: float = 1.0) -> Path:
    rows = []
    for name, middle in (("run_to_completion", 10.0), ("overlap_loop", 10.0 * overlap)):
        rows.append(
            {
                "part": "measured",
                "target": "real+sim:a100-80g",
                "model": "m",
                "batch": 8,
                "scheduler": name,
                "measured_host": True,
                "ratio": None if name == "run_to_completion" else overlap,
                "samples_ms": [slow * s for s in noisy(len(name), middle=middle)],
            }
        )
    write_results(path, rows, {"kind": "run", "command": ["test"], "environment": machine or MACHINE})
    return path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_a_slower_machine_is_no_regression_and_a_slower_overlap_is(tmp_path: Path) -> None:
    before = folder(tmp_path / "a", overlap=0.8)
    slow = call(before, folder(tmp_path / "b", overlap=0.8, slow=1.5))
    assert slow.exit_code == 0, slow.output
    regressed = call(before, folder(tmp_path / "c", overlap=0.85), "--json")
    assert regressed.exit_code == 1
    document = json.loads(regressed.stdout)
    assert document["counts"] == {"slower": 1}
    assert document["rows"][0]["ratio"] == pytest.approx(0.85 / 0.8, rel=0.02)


def test_unlike_machines_are_refused_until_told(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", overlap=0.8)
    b = folder(tmp_path / "b", overlap=0.8, machine=MACHINE | {"cpu_model": "another"})
    refused = call(a, b)
    assert refused.exit_code == 2
    assert "CPU: one / another" in refused.stderr
    told = call(a, b, "--unlike")
    assert told.exit_code == 0
    assert "unlike machines: CPU: one / another" in told.stdout


def saved(path: Path, benchmarks: Any) -> Path:
    path.write_text(json.dumps({"benchmarks": benchmarks, "machine_info": {"cpu": {"brand_raw": "one", "count": 2}}}))
    return path


def test_pytest_benchmark_files_are_compared_by_their_times(tmp_path: Path) -> None:
    def of(middle: float, seed: int) -> list[dict[str, Any]]:
        return [{"fullname": "test_x", "stats": {"data": noisy(seed, middle=middle)}}]

    a, b = saved(tmp_path / "a.json", of(1.0, 1)), saved(tmp_path / "b.json", of(1.06, 2))
    assert call(a, b).exit_code == 1
    assert call(a, a).exit_code == 0
    assert call(a, b, "--fail-on", "loses:10%").exit_code == 0
    few = saved(tmp_path / "few.json", [{"fullname": "test_x", "stats": {"data": [1.0, 1.1]}}])
    assert (call(a, few).exit_code, call(a, few, "--strict").exit_code) == (0, 3)


@pytest.mark.parametrize(
    ("benchmarks", "says"),
    [
        ([], "holds no samples"),
        ({}, "not a file of pytest-benchmark"),
        ([{"fullname": "x"}, 5, {"stats": {"data": ["a"]}}, {"stats": {"data": [0]}}], "holds no samples"),
    ],
)
def test_a_file_without_samples_is_refused(tmp_path: Path, benchmarks: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_side(saved(tmp_path / "x.json", benchmarks))


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\x01", "[" * 50_000])
def test_what_is_no_json_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    result = call(path, path)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1


def test_runs_that_share_nothing_are_refused(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.json", [{"fullname": "x", "stats": {"data": [1.0] * 9}}])
    b = saved(tmp_path / "b.json", [{"fullname": "y", "stats": {"data": [1.0] * 9}}])
    assert "share no row" in call(a, b).stderr
    assert "compare two of one kind" in call(a, folder(tmp_path / "f", overlap=0.8), "--unlike").stderr
