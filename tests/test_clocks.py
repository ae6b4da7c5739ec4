"""Three clocks, slopes, calls and marks: exact on the virtual host, where every figure is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench import costs
from microbench.case import what_if_spec
from microbench.costs import device_costs, marked
from microbench.costs.clocks import clock_rows, measured, null_pair
from microbench.costs.cost import Cost
from microbench.costs.floor import each
from microbench.costs.slopes import KERNEL_NS, launch_slopes, theil_sen
from microbench.costs.stream_calls import CALLS, stream_calls
from microbench.devices.sim import LAUNCH_QUEUE_DEPTH, SimDevice, SimStream
from microbench.devices.spec import LaunchCost
from microbench.devices.torch_cuda import TorchDevice
from microbench.devices.torch_style import SimulatedCuda
from microbench.engines import engine
from microbench.errors import Unavailable
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.nvml import GpuState
from microbench.target import parse_target

LAUNCH = LaunchCost(gil_ns=3_000, free_ns=2_000)
KERNELS = (7_000,) * 10


def simulated(latency_ns: int = 4_000) -> tuple[VirtualHost, SimDevice]:
    host = VirtualHost()
    return host, SimDevice(host, launch_latency_ns=latency_ns)


# -- three clocks ----------------------------------------------------------------------------------------------


def test_each_clock_sees_its_part_only() -> None:
    host, device = simulated()
    clocks = measured(host, device, lambda: device.launch(LAUNCH, KERNELS), times=4)
    assert clocks.submit_ns == (50_000,) * 4
    assert clocks.device_ns == (70_000,) * 4  # back to back: neither launches nor their latency are in it
    assert clocks.completion_ns == (5_000 + 4_000 + 70_000,) * 4  # all but the first launch hide under the kernels
    assert clocks.held == 1.0


@given(st.integers(0, 50_000), st.integers(0, 50_000), st.integers(1, 20), st.integers(0, 20_000))
def test_the_device_clock_holds_no_host_time(gil_ns: int, kernel_ns: int, launches: int, latency_ns: int) -> None:
    host, device = simulated(latency_ns)
    cost = LaunchCost(gil_ns=gil_ns, free_ns=0)
    clocks = measured(host, device, lambda: device.launch(cost, (kernel_ns,) * launches), times=2)
    assert clocks.submit_ns == (gil_ns * launches,) * 2
    assert clocks.device_ns == (kernel_ns * launches,) * 2
    assert all(ns >= max(gil_ns, kernel_ns) * launches for ns in clocks.completion_ns)


def test_work_that_waits_in_itself_can_not_be_held() -> None:
    host, device = simulated()

    def work() -> None:
        device.spin(30_000)
        device.current_stream().synchronize()

    clocks = measured(host, device, work, times=3)
    assert clocks.held == 0.0
    assert clocks.submit_ns == (34_000,) * 3


def test_a_null_pair_is_nothing_on_a_modelled_gpu() -> None:
    rows = null_pair(*simulated(), times=3)
    assert [set(row.samples_ns) for row in rows] == [{0}, {0}, {0}]
    assert [row.clock for row in rows] == [
        "host submit; GPU modelled",
        "device event; GPU modelled",
        "host completion; GPU modelled",
    ]


def test_a_row_is_of_one_thing_and_names_its_clock() -> None:
    host, device = simulated()
    device.modelled = False
    clocks = measured(host, device, lambda: device.launch(LAUNCH, KERNELS), times=2)
    rows = clock_rows(device, clocks, group="g", variant="v", divide_by=10, launches=10.0)
    assert [(row.variant, row.clock, row.samples_ns[0]) for row in rows] == [
        ("v, host submit", "host submit", 5_000),
        ("v, device event", "device event", 7_000),
        ("v, host completion", "host completion", 7_900),
    ]
    assert [row.facts for row in rows] == [
        {"launches": 10.0},
        {"launches": 10.0, "held_share": 1.0},
        {"launches": 10.0},
    ]


@pytest.mark.parametrize("make", [SimDevice, lambda host: TorchDevice(host, module=SimulatedCuda(SimDevice(host)))])
def test_a_real_host_measures_at_least_what_the_device_takes(make: Callable[[RealHost], Any]) -> None:
    host = RealHost(timeout_s=10)
    device = make(host)
    clocks = measured(host, device, lambda: device.spin(300_000), times=5)
    assert min(clocks.submit_ns) > 0
    assert all(ns == pytest.approx(300_000, rel=0.02) for ns in clocks.device_ns)
    assert all(c >= s + 290_000 for c, s in zip(clocks.completion_ns, clocks.submit_ns, strict=True))


# -- slopes ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=12, unique=True),
    st.integers(-1000, 1000),
    st.integers(-1000, 1000),
)
def test_a_line_is_found_exactly(xs: list[int], slope: int, intercept: int) -> None:
    found = theil_sen([(x, slope * x + intercept) for x in xs])
    assert found == pytest.approx((slope, intercept), abs=1e-6)


@given(st.data())
def test_two_of_nine_points_may_be_anything(data: Any) -> None:
    points = [(float(2**i), 5.0 * 2**i + 40) for i in range(9)]
    for i in data.draw(st.sets(st.integers(0, 8), max_size=2)):
        points[i] = (points[i][0], data.draw(st.floats(-1e9, 1e9)))
    # 21 of the 36 pairs are of sound points, which is more than half.
    assert theil_sen(points)[0] == pytest.approx(5.0)


@pytest.mark.parametrize("points", [[], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)]])
def test_no_line_through_one_x(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="a slope needs points of two different x"):
        theil_sen(points)


def test_what_a_span_costs_once_drops_out() -> None:
    profile = engine("sglang-0.4.0.post1")
    eager = what_if_spec(profile, gpu_ns=1_000_000, launches=100, launch=LAUNCH)
    counts = (1, 2, 4, 8)
    submit, on_device = launch_slopes(*simulated(), eager, counts=counts, rounds=3)
    assert (set(submit.samples_ns), set(on_device.samples_ns)) == ({5_000}, {KERNEL_NS})
    assert submit.facts == {"fixed_us": 0.0, "kernel_us": KERNEL_NS / 1e3, "most": 8.0}
    graph = dataclasses.replace(eager, graph=LaunchCost(gil_ns=1_000, free_ns=9_000))
    submit, on_device = launch_slopes(*simulated(), graph, counts=counts, rounds=3)
    assert (set(submit.samples_ns), set(on_device.samples_ns)) == ({0}, {KERNEL_NS})
    assert submit.facts["fixed_us"] == 10.0
    assert submit.variant == "one more node of a graph, host submit"


def test_never_near_a_full_launch_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    enqueue = SimDevice._enqueue

    def noted(device: SimDevice, stream: SimStream, at_ns: int, duration_ns: int) -> int:
        nonlocal most
        most = max(most, len(stream.pending))
        return enqueue(device, stream, at_ns, duration_ns)

    monkeypatch.setattr(SimDevice, "_enqueue", noted)
    profile = engine("sglang-0.4.0.post1")
    launch_slopes(*simulated(), what_if_spec(profile, gpu_ns=1, launches=1, launch=LAUNCH), rounds=2)
    assert 100 < most < 0.9 * LAUNCH_QUEUE_DEPTH


# -- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [SimDevice, lambda host: TorchDevice(host, module=SimulatedCuda(SimDevice(host)))])
def test_every_call_has_its_row(make: Callable[[RealHost], Any]) -> None:
    host = RealHost(timeout_s=10)
    rows = stream_calls(host, make(host), "mine", times=10, samples=3)
    assert [row.variant for row in rows] == [f"mine: {call}" for call in CALLS]
    assert all(min(row.samples_ns) > 0 for row in rows)
    assert rows[-1].facts["mean_us"] > 0


def test_a_run_of_calls_starts_when_the_one_before_is_gone() -> None:
    log: list[str] = []
    samples = each(lambda: log.append("call"), times=2, samples=2, settle=lambda: log.append("settle"))
    assert log == ["settle", "call", "call"] * 2
    assert len(samples) == 2


# -- marks and the whole list ----------------------------------------------------------------------------------


class Gpu:
    """A device whose readings are given."""

    def __init__(self, *readings: GpuState | None, noted: tuple[str, ...] = ()) -> None:
        self.readings, self.noted = iter(readings), noted

    def gpu_state(self) -> GpuState | None:
        return next(self.readings)

    def notes(self) -> tuple[str, ...]:
        return self.noted


ROW = Cost(group="g", variant="v", samples_ns=(1, 2, 3))
FAST = GpuState(sm_clock_mhz=1980, sm_clock_max_mhz=1980, throttle_bits=0)


def test_rows_of_a_throttled_gpu_are_marked() -> None:
    device: Any = Gpu(FAST, dataclasses.replace(FAST, throttle_bits=4))
    rows = marked(device, lambda: [ROW, ROW])
    assert [row.marks for row in rows] == [("throttled: power cap",)] * 2
    assert rows[0].to_json()["marks"] == ["throttled: power cap"]
    assert marked(Gpu(FAST, FAST), lambda: [ROW]) == [ROW]  # type: ignore[arg-type]
    assert marked(Gpu(None, None), lambda: [ROW]) == [ROW]  # type: ignore[arg-type]
    assert ROW.to_json()["marks"] == []
    (row,) = marked(Gpu(FAST, FAST, noted=("MIG slice 1g.10gb",)), lambda: [ROW])  # type: ignore[arg-type]
    assert row.marks == ("MIG slice 1g.10gb",)


def test_a_modelled_gpu_has_no_state_to_be_marked_by() -> None:
    assert marked(SimDevice(VirtualHost()), lambda: [ROW]) == [ROW]


def test_the_device_costs_are_of_their_target_and_start_with_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microbench.costs.copy_done.SIZES_BYTES", (4,))
    monkeypatch.setattr("microbench.costs.event_wait.MODES", ("spin",))
    free = LaunchCost(gil_ns=0, free_ns=0)
    profile = dataclasses.replace(engine("sglang-0.4.0.post1"), launch=free, graph_launch=free)
    rows = list(device_costs(parse_target("real+sim:a100-80g"), profile))
    assert list(dict.fromkeys(row.group for row in rows)) == [
        "noise floor",
        "null event pair",
        "stream and event calls",
        "event wait",
        "copy_done",
        "kernel launch",
        "slope over N launches",
    ]
    assert len({(row.group, row.variant) for row in rows}) == len(rows)
    assert {row.clock for row in rows if row.group not in ("noise floor", "stream and event calls")} == {
        f"{clock}; GPU modelled" for clock in ("host submit", "device event", "host completion")
    }


def test_a_library_that_is_not_there_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: Any) -> Any:
        raise Unavailable("planted")

    monkeypatch.setattr("microbench.target.open_target", refuse)
    assert costs.calls_of(parse_target("real+torch"), "cupy") == []


def test_both_libraries_stand_side_by_side() -> None:
    target = parse_target("real+torch:simulated")
    rows = [row for library in ("torch", "cupy") for row in costs.calls_of(target, library)]
    assert [row.variant for row in rows] == [f"{library}: {call}" for library in ("torch", "cupy") for call in CALLS]
