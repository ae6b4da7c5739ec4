"""TorchDevice over torch.cuda's names: on the modelled GPU everywhere, and the same bodies on a CUDA GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from microbench.devices import torch_cuda
from microbench.devices.refusals import INSTEAD
from microbench.devices.sim import SimDevice, SimEvent, SimStream
from microbench.devices.spec import LaunchCost, StepSpec
from microbench.devices.torch_cuda import RING, WARM_UP, TorchDevice, gpu_facts, mps_pipe, open_torch
from microbench.devices.torch_style import SimulatedCuda
from microbench.engines import Workload
from microbench.engines.sglang_0_5_4 import Work
from microbench.errors import Unavailable, UsageError
from microbench.hosts.real import RealHost
from microbench.protocols import Device
from microbench.schedulers import Run, overlaps, scheduler
from microbench.trace import Trace
from synthetic_models import Architecture
from synthetic_models.torch_kernels import TransformerStep

NO_COST = LaunchCost(gil_ns=0, free_ns=0)
SPINS = StepSpec(
    forward_ns=(20_000, 30_000, 40_000), sample_ns=(10_000,), launch=NO_COST, sample_launch=NO_COST, plan_sync=True
)
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
    qk_norm=True,
)
MODEL = replace(SPINS, architecture=TINY, batch=4, context=64, plan_sync=False)
SPECS = {
    "spins": SPINS,
    "spins, graph": replace(SPINS, graph=NO_COST),
    "model": MODEL,
    "model, graph": replace(MODEL, graph=NO_COST),
}
SCHEDULERS = ("run_to_completion", "overlap_loop", "overlap_thread:per_batch")
on_a_gpu = (
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU that torch sees"),
)


@dataclass
class Rows:
    """A batch without an engine."""

    size: int
    input_ids: Any
    seq_lens: Any

    def next_ids(self) -> Any:
        return self.input_ids + 1


def modelled(host: RealHost) -> TorchDevice:
    return TorchDevice(host, module=SimulatedCuda(SimDevice(host, name="modelled")), tensor_device="cpu")


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
def device(request: pytest.FixtureRequest, host: RealHost) -> TorchDevice:
    opened: Device = modelled(host) if request.param == "modelled" else open_torch(host)
    assert isinstance(opened, TorchDevice)
    return opened


def rows(device: TorchDevice, ids: list[int], *, dtype: Any = torch.int64) -> Rows:
    input_ids = torch.tensor(ids, dtype=dtype, device=device.tensor_device)
    return Rows(len(ids), input_ids, torch.full_like(input_ids, 10))


def outputs(
    device: Device, spec: StepSpec, name: str, *, steps: int = 6, output_tokens: tuple[int, int] | None = None
) -> list[list[int]]:
    """Run an engine's host work under a scheduler; the output tokens of each request."""
    name, function = scheduler(name)
    workload = Workload(requests=4, max_prompt=16, output_tokens=output_tokens)
    work: Any = Work(workload, overlap=overlaps(name), device=device.tensor_device)
    try:
        host = device.host  # type: ignore[attr-defined]
        function(Run(host, device, device.model(spec), work, Trace(host.now_ns)), steps)
        return [request.ids_through_stop for request in work.all_requests]
    finally:
        work.close()


# -- whole runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_schedulers_agree_on_the_tokens(device: TorchDevice, spec: str) -> None:
    first, *others = (outputs(device, SPECS[spec], name) for name in SCHEDULERS)
    assert [len(ids) for ids in first] == [16 + 6] * 4
    assert others == [first, first]


def test_schedulers_agree_when_requests_end(device: TorchDevice) -> None:
    first, *others = (outputs(device, SPINS, name, steps=9, output_tokens=(2, 6)) for name in SCHEDULERS)
    assert len({len(ids) for ids in first}) > 1
    assert max(map(len, first)) <= 16 + 6
    assert others == [first, first]


def test_spins_give_the_tokens_of_the_modelled_device(device: TorchDevice, host: RealHost) -> None:
    assert outputs(device, SPINS, "overlap_loop") == outputs(SimDevice(host), SPINS, "overlap_loop")


@pytest.mark.parametrize("name", ["run_to_completion", "overlap_loop"])
@pytest.mark.parametrize("spec", ["spins", "spins, graph"])
def test_work_and_events_come_in_the_order_of_the_modelled_device(
    name: str, spec: str, host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[tuple[Any, ...]] = []
    seen: list[Any] = []

    def number(thing: Any) -> int:
        """Order of first appearance, which is what two runs can share."""
        found = next((i for i, other in enumerate(seen) if other is thing), None)
        if found is None:
            seen.append(thing)
            found = len(seen) - 1
        return found

    def logged(owner: Any, method: str, describe: Callable[..., tuple[Any, ...]]) -> None:
        original = getattr(owner, method)

        def call(self: Any, *args: Any) -> Any:
            log.append((method, *describe(self, *args)))
            return original(self, *args)

        monkeypatch.setattr(owner, method, call)

    logged(SimEvent, "record", lambda event, *stream: (number(event), number(event.device.current_stream()), *stream))
    logged(SimEvent, "synchronize", lambda event: (number(event),))
    logged(SimStream, "wait_stream", lambda stream, other: (number(stream), number(other)))
    logged(SimDevice, "_enqueue", lambda device, stream, at_ns, ns: (number(stream), round(ns, -3)))

    def run(device: Device) -> list[tuple[Any, ...]]:
        model = device.model(replace(SPECS[spec], plan_sync=False))
        monkeypatch.setattr(device, "model", lambda spec: model)
        log.clear()
        seen.clear()
        outputs(device, SPECS[spec], name, steps=4)
        return list(log)

    expected = run(SimDevice(host))
    kinds = {entry[0] for entry in expected}
    assert kinds == {"_enqueue"} if name == "run_to_completion" else kinds > {"_enqueue", "record", "synchronize"}
    assert run(modelled(host)) == expected


# -- models ----------------------------------------------------------------------------------------------------


def test_a_graph_gives_what_eager_launches_give(device: TorchDevice) -> None:
    eager, captured = (TransformerStep(TINY, batch=4, context=32, device=device.tensor_device) for _ in range(2))
    run_eager = device.prepare(eager.run, graph=False)
    replay = device.prepare(captured.run, graph=True)
    ids = torch.tensor([5, 6, 7, 8], device=device.tensor_device)
    lens = torch.tensor([1, 5, 9, 31], device=device.tensor_device)
    for _ in range(3):
        for step, run in ((eager, run_eager), (captured, replay)):
            step.load(ids, lens)
            run()
        torch.testing.assert_close(captured.logits, eager.logits, atol=0.05, rtol=0.05)
        torch.testing.assert_close(captured.cache, eager.cache, atol=0.05, rtol=0.05)
        ids, lens = eager.sample(), lens + 1


def test_warming_up_takes_its_place_in_the_current_stream(device: TorchDevice) -> None:
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    device.spin(20_000_000)
    start.record()
    device.prepare(lambda: device.spin(5_000_000), graph=False)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(WARM_UP * 5.0, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("spec", ["model", "model, graph"])
def test_samples_have_the_dtype_of_the_inputs_and_a_batch_may_shrink(
    device: TorchDevice, spec: str, dtype: Any
) -> None:
    model = device.model(SPECS[spec])
    for count in (4, 2):
        batch = rows(device, [7, 300_000, 9, 11][:count], dtype=dtype)
        model.plan(batch)
        model.forward(batch)
        ids = model.sample(batch)
        assert (ids.dtype, ids.shape) == (dtype, (count,))
        assert all(0 <= i < TINY.vocab for i in ids.tolist())


def test_a_model_holds_its_inputs_until_they_were_read(device: TorchDevice) -> None:
    model = device.model(SPINS)
    kept = []
    for _ in range(3):
        batch = rows(device, [1])
        kept.append(weakref.ref(batch.input_ids))
        model.forward(batch)
    del batch
    assert [ref() is None for ref in kept] == [True, False, False]


@pytest.mark.parametrize("spec", ["spins", "spins, graph"])
def test_a_forward_of_spins_lasts_as_long_as_its_spec_says(device: TorchDevice, spec: str) -> None:
    model = device.model(replace(SPECS[spec], forward_ns=(1_000_000,) * 3))
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    device.spin(20_000_000)  # enqueue the rest behind it
    start.record()
    model.forward(rows(device, [1]))
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(3.0, rel=0.1)


# -- streams, events and copies --------------------------------------------------------------------------------


def test_an_event_times_a_spin(device: Device) -> None:
    start, end = (device.Event(enable_timing=True) for _ in range(2))
    assert device.spin(20_000_000) is None
    start.record()
    device.spin(4_000_000)
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == pytest.approx(4.0, rel=0.1)
    assert device.busy_ns() is None


def test_streams(device: TorchDevice) -> None:
    outside, urgent, other = device.current_stream(), device.Stream(priority=-1), device.Stream()
    device.synchronize()
    with device.stream(urgent):
        assert device.current_stream() == urgent
        device.spin(50_000_000)
    assert device.current_stream() == outside
    assert outside.query()
    assert not urgent.query()
    done = device.Event()
    other.wait_stream(urgent)
    done.record(other)
    assert not done.query()
    device.synchronize()
    assert done.query()
    assert urgent.query()


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_holds_the_values_once_copy_done(device: TorchDevice, pinned: bool) -> None:
    shapes = [(torch.uint8, 5, 0), (torch.int32, 5, 1 << 16), (torch.int64, 5, 1 << 40), (torch.int64, 3, 0)]
    for dtype, size, first in (shape for shape in shapes for _ in range(RING)):  # all buffers in each shape
        values = torch.arange(first, first + size, dtype=dtype, device=device.tensor_device)
        device.spin(1_000_000)
        copy = device.to_host(values, nbytes=values.nbytes, pinned=pinned)
        copy_done = device.Event()
        copy_done.record()
        copy_done.synchronize()
        assert copy.tolist() == list(range(first, first + size))


def test_a_copy_read_too_late_says_so(device: TorchDevice) -> None:
    copies = [device.to_host(rows(device, [i]).input_ids, nbytes=8) for i in range(RING + 1)]
    device.synchronize()
    assert [copy.tolist() for copy in copies[1:]] == [[i] for i in range(1, RING + 1)]
    with pytest.raises(
        RuntimeError, match=f"^this copy was read too late: its buffer was reused after {RING} more copies$"
    ):
        copies[0].tolist()


def test_a_copy_of_nothing_in_particular(device: TorchDevice) -> None:
    for nbytes in (4, 16, 4):
        copy = device.to_host(None, nbytes=nbytes)
        device.synchronize()
        assert copy.tolist() == [0] * nbytes
    assert device.to_host(None, nbytes=4, pinned=False).tolist() == [0] * 4


def test_priorities_are_those_the_device_has(device: TorchDevice) -> None:
    least, greatest = device.priority_range()
    assert greatest < least == 0
    device.Stream(priority=greatest)
    for priority in (least + 1, greatest - 1):
        with pytest.raises(UsageError) as error:
            device.Stream(priority=priority)
        assert str(error.value) == (f"stream priority {priority}: {device.name} has {greatest} (goes first) to {least}")


def test_work_of_a_further_thread(device: TorchDevice, host: RealHost) -> None:
    """On an index other than 0, entering the device's stream is what makes the device that thread's current one."""
    seen: list[Any] = []

    def work() -> None:
        with device.stream(stream):
            seen.append(device.current_stream() == stream)
            start, end = (device.Event(enable_timing=True) for _ in range(2))
            start.record()
            device.spin(3_000_000)
            end.record()
            end.synchronize()
            seen.append(start.elapsed_time(end))

    stream = device.Stream()
    host.run({"main": lambda: None, "further": work})
    assert seen[0]
    assert seen[1] == pytest.approx(3.0, rel=0.5)


# -- waits and ranges ------------------------------------------------------------------------------------------


def test_every_wait_inside_the_driver_is_watched(device: TorchDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    watch = device.watchdog.watch

    def noted(what: Any, wait: Any, *args: Any) -> Any:
        watched.append(what)
        return watch(what, wait, *args)

    monkeypatch.setattr(device.watchdog, "watch", noted)
    event, stream, current = device.Event(), device.Stream(), device.current_stream()
    event.record()
    for thing in (event, stream, current):
        thing.synchronize()
    assert watched == [event, stream, current]
    device.synchronize()
    assert device.name in watched
    batch = rows(device, [1])
    device.to_host(batch.input_ids, nbytes=8, pinned=False)
    model = device.model(SPINS)
    watched.clear()
    model.plan(batch)
    model.forward(batch)
    model.sample(batch)
    assert watched == ["the read-back of a plan", "room in the launch queue for a forward"]
    assert device.watchdog.waits == {}


def test_a_wait_past_the_hosts_time_out_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    device = modelled(RealHost(timeout_s=0.3))
    lines: list[str] = []
    over = threading.Event()
    device.watchdog.end = lambda line: (lines.append(line), over.set())[0]
    monkeypatch.setattr(SimEvent, "synchronize", lambda self: over.wait(10))
    hung = device.Event()
    thread = threading.Thread(target=hung.synchronize, name="scheduler")
    thread.start()
    while not lines:
        time.sleep(0.05)
        device.watchdog.check()
    thread.join(10)
    assert lines[0] == (
        f"microbench: thread 'scheduler' waited longer than 0.3 s for {hung!r}; "
        "it can't be interrupted, so the process ends: is the GPU lost or stuck?"
    )


def test_steps_show_as_nested_ranges_in_a_profile(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    cuda = SimulatedCuda(SimDevice(host))
    cuda.nvtx = SimpleNamespace(range_push=log.append, range_pop=lambda: log.append("pop"))
    device = TorchDevice(host, module=cuda, tensor_device="cpu")
    model, batch = device.model(SPINS), rows(device, [1])
    log.clear()
    with device.range("a block"):
        model.plan(batch)
        model.forward(batch)
        model.sample(batch)
    assert log == ["a block", "plan", "pop", "forward", "pop", "sample", "pop", "pop"]
    log.clear()
    with pytest.raises(ZeroDivisionError), device.range("an error"):
        _ = 1 // 0
    assert log == ["an error", "pop"]


def test_a_build_without_ranges_has_none(host: RealHost) -> None:
    def unbuilt(*_: Any) -> None:
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")

    for nvtx in (SimpleNamespace(), SimpleNamespace(range_push=unbuilt, range_pop=unbuilt)):
        cuda = SimulatedCuda(SimDevice(host))
        cuda.nvtx = nvtx
        with TorchDevice(host, module=cuda, tensor_device="cpu").range("a block"):
            pass


# -- calibration and state -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ns_per_cycle", [0.5, 1.0, 10.0])
def test_a_spin_is_calibrated_whatever_a_cycle_is(
    host: RealHost, monkeypatch: pytest.MonkeyPatch, ns_per_cycle: float
) -> None:
    cuda = SimulatedCuda(SimDevice(host))
    spin = cuda._sleep
    monkeypatch.setattr(cuda, "_sleep", lambda cycles: spin(round(cycles * ns_per_cycle)))
    device = TorchDevice(host, module=cuda, tensor_device="cpu")
    assert device.cycles(1_000_000) == pytest.approx(1_000_000 / ns_per_cycle, rel=0.01)


def test_a_spin_that_does_not_spin(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "modelled: torch.cuda._sleep doesn't last as long as it is told to; use another torch build"
    cuda = SimulatedCuda(SimDevice(host, name="modelled"))
    spin = cuda._sleep
    for cycles_spun in (lambda cycles: 0, lambda cycles: 2_000_000):
        monkeypatch.setattr(cuda, "_sleep", lambda cycles, f=cycles_spun: spin(f(cycles)))
        with pytest.raises(Unavailable) as error:
            TorchDevice(host, module=cuda, tensor_device="cpu")
        assert str(error.value) == says


def test_the_state_is_that_of_this_gpu(device: TorchDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    properties = SimpleNamespace(uuid="77", pci_domain_id=0, pci_bus_id=1, pci_device_id=0)
    monkeypatch.setattr(device.module, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch_cuda, "gpu_state", lambda *ids: asked.append(ids))
    assert device.gpu_state() is None
    assert asked == [("GPU-77", "00000000:01:00.0")]
    monkeypatch.setattr(device.module, "get_device_properties", lambda index: SimpleNamespace())
    assert device.gpu_state() is None
    assert len(asked) == 1  # without an id, NVML would answer for another GPU


def test_a_slice_and_a_shared_gpu_are_noted(
    cuda: SimulatedCuda, host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_torch(host)
    monkeypatch.setattr(torch_cuda, "mps_pipe", lambda: None)
    assert device.notes() == ()
    monkeypatch.setattr(torch_cuda, "mps_pipe", lambda: "/tmp/nvidia-mps")
    properties = SimpleNamespace(name="NVIDIA A100-SXM4-80GB MIG 1g.10gb", total_memory=10 << 30, major=8, minor=0)
    monkeypatch.setattr(cuda, "get_device_properties", lambda index: properties)
    assert device.notes() == ("MIG slice 1g.10gb", "shared through MPS")


@pytest.fixture(params=[pytest.param("cuda", marks=on_a_gpu)])
def gpu(host: RealHost) -> TorchDevice:
    return open_torch(host)


def test_a_copy_read_too_early_is_stale(gpu: TorchDevice) -> None:
    old, new = rows(gpu, [1, 2]).input_ids, rows(gpu, [3, 4]).input_ids
    for _ in range(RING):
        gpu.to_host(old, nbytes=old.nbytes)
    gpu.synchronize()
    gpu.spin(50_000_000)
    copy, copy_done = gpu.to_host(new, nbytes=new.nbytes), gpu.Event()
    copy_done.record()
    assert copy.tolist() == [1, 2]
    assert not copy_done.query()
    copy_done.synchronize()
    assert copy.tolist() == [3, 4]


def test_a_blocking_event_leaves_the_core_alone(gpu: TorchDevice) -> None:
    done = gpu.Event(blocking=True)
    gpu.spin(100_000_000)
    done.record()
    cpu, wall = time.thread_time_ns(), time.monotonic_ns()
    done.synchronize()
    assert time.thread_time_ns() - cpu < 0.5 * (time.monotonic_ns() - wall)


def test_streams_and_events_are_torchs_own(gpu: TorchDevice) -> None:
    streams, event = (gpu.Stream(), gpu.Stream(priority=-1), gpu.current_stream()), gpu.Event()
    assert all(isinstance(stream, torch.cuda.Stream) for stream in streams)
    assert isinstance(event, torch.cuda.Event)
    assert all(type(stream).query is torch.cuda.Stream.query for stream in streams)
    assert (type(event).record, type(event).query) == (torch.cuda.Event.record, torch.cuda.Event.query)
    facts = gpu_facts(torch.cuda)
    assert facts["name"] == gpu.name
    assert all(facts[key] is not None for key in ("memory_bytes", "capability"))


# -- opening ---------------------------------------------------------------------------------------------------


def refusal(host: RealHost, index: int = 0) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Unavailable) as error:
            open_torch(host, index)
    return str(error.value)


@pytest.fixture
def cuda(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> SimulatedCuda:
    """A machine whose torch has CUDA, and one modelled GPU."""
    fake = SimulatedCuda(SimDevice(host, name="modelled"))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_no_torch(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert refusal(host) == f"torch is not installed; install it with CUDA, {INSTEAD}"


def test_torch_without_cuda(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert refusal(host) == f"torch {torch.__version__} was built without CUDA; install a CUDA build, {INSTEAD}"


def test_no_gpu(host: RealHost, cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    line = refusal(host)
    assert line.startswith("torch sees no GPU")
    assert line.endswith(f", {INSTEAD}")


def test_what_torch_warns_of_is_said(host: RealHost, cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        warnings.warn("CUDA initialization: The NVIDIA driver is too old.\nMore lines.", stacklevel=2)
        return False

    monkeypatch.setattr(cuda, "is_available", unavailable)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert refusal(host).startswith("torch sees no GPU: CUDA initialization: The NVIDIA driver is too old; ")


@pytest.mark.parametrize("index", [1, -1])
def test_index_out_of_range(host: RealHost, cuda: SimulatedCuda, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert refusal(host, index) == f"there is no GPU {index}: torch sees 1, numbered from 0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert refusal(host, index) == f"there is no GPU {index}: torch sees 1 with CUDA_VISIBLE_DEVICES=3, numbered from 0"


def test_a_gpu_that_does_not_answer(host: RealHost, cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(index: int) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with ...")

    monkeypatch.setattr(cuda, "set_device", busy)
    assert refusal(host) == (
        "GPU 0 does not answer: CUDA error: all CUDA-capable devices are busy or unavailable; "
        "end the process that holds it (nvidia-smi), or allow several (nvidia-smi -c DEFAULT)"
    )


def test_open(host: RealHost, cuda: SimulatedCuda) -> None:
    device = open_torch(host)
    assert (device.name, device.tensor_device, device.module) == ("modelled", "cuda:0", cuda)


def test_too_little_memory(device: TorchDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.module, "mem_get_info", lambda index: (2_000_000_000, 80_000_000_000))
    with pytest.raises(Unavailable) as error:
        device.model(replace(MODEL, batch=1024, context=32_768))
    assert str(error.value) == (
        f"tiny at batch 1024 and context 32768 needs 4.6 GB, {device.name} has 2.0 GB free; "
        "take a smaller model, batch or context, or free memory"
    )


def test_facts(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_cuda, "mps_pipe", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 12040, raising=False)
    facts = gpu_facts(cuda)
    assert facts.pop("memory_bytes") == cuda.mem_get_info()[1] > 2**20
    assert facts == {
        "name": "modelled",
        "capability": "0.0",
        "cuda_driver": "12.4",
        "cuda_runtime": torch.version.cuda,
        "hip_runtime": None,
        "mig": None,
        "mps": None,
    }


def test_facts_of_a_slice_and_of_an_amd_card(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(device: Any) -> SimpleNamespace:
        return SimpleNamespace(name=name, total_memory=10 << 30, major=9, minor=4, **more)

    monkeypatch.setattr(cuda, "get_device_properties", properties)
    name, more = "NVIDIA A100-SXM4-80GB MIG 1g.10gb", {}
    assert gpu_facts(cuda)["mig"] == "1g.10gb"
    monkeypatch.setattr(torch.version, "hip", "6.2")
    name, more = "AMD Instinct MI300X", {"gcnArchName": "gfx942:sramecc+:xnack-"}
    facts = gpu_facts(cuda)
    assert (facts["capability"], facts["hip_runtime"], facts["cuda_driver"]) == (more["gcnArchName"], "6.2", None)


def test_an_mps_daemon_is_found_where_its_clients_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    assert mps_pipe(tmp_path) is None
    (tmp_path / "control").touch()
    assert mps_pipe(tmp_path) == str(tmp_path)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "none"))
    assert mps_pipe(tmp_path) is None


def test_facts_of_another_module_are_not_those_of_torch(host: RealHost) -> None:
    facts = gpu_facts(SimulatedCuda(SimDevice(host)))
    assert facts["cuda_driver"] is facts["cuda_runtime"] is None


def test_importing_the_device_imports_no_torch() -> None:
    code = "import microbench.devices.torch_cuda, synthetic_models.torch_kernels, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
