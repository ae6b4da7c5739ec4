"""A slower host: prices, launches and real Python cost in proportion; profiles measured, written and read."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from microbench.calibrate.host import read_profile
from microbench.case import Case, what_if_spec
from microbench.cli import main
from microbench.devices.spec import LaunchCost
from microbench.engines import Workload, engine
from microbench.engines.prices import shipped_profile
from microbench.errors import UsageError
from microbench.measure import Budget, sample
from microbench.speed import profile_at, slowed, spec_at
from microbench.target import parse_target

SGLANG = engine("sglang-0.4.0.post1")


def case(target: str, speed: float) -> Case:
    spec = what_if_spec(SGLANG, gpu_ns=1_000_000, launches=50, launch=LaunchCost(gil_ns=10_000, free_ns=5_000))
    workload = Workload(requests=8, max_prompt=64, generated=8)
    return Case(target=parse_target(target), engine=SGLANG, spec=spec, workload=workload, host_speed=speed)


def step_ns(target: str, speed: float) -> float:
    found = sample(case(target, speed), ["run_to_completion"], budget=Budget(exactly=2, steps=4))
    return found.step_ns("run_to_completion")


def test_a_host_of_half_the_speed_takes_twice_as_long_where_the_gpu_does_not_decide() -> None:
    gpu_free = replace(case("virtual+sim:a100-80g", 1), spec=what_if_spec(
        SGLANG, gpu_ns=1_000, launches=50, launch=LaunchCost(gil_ns=10_000, free_ns=5_000)
    ))  # fmt: skip

    def at(speed: float) -> float:
        found = sample(replace(gpu_free, host_speed=speed), ["run_to_completion"], budget=Budget(exactly=1, steps=4))
        return found.step_ns("run_to_completion")

    assert at(0.5) / at(1.0) == pytest.approx(2.0, rel=0.15)
    assert at(2.0) / at(1.0) == pytest.approx(0.5, rel=0.3)  # sampling on the GPU stays


def test_the_real_host_is_slowed_by_real_work() -> None:
    assert step_ns("real+sim:a100-80g", 0.25) > 1.5 * step_ns("real+sim:a100-80g", 1.0)


def test_a_real_host_is_not_made_faster() -> None:
    with pytest.raises(UsageError, match="not made 2 times as fast"):
        step_ns("real+sim:a100-80g", 2.0)


def test_each_piece_is_followed_by_its_share_of_cpu_time() -> None:
    class Work:
        overlap = True

        def schedule(self) -> str:
            until = time.thread_time_ns() + 5_000_000
            while time.thread_time_ns() < until:
                pass
            return "batch"

        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    work = slowed(Work(), 0.5)
    before = time.thread_time_ns()
    assert work.schedule() == "batch"
    took = time.thread_time_ns() - before
    assert 9_500_000 < took < 15_000_000
    assert work.overlap


def test_speed_one_changes_nothing() -> None:
    profile, spec = shipped_profile(), case("virtual+sim:a100-80g", 1).spec
    assert profile_at(profile, 1.0) == profile
    assert spec_at(spec, 1.0) == spec


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(shipped_profile().to_json()))
    assert read_profile(path) == shipped_profile()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"wake_ns": []}, "wake_ns is [], not a list of times"),
        ({"wake_ns": ["x"]}, "wake_ns is 'x'"),
        ({"queue_ns": -1}, "queue_ns is -1"),
        ({"dispatch_factor": True}, "dispatch_factor is True"),
        ({"prices": {"e": {"schedule": {"fixed": float("nan")}}}}, "fixed of schedule of e is nan"),
        ({"prices": {"e": {"schedule": {"what": 1}}}}, "'what' in the price of schedule of e is unknown"),
        ({"prices": []}, "calibrate --host"),
        ({"surprise": 1}, "the field 'surprise' is unknown"),
    ],
)
def test_a_profile_with_a_wrong_figure_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(shipped_profile().to_json() | change))
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_advice_for_a_slower_host_with_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(shipped_profile().to_json()))
    point = ["--model", "qwen2.5-0.5b", "--gpu", "a100-80g", "--batch", "300", "--context", "512", "--json"]

    def advise(*arguments: str) -> Any:
        result = CliRunner().invoke(main, ["advise", *point, *arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    same, slow = advise("--host-profile", str(path)), advise("--host-speed", "0.25")
    assert same["step_ms"] == advise()["step_ms"]
    assert slow["host_speed"] == 0.25
    assert slow["step_ms"]["run_to_completion"] > 2 * same["step_ms"]["run_to_completion"]


def test_a_profile_without_the_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps(shipped_profile().to_json() | {"prices": {}}))
    point = ["--model", "qwen2.5-0.5b", "--gpu", "a100-80g", "--batch", "3", "--context", "512"]
    result = CliRunner().invoke(main, ["advise", *point, "--host-profile", str(path)])
    assert result.exit_code == 2
    assert "has no prices of sglang-0.5.4; it has none" in result.stderr
