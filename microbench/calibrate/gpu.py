"""Measures one CUDA device and fits the model of it: the device file that `sim:<file>` runs on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from microbench.calibrate import calls, kernels
from microbench.calibrate.fit import Point, error, fit_class
from microbench.calibrate.inputs import TINY
from microbench.costs.cost import Cost
from microbench.costs.event_wait import MODES, event_wait
from microbench.costs.stream_calls import stream_calls
from microbench.devices.card import DeviceCard
from microbench.devices.sim import SimDevice
from microbench.devices.spec import LaunchCost
from microbench.engines import engine
from microbench.engines.profile import EAGER
from microbench.environment import environment
from microbench.protocols import Device, Host
from microbench.stats import median
from microbench.target import Target, choose, open_target
from synthetic_models import Architecture, Batch, Gpu, architecture, step_time

ENGINE = "sglang-0.5.4"
MODELS = ("qwen2.5-0.5b", "qwen2.5-3b", "qwen2.5-7b")
CLASSES: dict[str, str] = {"gemm": "GEMM", "attention": "decode attention", "elementwise": "norm"}
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose kernels are timed, at which batches and context."""

    models: tuple[Architecture, ...]
    batches: tuple[int, ...]
    context: int


def scope(target: Target) -> Scope:
    """Qwen2.5 0.5B, 3B and 7B; a tiny model on a simulated library, which runs them on the CPU and takes no time."""
    if target.simulated:
        return Scope(models=(TINY,), batches=(1, 16), context=64)
    return Scope(models=tuple(architecture(name) for name in MODELS), batches=(1, 16, 64, 256, 512), context=2048)


def calibrate(
    target: Target,
    *,
    seconds: float = 120.0,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> DeviceCard:
    """Measure the device of `target`. Kernels that no time is left for after `seconds` are left out.

    On a simulated library kernels take no time, so the model of the GPU stays as it was.
    """
    deadline = time.monotonic() + seconds
    host, device = open_target(target)
    shipped = choose(str(target), None)[1]
    profile, rows = engine(ENGINE), list[Row]()
    modelled = SimDevice(host)
    of = scope(target)

    progress("launches", 0)
    small = of.models[0]
    launches = len(step_time(small, shipped, Batch.decode(1, 128)).forward_ns)
    each = calls.launch_ns(host, device, profile, small, launches)
    rows.append(_row("launch", f"torch step of {small.name}, per modelled launch", each, EAGER.total_ns))
    latency = median(calls.launch_latency_ns(host, device))
    rows.append(_row("launch", "latency, to a polling host", latency, shipped.launch_latency_ns))
    graph, by_nodes = calls.graph_cost(host, device, profile)
    rows += [_row("graph replay", f"{n} nodes", ns, profile.graph_launch.total_ns) for n, ns in by_nodes.items()]
    progress("copies", 0.1)
    copy = calls.copy_fit(host, device)
    for nbytes, ns in copy.points.items():
        expected = modelled.copy_latency_ns + nbytes / modelled.copy_bytes_per_s * 1e9
        rows.append(_row("copy to pinned memory", f"{nbytes} B", ns, expected, clock="device event"))
    together = calls.interference(host, device)
    rows.append(_row("streams", "two spins at once over one", together, 1.0, unit="ratio"))
    rows += [_cost_row(cost) for cost in stream_calls(host, device, target.device)]
    rows += [_cost_row(cost) for mode in MODES for cost in event_wait(host, device, mode)[:1]]

    fitted = replace(shipped, launch_latency_ns=round(latency))
    for done, (name, label) in enumerate(CLASSES.items()):
        progress(label, 0.2 + 0.25 * done)
        points = _within(_points(name, host, device, of), deadline - (2 - done) * seconds / 8)
        rows += [_point_row(label, kernel.name, kernel, ns, shipped) for kernel, ns in points]
        fitted, row = _fit(fitted, shipped, name, label, points)
        rows.append(row)
    progress("done", 1)
    gil_ns = round(each * EAGER.gil_ns / EAGER.total_ns)
    return DeviceCard(
        gpu=replace(fitted, source=(*shipped.source, f"measured on {device.name} by microbench calibrate")),
        launch=LaunchCost(gil_ns=gil_ns, free_ns=round(each) - gil_ns),
        graph=graph,
        copy_latency_ns=copy.latency_ns,
        copy_bytes_per_s=copy.bytes_per_s or modelled.copy_bytes_per_s,
        exclusive=together > 1.5,
        measured=_measured(target, device),
        rows=tuple(rows),
    )


def _points(name: str, host: Host, device: Device, of: Scope) -> Iterator[Point]:
    if name == "gemm":
        return kernels.gemm_points(host, device, of.models, of.batches)
    if name == "attention":
        return kernels.attention_points(host, device, of.models, of.batches, of.context)
    return kernels.elementwise_points(host, device, of.models, of.batches)


def _within(points: Iterator[Point], deadline: float) -> list[Point]:
    """Points until the time is up; one that doesn't fit the memory is left out with all behind it."""
    found: list[Point] = []
    try:
        for point in points:
            found.append(point)
            if time.monotonic() > deadline:
                break
    except Exception as failure:
        if type(failure).__name__ != "OutOfMemoryError":
            raise
    return found


def _fit(fitted: Gpu, shipped: Gpu, name: str, label: str, points: list[Point]) -> tuple[Gpu, Row]:
    """Fit on every second point and score on the others."""
    timed = [(kernel, ns) for kernel, ns in points if ns > 0]
    if len(timed) < 4:
        return fitted, {
            "group": label,
            "name": "fit",
            "unit": "error",
            "measured": None,
            "modelled": None,
            "clock": "device event",
            "note": f"not fitted: {len(timed)} points with a time; the shipped model stays",
        }
    candidate = fit_class(fitted, name, timed[::2])
    before, after = error(shipped, timed[1::2]), error(candidate, timed[1::2])
    row = _row(label, "median error on points not fitted: calibrated, shipped", after, before, unit="error")
    return (candidate if after < before else fitted), row


def _cost_row(cost: Cost) -> Row:
    """An isolated cost of which the model has no figure of its own."""
    note = ", ".join(f"{name} {value:g}" for name, value in cost.facts.items())
    return _row(cost.group, cost.variant, median(cost.samples_ns), None, clock=cost.clock) | {"note": note}


def _row(
    group: str, name: str, measured: float, modelled: float | None, *, unit: str = "us", clock: str = "host"
) -> Row:
    scale = 1000.0 if unit == "us" else 1.0
    return {
        "group": group,
        "name": name,
        "unit": unit,
        "measured": measured / scale,
        "modelled": None if modelled is None else modelled / scale,
        "clock": clock,
        "note": "",
    }


def _point_row(label: str, name: str, kernel: Any, ns: float, shipped: Gpu) -> Row:
    from synthetic_models.gpus import kernel_ns

    shape = (
        f"{kernel.m}x{kernel.n}x{kernel.k}" if kernel.m else f"{(kernel.read_bytes + kernel.write_bytes) / 1e6:.3g} MB"
    )
    return _row(label, f"{name} {shape}", ns, kernel_ns(shipped, kernel), clock="device event")


def _measured(target: Target, device: Device) -> dict[str, str]:
    found = environment()
    return {
        "device": device.name,
        "target": str(target),
        "says": target.says,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "driver": str(found.get("gpu_driver")),
        "torch": str(found.get("torch_version")),
        "cuda": str(found.get("cuda_version")),
        "machine": str(found.get("cpu_model")),
    }
