"""One point to measure: a decode step of given kernels and host work, run in blocks under a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from microbench.devices.card import DeviceCard
from microbench.devices.spec import SAMPLE_NS, LaunchCost, StepSpec, even_kernels
from microbench.engines import EngineProfile, Workload, real_work
from microbench.engines.priced import PricedWork
from microbench.engines.prices import HostProfile, shipped_profile
from microbench.protocols import Device, EngineWork, Host, Model
from microbench.schedulers import Run, overlaps, scheduler
from microbench.speed import check_speed, profile_at, slowed, spec_at
from microbench.target import Target, open_target
from microbench.trace import Trace, Window
from synthetic_models import Architecture, Batch, Gpu, check_fits, step_time


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that decides the step time except the scheduler.

    host_speed: the host's, in that of the machine (real) or of the profile (virtual); see `speed`.
    """

    target: Target
    engine: EngineProfile
    spec: StepSpec
    workload: Workload
    switch_interval_s: float | None = None
    host_speed: float = 1.0


def model_spec(
    architecture: Architecture,
    gpu: Gpu,
    engine: EngineProfile,
    *,
    batch: int,
    context: int,
    launch: LaunchCost | None = None,
    card: DeviceCard | None = None,
) -> StepSpec:
    """The decode step of a model: modelled kernel durations, and a graph replay where the engine has captured one.

    Launches cost what `launch` says, else what `card` measured, else what the engine profile assumes.

    Raises synthetic_models.DoesNotFit when the batch needs more memory than the GPU has.
    """
    check_fits(architecture, gpu, batch, context)
    captured = engine.captured_batch(batch, gpu.memory_bytes)
    time = step_time(architecture, gpu, Batch.decode(captured or batch, context))
    graph = card.graph.replay(len(time.forward_ns)) if card else engine.graph_launch
    measured = card.launch if card else None
    return StepSpec(
        forward_ns=time.forward_ns,
        sample_ns=time.sample_ns,
        launch=launch or measured or engine.launch,
        sample_launch=launch or measured or engine.sample_launch,
        graph=graph if captured else None,
        plan_sync=engine.plan_sync,
        architecture=architecture,
        batch=batch,
        context=context,
    )


def what_if_spec(
    engine: EngineProfile, *, gpu_ns: int, launches: int, launch: LaunchCost, graph: LaunchCost | None = None
) -> StepSpec:
    """A decode step whose forward takes `gpu_ns` in `launches` equal kernels; sampling costs what it always does."""
    return StepSpec(
        forward_ns=even_kernels(gpu_ns, launches),
        sample_ns=SAMPLE_NS,
        launch=launch,
        sample_launch=engine.sample_launch,
        graph=graph,
        plan_sync=engine.plan_sync,
    )


class Instance:
    """One engine under one scheduler, kept between blocks."""

    def __init__(
        self, case: Case, name: str, *, host: Host, device: Device, model: Model, profile: HostProfile
    ) -> None:
        self.name, self._function = scheduler(name)
        self.host, self.device, self.model = host, device, model
        overlap = overlaps(self.name)
        self.forward_stream = device.Stream() if overlap else None
        self.work: EngineWork
        if case.target.host == "virtual":
            self.work = PricedWork(host, profile, case.engine.name, case.workload, overlap=overlap)
        else:
            self.work = real_work(case.engine, case.workload, overlap=overlap, device=device.tensor_device)
            if case.host_speed != 1:
                self.work = slowed(self.work, case.host_speed)

    def block(self, steps: int, *, warm: int) -> Window:
        """Run `warm` + `steps` + 1 steps and measure the middle ones; each block starts from the same requests."""
        trace, before = Trace(self.host.now_ns), self.device.busy_ns()
        with self.device.range(f"{self.name}, {steps} steps"):
            self.run(warm + steps + 1, trace)
        after, window = self.device.busy_ns(), trace.window(warm)
        if before is None or after is None:
            return window
        return replace(window, busy_ns=(after - before) / len(trace.steps))

    def run(self, steps: int, trace: Trace) -> None:
        """Run `steps` steps from the same requests as ever, recorded in `trace`."""
        self.work.rewind()
        self._function(Run(self.host, self.device, self.model, self.work, trace, self.forward_stream), steps)

    def close(self) -> None:
        self.work.close()


@contextmanager
def instances(
    case: Case,
    schedulers: Sequence[str],
    profile: HostProfile | None = None,
    *,
    observe: Callable[[Host, Device], Host] = lambda host, device: host,
) -> Iterator[list[Instance]]:
    """An instance of the case under each scheduler, on one host, device and model; closed on leaving.

    observe: may put a host that watches in the place of the one that was opened.
    Raises UsageError where the case asks for a real host faster than it is.
    """
    profile, spec, speed = profile or shipped_profile(), case.spec, case.host_speed
    check_speed(case.target, speed)
    if speed != 1:
        profile, spec = profile_at(profile, speed), spec_at(spec, speed)
    host, device = open_target(case.target, profile=profile, switch_interval_s=case.switch_interval_s)
    host = observe(host, device)
    model = device.model(spec)
    with ExitStack() as stack:
        opened = []
        for name in schedulers:
            instance = Instance(case, name, host=host, device=device, model=model, profile=profile)
            stack.callback(instance.close)
            opened.append(instance)
        yield opened
