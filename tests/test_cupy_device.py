"""CupyDevice over CuPy's names: on the modelled GPU everywhere, and the same bodies on a CUDA GPU."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.devices import cupy_checks, cupy_cuda
from microbench.devices.cupy_cuda import CupyDevice, open_cupy
from microbench.devices.cupy_style import CUDA, CompileException, CUDARuntimeError, SimulatedCupy
from microbench.devices.cupy_words import SLOTS, Words
from microbench.devices.sim import SimDevice
from microbench.devices.spec import LaunchCost, StepSpec
from microbench.devices.torch_cuda import RING, WARM_UP
from microbench.engines import Workload, engine, real_work
from microbench.errors import Unavailable, UsageError
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.schedulers import SCHEDULERS, Run, overlaps
from microbench.trace import Trace
from synthetic_models import Architecture
from synthetic_models.cupy_kernels import KERNELS, SOURCE

US, MS = 1_000, 1_000_000
NO_COST = LaunchCost(gil_ns=0, free_ns=0)
SPINS = StepSpec(forward_ns=(200_000, 300_000, 400_000), sample_ns=(10_000,), launch=NO_COST, sample_launch=NO_COST)
TINY = Architecture(
    name="tiny",
    layers=2,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=64,
    vocab=4096,
    tied_embeddings=False,
)
MODEL = replace(SPINS, architecture=TINY, batch=4, context=64)
SPECS = {
    "spins": replace(SPINS, plan_sync=True),
    "spins, graph": replace(SPINS, graph=NO_COST),
    "model": MODEL,
    "model, graph": replace(MODEL, graph=NO_COST),
}
FEW = ("run_to_completion", "overlap_loop", "overlap_thread:per_batch")
on_a_gpu = (
    pytest.mark.cuda,  # skipped where torch sees no GPU
    pytest.mark.skipif(not importlib.util.find_spec("cupy"), reason="needs CuPy (the extra cuda12 or cuda13)"),
)
INSTEAD = "or measure on a modelled GPU (real+sim:a100-80g)"


@dataclass
class Rows:
    """A batch without an engine."""

    size: int
    input_ids: Any
    seq_lens: Any

    def next_ids(self) -> Any:
        return self.input_ids + 1


def modelled(host: Any, **timelines: Any) -> CupyDevice:
    return CupyDevice(host, module=SimulatedCupy(SimDevice(host, name="modelled", **timelines)), tensor_device="cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def host() -> RealHost:
    return RealHost(timeout_s=10)


@pytest.fixture(params=["modelled", pytest.param("cuda", marks=on_a_gpu)])
def device(request: pytest.FixtureRequest, host: RealHost) -> CupyDevice:
    return modelled(host) if request.param == "modelled" else open_cupy(host)


@pytest.fixture(params=[pytest.param("cuda", marks=on_a_gpu)])
def gpu(host: RealHost) -> CupyDevice:
    return open_cupy(host)


def rows(device: CupyDevice, ids: list[int]) -> Rows:
    input_ids = torch.tensor(ids, device=device.tensor_device)
    return Rows(len(ids), input_ids, torch.full_like(input_ids, 10))


def run_scheduler(host: Any, device: Any, spec: StepSpec, name: str, *, steps: int = 6) -> tuple[list[Any], Trace]:
    """The output tokens of each request, and the trace."""
    work: Any = real_work(
        engine("minimal"), Workload(requests=4, max_prompt=16), overlap=overlaps(name), device=device.tensor_device
    )
    trace = Trace(host.now_ns)
    try:
        SCHEDULERS[name](Run(host, device, device.model(spec), work, trace), steps)
        return [list(request.output_ids) for request in work.all_requests], trace
    finally:
        work.close()


# -- whole runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_schedulers_agree_on_the_tokens(device: CupyDevice, host: RealHost, spec: str) -> None:
    names = SCHEDULERS if spec == "spins" else FEW
    first, *others = (run_scheduler(host, device, SPECS[spec], name)[0] for name in names)
    assert [len(tokens) for tokens in first] == [16 + 6] * 4
    assert others == [first] * len(others)
    if SPECS[spec].architecture is None:
        assert run_scheduler(host, SimDevice(host), SPECS[spec], "run_to_completion")[0] == first


@pytest.mark.parametrize("graph", [None, NO_COST], ids=["eager", "graph"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_takes_the_time_that_it_takes_on_the_modelled_device(name: str, graph: LaunchCost | None) -> None:
    def laps(make: Callable[..., Any]) -> list[Any]:
        host = VirtualHost()
        device = make(
            host, copy_bytes_per_s=1e12
        )  # schedulers count 4 bytes a token, and these have 8: 1 ns either way
        model = device.model(replace(SPINS, graph=graph))
        device.synchronize()
        start = host.now_ns()
        device.model = lambda spec: model
        _, trace = run_scheduler(host, device, SPINS, name)
        return [(track, segment, begin - start, end - start) for track, segment, begin, end in trace.laps]

    expected = laps(SimDevice)
    assert expected[-1][-1] > 6 * SPINS.gpu_ns
    assert laps(modelled) == expected


STREAMS, EVENTS = 3, 3
stream, event = st.integers(0, STREAMS - 1), st.integers(0, EVENTS - 1)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("spin"), stream, st.integers(0, 5 * MS)),
        st.tuples(st.just("record"), stream, event),
        st.tuples(st.just("wait_event"), stream, event),
        st.tuples(st.just("wait_stream"), stream, stream),
        st.tuples(st.just("copy"), stream, st.booleans()),
        st.tuples(st.just("synchronize event"), event, event),
        st.tuples(st.just("synchronize stream"), stream, stream),
        st.tuples(st.just("synchronize"), stream, stream),
        st.tuples(st.just("work"), st.integers(0, 3 * MS), stream),
    ),
    max_size=25,
)


def observed(host: VirtualHost, device: Any, operations: list[Any]) -> list[Any]:
    """What a program sees: after each operation the time, and which streams and events are done; then all times."""
    streams = [device.Stream(priority=-i) for i in range(STREAMS)]
    events = [device.Event(enable_timing=True, blocking=i == 1) for i in range(EVENTS)]
    values = torch.arange(1000)
    seen: list[Any] = []
    start = host.now_ns()

    def body() -> None:
        for event in events:
            event.record()
        for operation, a, b in operations:
            if operation == "work":
                host.spend(a)
            elif operation == "synchronize event":
                events[a].synchronize()
            elif operation == "synchronize":
                device.synchronize()
            elif operation == "synchronize stream":
                streams[a].synchronize()
            elif operation == "wait_event":
                streams[a].wait_event(events[b])
            elif operation == "wait_stream":
                streams[a].wait_stream(streams[b])
            else:
                with device.stream(streams[a]):
                    assert device.current_stream() == streams[a]
                    if operation == "spin":
                        device.spin(b)
                    elif operation == "copy":
                        device.to_host(values, nbytes=values.nbytes, pinned=b)
                    else:
                        events[b].record()
            seen.append((host.now_ns() - start, [s.query() for s in streams], [e.query() for e in events]))
        device.synchronize()
        seen.append([events[0].elapsed_time(event) for event in events])

    host.run({"program": body})
    return seen


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_a_program_sees_what_it_sees_on_the_modelled_device(operations: list[Any]) -> None:
    first, second = VirtualHost(), VirtualHost()
    device = modelled(second)
    device.synchronize()
    assert observed(second, device, operations) == observed(first, SimDevice(first), operations)


# -- models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["spins", "spins, graph"])
def test_a_forward_of_spins_lasts_as_long_as_its_spec_says(device: CupyDevice, spec: str) -> None:
    model = device.model(replace(SPECS[spec], forward_ns=(MS,) * 3))
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    device.spin(20 * MS)  # enqueue the rest behind it
    start.record()
    model.forward(rows(device, [1]))
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(3.0, rel=0.1)


def test_a_plan_that_reads_back_waits_for_the_stream(device: CupyDevice) -> None:
    done, batch = device.Event(), rows(device, [1])
    for plan_sync in (False, True):
        model = device.model(replace(SPINS, plan_sync=plan_sync))
        device.spin(20 * MS)
        done.record()
        model.plan(batch)
        assert done.query() is plan_sync


def test_warming_up_takes_its_place_in_the_current_stream(device: CupyDevice) -> None:
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    device.spin(20 * MS)
    start.record()
    device.prepare(lambda: device.spin(5 * MS), graph=False)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(WARM_UP * 5.0, rel=0.1)


def test_work_that_fails_while_captured_leaves_no_stream_capturing(device: CupyDevice) -> None:
    calls = iter(range(WARM_UP))

    def work() -> None:
        device.spin(US)
        next(calls)

    with pytest.raises(StopIteration):
        device.prepare(work, graph=True)
    replay = device.prepare(lambda: device.spin(MS), graph=True)
    replay()
    device.synchronize()


def test_an_architecture_needs_a_torch_with_cuda(host: RealHost) -> None:
    device = modelled(host)
    device.torch_module = None
    with pytest.raises(Unavailable) as error:
        device.model(MODEL)
    assert str(error.value) == (
        f"tiny runs as torch kernels, and torch sees no GPU; install a CUDA build of torch, {INSTEAD}"
    )
    own = device.Stream()
    with device.stream(own):  # CuPy alone
        device.spin(MS)
        assert device.current_stream() == own
    own.synchronize()


# -- streams, events and copies --------------------------------------------------------------------------------


def test_an_event_times_a_spin(device: CupyDevice) -> None:
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    device.spin(20 * MS)
    start.record()
    device.spin(4 * MS)
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == pytest.approx(4.0, rel=0.1)
    assert device.busy_ns() is None  # type: ignore[func-returns-value]


def test_events_without_timing_or_not_reached_have_no_time(device: CupyDevice) -> None:
    start, plain, end = device.Event(enable_timing=True), device.Event(), device.Event(enable_timing=True)
    start.record()
    plain.record()
    device.spin(50 * MS)
    end.record()
    for other in (plain, end):
        with pytest.raises(RuntimeError):
            start.elapsed_time(other)
    end.synchronize()
    assert start.elapsed_time(end) > 25


def test_streams(device: CupyDevice) -> None:
    outside, urgent, other = device.current_stream(), device.Stream(priority=-1), device.Stream()
    device.synchronize()
    with device.stream(urgent):
        assert device.current_stream() == urgent
        assert device.torch_module.current_stream(device.index) == urgent.torch
        device.spin(50 * MS)
        with device.stream(outside):
            assert device.current_stream() == outside
            assert device.torch_module.current_stream(device.index) == outside.torch
        assert device.current_stream() == urgent
    assert device.current_stream() == outside != urgent
    assert outside.torch == device.torch_module.default_stream(device.index)
    assert len({outside, device.current_stream(), urgent}) == 2
    assert outside.query()
    assert not urgent.query()
    done, same = device.Event(), device.Event()
    other.wait_stream(urgent)
    done.record(other)
    same.wait(other)
    assert not done.query()
    device.synchronize()
    assert done.query()
    assert urgent.query()
    assert urgent.record_event(done) is done


def test_an_event_that_the_current_stream_waits_for(device: CupyDevice) -> None:
    first, done, after = device.Stream(), device.Event(), device.Event()
    with device.stream(first):
        device.spin(20 * MS)
        done.record()
    done.wait()
    after.record()
    assert not after.query()
    after.synchronize()
    assert done.query()


def test_a_priority_that_there_is_none_of(device: CupyDevice) -> None:
    with pytest.raises(UsageError, match=r"^stream priority 7: the nearest that .+ has is 0$"):
        device.Stream(priority=7)


def test_a_range_may_be_entered_again(device: CupyDevice) -> None:
    step = device.range("step")
    for _ in range(2):
        with step:
            device.spin(US)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_holds_the_values_once_copy_done(device: CupyDevice, pinned: bool) -> None:
    shapes = [(torch.uint8, 5, 0), (torch.int32, 5, 1 << 16), (torch.int64, 5, 1 << 40), (torch.int64, 3, 0)]
    for dtype, size, first in (shape for shape in shapes for _ in range(RING)):  # all buffers in each shape
        values = torch.arange(first, first + size, dtype=dtype, device=device.tensor_device)
        device.spin(MS)
        copy = device.to_host(values, nbytes=values.nbytes, pinned=pinned)
        copy_done = device.Event()
        copy_done.record()
        copy_done.synchronize()
        assert copy.tolist() == list(range(first, first + size))


def test_a_copy_of_every_other_value_and_of_nothing_in_particular(device: CupyDevice) -> None:
    values = torch.arange(10, device=device.tensor_device)[::2]
    copies = [device.to_host(values, nbytes=40), device.to_host(None, nbytes=3), device.to_host(None, nbytes=3)]
    device.synchronize()
    assert [copy.tolist() for copy in copies] == [[0, 2, 4, 6, 8], [0, 0, 0], [0, 0, 0]]


def test_a_copy_read_too_late_says_so(device: CupyDevice) -> None:
    copies = [device.to_host(rows(device, [i]).input_ids, nbytes=8) for i in range(RING + 1)]
    device.synchronize()
    assert [copy.tolist() for copy in copies[1:]] == [[i] for i in range(1, RING + 1)]
    with pytest.raises(
        RuntimeError, match=f"^this copy was read too late: its buffer was reused after {RING} more copies$"
    ):
        copies[0].tolist()


def test_a_wait_that_takes_too_long_names_thread_and_event(host: RealHost) -> None:
    device = modelled(host)
    lines: list[str] = []
    device.watchdog.end, device.watchdog.timeout_s = lines.append, 0
    stream, event = device.Stream(), device.Event()
    device.watchdog.period_s = 0.001
    for what, wait in (("CuPy event", event.synchronize), ("CuPy stream", stream.synchronize)):
        with device.stream(stream):
            device.spin(30 * MS)
            event.record()
        waiting = threading.Thread(target=wait, name="waits")
        waiting.start()
        time.sleep(0.005)
        device.watchdog.check()
        waiting.join()
        assert any(f"thread 'waits' waited longer than 0 s for {what} 0x" in line for line in lines)


def test_a_query_of_a_lost_gpu_raises(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    device = modelled(host)
    stream, event = device.Stream(), device.Event()
    for query in ("streamQuery", "eventQuery"):
        monkeypatch.setattr(device.module.cuda.runtime, query, lambda ptr: 719)
    for thing in (stream, event):
        with pytest.raises(CUDARuntimeError) as error:
            thing.query()
        assert error.value.status == 719


# -- timestamps and holds --------------------------------------------------------------------------------------


def test_timestamps_time_what_is_between_them(device: CupyDevice) -> None:
    device.spin(10 * MS)
    first = device.timestamp()
    device.spin(4 * MS)
    second = device.timestamp()
    device.synchronize()
    assert first.ns is not None
    assert second.ns is not None
    assert second.ns - first.ns == pytest.approx(4 * MS, rel=0.1)


@pytest.mark.parametrize("ns", [10 * US, 100 * US, MS, 10 * MS])
def test_spins_last_as_long_as_asked_by_the_global_timer(gpu: CupyDevice, ns: int) -> None:
    gpu.spin(20 * MS)
    stamps = []
    for _ in range(10):
        stamps.append(gpu.timestamp())
        gpu.spin(ns)
    stamps.append(gpu.timestamp())
    gpu.synchronize()
    times = [stamp.ns or 0 for stamp in stamps]
    assert (times[-1] - times[0]) / 10 == pytest.approx(ns, rel=0.1, abs=10 * US)


def test_a_hold_that_nobody_releases_times_out(device: CupyDevice) -> None:
    device.synchronize()
    before = device.timestamp()
    hold = device.hold(5 * MS)
    after = device.timestamp()
    device.synchronize()
    assert hold.timed_out is True
    assert before.ns is not None
    assert after.ns is not None
    assert after.ns - before.ns == pytest.approx(5 * MS, rel=0.1)


def test_a_hold_keeps_the_stream_until_it_is_released(gpu: CupyDevice) -> None:
    stream, start, end = gpu.Stream(), gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    with gpu.stream(stream):
        hold = gpu.hold(5_000 * MS)
        start.record()
        for _ in range(20):
            gpu.spin(100 * US)
        end.record()
    time.sleep(0.05)
    assert not start.query()
    assert hold.timed_out is None
    hold.release()
    end.synchronize()
    assert hold.timed_out is False
    assert start.elapsed_time(end) == pytest.approx(2.0, rel=0.2)


def test_a_hold_whose_flag_is_set_holds_nothing(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    device = modelled(host)
    take = device._words.take

    def released() -> Any:
        slot = take()
        slot[0] = 1
        return slot

    monkeypatch.setattr(device._words, "take", released)
    device.synchronize()
    hold = device.hold(10**12)
    device.synchronize()
    assert hold.timed_out is False


def test_pinned_words_are_not_used_after_they_were_given_away(device: CupyDevice) -> None:
    stamp, hold = device.timestamp(), device.hold(0)
    for _ in range(SLOTS - 2):
        device._words.take()
    device.synchronize()
    assert stamp.ns is not None
    device._words.take()
    late = rf"^this was used too late: its memory was reused after {SLOTS} more timestamps and holds$"
    with pytest.raises(RuntimeError, match=late):
        _ = stamp.ns
    hold.release()
    device._words.take()
    with pytest.raises(RuntimeError, match=late):
        hold.release()


def test_pinned_words_are_zero_when_they_are_taken_again() -> None:
    words = Words(numpy.full(Words.SHAPE, 7, Words.DTYPE))
    for turn in range(2 * SLOTS):
        slot = words.take()
        assert (slot[0], slot[1]) == (0, 0)
        slot[0] = slot[1] = turn
        assert slot.address == words.array[turn % SLOTS].ctypes.data


# -- the module ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not importlib.util.find_spec("cupy"), reason="needs CuPy (the extra cuda12 or cuda13), no GPU")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # CuPy's Stream, without a driver
def test_cupy_has_every_name_that_the_simulated_module_has(host: RealHost) -> None:
    cupy: Any = importlib.import_module("cupy")
    simulated = SimulatedCupy(SimDevice(host))
    cuda = simulated.cuda
    stream = cuda.Stream()
    stream.begin_capture()
    pairs = [
        (cupy, simulated),
        (cupy.cuda, cuda),
        (cupy.cuda.runtime, cuda.runtime),
        (cupy.cuda.nvtx, cuda.nvtx),
        (cupy.cuda.compiler, cuda.compiler),
        (cupy.cuda.Stream, stream),
        (cupy.cuda.Event, cuda.Event()),
        (cupy.cuda.Graph, stream.end_capture()),
        (cupy.RawModule, simulated.RawModule(code="")),
        (cupy.ndarray, simulated.zeros(1, "uint8")),
    ]
    own = {
        "device",
        "torch_cuda",
        "streams",
        "events",
        "capturing",
        "entered",
        "next_event",
        "pointer",
        "current",
        "launch",
    }
    own |= {"timeline", "point", "durations_ns", "ptr"}  # the last one is set when CuPy makes the object
    missing = [
        f"{real}: {name}"
        for real, fake in pairs
        for name in dir(fake)
        if not name.startswith("_") and name not in own and not hasattr(real, name)
    ]
    assert missing == []
    assert cupy.cuda.Graph.launch
    assert "out=None, blocking=True" in cupy.ndarray.get.__doc__
    for call in (
        lambda: cupy.cuda.Stream(non_blocking=True, priority=-1),
        lambda: cupy.cuda.Event(block=True, disable_timing=True),
        lambda: cupy.cuda.alloc_pinned_memory(8),
        lambda: cupy.RawModule(code=SOURCE).get_function(KERNELS[0]),
    ):
        with suppress(RuntimeError):  # without a driver; unknown arguments would be a TypeError
            call()


# -- opening ---------------------------------------------------------------------------------------------------


def refusal(host: RealHost, index: int = 0) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Unavailable) as error:
            open_cupy(host, index)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def cupy(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine whose CuPy has one modelled GPU, and whose torch has none."""
    fake = SimulatedCupy(SimDevice(host, name="modelled"))
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(metadata, "distributions", lambda: distributions("numpy", "cupy-cuda12x"))
    monkeypatch.setattr(cupy_checks, "DEVICE_FILES", "/nowhere/nvidia*")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return fake


def distributions(*names: str) -> Iterator[Any]:
    return iter([SimpleNamespace(name=name) for name in names])


def test_open(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_cupy(host)
    assert (device.name, device.tensor_device, device.module) == ("modelled", "cpu", cupy)
    monkeypatch.setattr(torch, "cuda", cupy.torch_cuda)
    device = open_cupy(host)
    assert (device.tensor_device, device.torch_module) == ("cuda:0", cupy.torch_cuda)


def test_no_cupy(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # type: ignore[arg-type]
    monkeypatch.setattr(metadata, "distributions", lambda: distributions())
    assert refusal(host) == f"CuPy is not installed; install the extra cuda12 or cuda13 (as in .[cuda12]), {INSTEAD}"


def test_a_cupy_that_can_not_be_imported(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise ImportError("\n====\nFailed to import CuPy.") from ImportError("libcudart.so.12: cannot open\nMore")

    monkeypatch.setattr(cupy_checks, "import_module", broken)
    assert refusal(host) == "CuPy can't be imported: libcudart.so.12: cannot open; install it anew"


def test_two_cupys(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ("cupy-cuda13x", "cupyx-not-it", "cupy-cuda12x", "cupy-cuda12x", "torch")
    monkeypatch.setattr(metadata, "distributions", lambda: distributions(*installed))
    assert refusal(host) == (
        "several CuPy packages are installed and overwrite each other (cupy-cuda12x, cupy-cuda13x): uninstall all, "
        "then install the extra cuda12 or cuda13"
    )


def test_rocm(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "is_hip", True, raising=False)
    assert refusal(host) == "this CuPy is built for ROCm, where it has no graphs; use real+torch"


@pytest.mark.parametrize(
    ("driver", "runtime", "line"),
    [
        (0, CUDA, f"CuPy finds no NVIDIA driver; install an NVIDIA driver (nvidia-smi must work), {INSTEAD}"),
        (11080, 12090, "the driver supports CUDA 11.8 and CuPy was built for 12.9; update the driver"),
        (
            12040,
            13010,
            "the driver supports CUDA 12.4 and CuPy was built for 13.1; update the driver, or install the extra cuda12 "
            "instead",
        ),
    ],
)
def test_drivers_that_do_not_do(
    host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch, driver: int, runtime: int, line: str
) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: driver)
    monkeypatch.setattr(cupy.cuda.runtime, "runtimeGetVersion", lambda: runtime)
    assert refusal(host) == line


def test_an_older_minor_version_of_the_driver_does(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: 12020)
    assert open_cupy(host).name == "modelled"


@pytest.mark.parametrize("index", [1, -1])
def test_index_out_of_range(host: RealHost, cupy: Any, index: int) -> None:
    assert refusal(host, index) == f"there is no GPU {index}: CuPy sees 1, numbered from 0"


NO_DEVICE = RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")


def test_no_gpu(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", raising(NO_DEVICE))
    assert refusal(host) == (
        "CuPy sees no GPU: cudaErrorNoDevice: no CUDA-capable device is detected; "
        f"check nvidia-smi and CUDA_VISIBLE_DEVICES, {INSTEAD}"
    )


def test_no_permission(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(cupy_checks, "DEVICE_FILES", str(tmp_path / "nvidia*"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path / "nvidia0"))
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", raising(NO_DEVICE))
    assert refusal(host) == (
        f"CuPy sees no GPU: no permission for {tmp_path}/nvidia0; add this user to the group of /dev/nvidia*, or start "
        f"the container with --gpus all, {INSTEAD}"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"),
            "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable; end the process that "
            "holds it (nvidia-smi), or allow several (nvidia-smi -c DEFAULT)",
        ),
        (
            RuntimeError("cudaErrorMpsConnectionFailed: MPS client failed to connect to the MPS control daemon"),
            "cudaErrorMpsConnectionFailed: MPS client failed to connect to the MPS control daemon; start the MPS "
            "daemon (nvidia-cuda-mps-control -d) as this user, or unset CUDA_MPS_PIPE_DIRECTORY",
        ),
        (
            RuntimeError('Failure finding "libnvrtc.so.12": No such file: libnvrtc.so.12\n'),
            'Failure finding "libnvrtc.so.12": No such file: libnvrtc.so.12; install CUDA\'s compiler: '
            "pip install 'cupy-cuda12x[ctk]' (or cupy-cuda13x)",
        ),
        (
            CompileException("kernels.cu(3): error: no\nmore"),
            "kernels.cu(3): error: no; check nvidia-smi and CUDA_VISIBLE_DEVICES",
        ),
        (
            PermissionError(13, "Permission denied", "/home/x/.cupy"),
            "[Errno 13] Permission denied: '/home/x/.cupy'; set CUPY_CACHE_DIR to a folder for compiled kernels that "
            "can be written",
        ),
    ],
)
def test_a_gpu_that_does_not_answer(
    host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    monkeypatch.setattr(cupy, "RawModule", raising(error))
    assert refusal(host) == f"GPU 0 does not answer CuPy: {line}"


def test_kernels_that_write_nothing(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(get_function=lambda name: lambda grid, block, arguments: None)
    monkeypatch.setattr(cupy, "RawModule", lambda *, code: nothing)
    assert refusal(host) == (
        "GPU 0 does not answer CuPy: its kernels wrote no times into pinned memory; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES"
    )


def raising(error: Exception) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise error

    return call


def test_no_torch_is_no_obstacle(host: RealHost, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    device = open_cupy(host)
    device.spin(MS)
    device.synchronize()
    assert device.tensor_device == "cpu"


def test_importing_the_device_imports_neither_cupy_nor_torch() -> None:
    code = (
        "import microbench.devices.cupy_cuda, microbench.devices.cupy_style, synthetic_models.cupy_kernels, sys; "
        "print(*({'torch', 'cupy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_every_kernel_is_taken_from_the_compiled_module(host: RealHost) -> None:
    assert set(modelled(host).kernels) == set(KERNELS) >= {cupy_cuda.SPIN}
