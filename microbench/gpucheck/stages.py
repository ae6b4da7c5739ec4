"""The stages of a check: each yields what it found, one JSON document at a time, as it finds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from microbench.case import Case, model_spec
from microbench.errors import Unavailable
from microbench.gpucheck.plan import ENGINE, Plan
from microbench.target import Target, open_target, parse_target
from synthetic_models import Gpu

CARD = "device.json"
Found = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A stage's work: what to run, where its files are, and when it should have ended (`time.monotonic`)."""

    plan: Plan
    folder: Path
    deadline: float

    @property
    def left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def target(self) -> Target:
        return parse_target(self.plan.target)


def open_stage(task: Task) -> Iterator[Found]:
    """What device this is; raises Unavailable when there is none."""
    from microbench.environment import environment

    _, device = open_target(task.target)
    state = getattr(device, "gpu_state", lambda: None)()
    yield {
        "kind": "device",
        "name": device.name,
        "target": task.plan.target,
        "says": task.target.says,
        "environment": environment(),
        "state": asdict(state) if state else None,
        "notes": list(getattr(device, "notes", tuple)()),
    }


def protocol_stage(task: Task) -> Iterator[Found]:
    """The promises of the device protocol, for every library that opens."""
    from microbench.gpucheck.protocol import run_checks

    for name in task.plan.libraries:
        try:
            host, device = open_target(parse_target(name))
        except Unavailable as why:
            yield {"kind": "skip", "what": name, "why": str(why)}
            continue
        for check in run_checks(host, device):
            yield {"kind": "check", "target": name, **check}


def calibrate_stage(task: Task) -> Iterator[Found]:
    """Measures the device into `device.json`, from which `modelled` is built."""
    from microbench.calibrate.gpu import calibrate
    from microbench.records import write_json_atomic

    card = calibrate(task.target, seconds=task.left_s)
    write_json_atomic(task.folder / CARD, card.to_json())
    for row in card.rows:
        yield {"kind": "row", **row}


def costs_stage(task: Task) -> Iterator[Found]:
    """The isolated costs of every library that opens."""
    from microbench.costs import device_costs

    for name in task.plan.libraries:
        try:
            for cost in device_costs(parse_target(name)):
                yield {"kind": "cost", "target": name, **cost.to_json()}
                if not task.left_s:
                    yield {"kind": "skip", "what": f"further costs of {name}", "why": "the time is up"}
                    return
        except Unavailable as why:
            yield {"kind": "skip", "what": name, "why": str(why)}


def steps_stage(task: Task) -> Iterator[Found]:
    """Whole steps of every model and batch under every scheduler, on the device."""
    yield from _steps(task, task.target, _gpu(task), measure_gpu=True)


def modelled_stage(task: Task) -> Iterator[Found]:
    """The same steps on this host with the GPU that was just measured modelled."""
    path = task.folder / CARD
    if not path.exists():
        yield {"kind": "skip", "what": "steps on the modelled GPU", "why": "the calibration left no device file"}
        return
    target = parse_target(f"real+sim:{path}")
    assert target.gpu is not None
    yield from _steps(task, target, target.gpu, measure_gpu=False)


def _gpu(task: Task) -> Gpu:
    """The modelled twin that memory is checked against, before anything is calibrated."""
    from microbench.target import choose

    return choose(task.plan.target, None)[1]


def _steps(task: Task, target: Target, gpu: Gpu, *, measure_gpu: bool) -> Iterator[Found]:
    from microbench.engines import Workload, engine
    from microbench.measure import Budget, sample
    from microbench.schedulers import SCHEDULERS
    from microbench.sweep import Point, rows
    from synthetic_models import DoesNotFit

    profile, names = engine(ENGINE), list(SCHEDULERS)
    points = [Point(architecture=m, batch=b) for m in task.plan.models for b in task.plan.batches]
    for done, point in enumerate(points):
        what = f"{point.architecture.name} at batch {point.batch}"
        if not task.left_s:
            yield {"kind": "skip", "what": what, "why": "the time is up"}
            continue
        seconds = task.left_s / (len(points) - done)
        budget = Budget(seconds=0.7 * seconds, steps=8, warm=2, exactly=task.plan.rounds)
        try:
            spec = model_spec(
                point.architecture, gpu, profile, batch=point.batch, context=task.plan.context, card=target.card
            )
            workload = Workload(requests=point.batch, max_prompt=task.plan.context, generated=task.plan.context // 2)
            case = Case(target=target, engine=profile, spec=spec, workload=workload)
            if measure_gpu:
                yield {"kind": "gpu_step", **_gpu_step(case, point.batch, task.plan.context)}
            sampled = sample(case, names, budget=budget)
        except (Unavailable, DoesNotFit) as why:
            yield {"kind": "skip", "what": what, "why": str(why)}
            continue
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's, or CuPy's
                raise
            yield {"kind": "skip", "what": what, "why": f"out of memory: {str(error).splitlines()[0]}"}
            continue
        for row in rows(point, case, sampled, names):
            yield {"kind": "step", **row}


def _gpu_step(case: Case, batch: int, context: int) -> Found:
    """Device time of the step's kernels with no host in the way, from events on either side."""
    from microbench.calibrate.inputs import FixedBatch
    from microbench.calibrate.timing import timed

    host, device = open_target(case.target)
    model, rows = device.model(case.spec), FixedBatch(device, batch, context)

    def work() -> None:
        model.forward(rows)
        model.sample(rows)

    found = timed(host, device, work, repeats=8)
    assert case.spec.architecture is not None
    return {
        "model": case.spec.architecture.name,
        "batch": batch,
        "launch_mode": "graph" if case.spec.graph else "eager",
        "gpu_step_ms": None if found.device_ns is None else found.device_ns / 1e6,
        "submit_ms": found.submit_ns / 1e6,
        "shipped_model_ms": case.spec.gpu_ns / 1e6,
    }


STAGE_FUNCTIONS: dict[str, Callable[[Task], Iterator[Found]]] = {
    "open": open_stage,
    "protocol": protocol_stage,
    "calibrate": calibrate_stage,
    "costs": costs_stage,
    "steps": steps_stage,
    "modelled": modelled_stage,
}
