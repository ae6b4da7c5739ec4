"""Calibration recovers what a device of known costs has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from microbench.calibrate import calls
from microbench.calibrate.fit import error, fit_class, line
from microbench.calibrate.gpu import calibrate
from microbench.calibrate.timing import Timed, timed
from microbench.cli import main
from microbench.devices.card import read_card
from microbench.devices.sim import SimDevice
from microbench.devices.spec import LaunchCost
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.target import parse_target
from synthetic_models import Batch, architecture, gpu
from synthetic_models.gpus import kernel_ns
from synthetic_models.kernels import step_kernels


def test_device_time_has_no_host_time_in_it() -> None:
    host = VirtualHost()
    device = SimDevice(host)
    cost = LaunchCost(gil_ns=20_000, free_ns=5_000)
    found = timed(host, device, lambda: device.launch(cost, (1_000,) * 50), repeats=4)
    assert found == Timed(50 * 25_000, 50 * 1_000)


def test_a_host_too_slow_for_the_hold_measures_nothing_rather_than_itself() -> None:
    host = VirtualHost()
    device = SimDevice(host)
    slow = LaunchCost(gil_ns=200_000_000, free_ns=0)
    found = timed(host, device, lambda: device.launch(slow, (1_000,) * 2), repeats=3)
    assert found == Timed(400_000_000, None)


def test_copies_give_back_latency_and_bandwidth() -> None:
    host = VirtualHost()
    found = calls.copy_fit(host, SimDevice(host, copy_latency_ns=9_000, copy_bytes_per_s=40e9))
    assert found.latency_ns == pytest.approx(9_000, abs=30)
    assert found.bytes_per_s == pytest.approx(40e9, rel=0.01)


@pytest.mark.parametrize(("exclusive", "ratio"), [(False, 1.0), (True, 2.0)])
def test_streams_that_wait_for_each_other_are_told_from_those_that_do_not(exclusive: bool, ratio: float) -> None:
    host = VirtualHost()
    assert calls.interference(host, SimDevice(host, exclusive=exclusive)) == pytest.approx(ratio, abs=0.01)


def test_launch_latency_is_about_the_devices_own() -> None:
    host = RealHost()
    samples = calls.launch_latency_ns(host, SimDevice(host, launch_latency_ns=300_000), repeats=10)
    assert min(samples) >= 250_000  # from the return of the call, a moment after the device took it
    assert sorted(samples)[5] < 3_000_000


@given(
    offset=st.floats(0, 1e6),
    slope=st.floats(0, 1e3),
    x=st.lists(st.integers(0, 10_000), min_size=2, max_size=12, unique=True),
)
def test_a_line_is_found_again(offset: float, slope: float, x: list[int]) -> None:
    found = line(x, [offset + slope * a for a in x])
    assert found == pytest.approx((offset, slope), rel=1e-6, abs=1e-3)


def test_a_line_withstands_an_outlier_and_needs_two_x() -> None:
    x = list(range(9))
    y = [10.0 + 3 * a for a in x]
    y[4] = 1e9
    assert line(x, y) == pytest.approx((10.0, 3.0))
    with pytest.raises(ValueError, match="two different x"):
        line([1, 1], [2, 3])


@pytest.mark.parametrize("name", ["gemm", "attention", "elementwise"])
def test_a_class_is_fitted_to_a_gpu_of_other_constants(name: str) -> None:
    shipped = gpu("a100-80g")
    limits = getattr(shipped, name)
    changed = {"memory": limits.memory * 0.8, "floor_ns": round(limits.floor_ns * 1.6)}
    truth = replace(shipped, **{name: replace(limits, **changed)})
    kinds = {"gemm": ("gemm",), "attention": ("attention",)}.get(name, ("norm",))
    points = [
        (kernel, float(kernel_ns(truth, kernel)))
        for model in ("qwen2.5-0.5b", "qwen2.5-7b")
        for n in (1, 16, 64, 256)
        for kernel in step_kernels(architecture(model), Batch.decode(n, 2048)).layer
        if kernel.kind in kinds
    ]
    fitted = fit_class(shipped, name, points[::2])
    held_out = points[1::2]
    assert error(shipped, held_out) > 0.1
    assert error(fitted, held_out) < 0.04
    assert fitted.bandwidth == shipped.bandwidth
    assert all(getattr(fitted, other) == getattr(shipped, other) for other in {"gemm", "attention"} - {name})


def test_points_without_a_time_change_nothing() -> None:
    shipped = gpu("h100")
    kernel = step_kernels(architecture("qwen2.5-0.5b"), Batch.decode(1, 1)).layer[1]
    assert fit_class(shipped, "gemm", [(kernel, 0.0)]) is shipped
    assert fit_class(shipped, "gemm", []) is shipped


def test_a_simulated_library_is_walked_whole_and_teaches_the_model_nothing() -> None:
    card = calibrate(parse_target("real+torch:simulated"), seconds=20)
    shipped = gpu("a100-80g")
    assert (card.gpu.gemm, card.gpu.attention, card.gpu.elementwise) == (
        shipped.gemm,
        shipped.attention,
        shipped.elementwise,
    )
    assert card.launch.total_ns > 0
    assert "no GPU" in card.measured["says"]
    assert {row["group"] for row in card.rows} >= {"launch", "graph replay", "streams", "GEMM", "norm"}
    assert [row["note"].split(":")[0] for row in card.rows if row["name"] == "fit"] == ["not fitted"] * 3


def test_the_command_writes_a_file_that_a_target_reads(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    arguments = ["calibrate", "--gpu", "--target", "real+torch:simulated", "--out", str(path), "--seconds", "5"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "no GPU, and no model of one" in " ".join(result.stdout.split())
    assert parse_target(f"virtual+sim:{path}").card == read_card(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "x.json"], "say what to calibrate"),
        (["--gpu", "--out", "x.json", "--target", "real+sim:h100"], "that GPU is a model"),
        (["--gpu", "--out", "x.txt", "--target", "real+torch:simulated"], "ends in .json"),
        (["--gpu", "--out", "no/such/x.json", "--target", "nowhere"], "unknown target"),
        (["--gpu", "--out", "x.json", "--seconds", "nan"], "is not between"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["calibrate", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
