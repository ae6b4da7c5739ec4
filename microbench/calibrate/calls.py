"""What a CUDA device's calls cost: launches, graph replays, copies, and streams that get in each other's way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from microbench.calibrate.fit import line
from microbench.calibrate.inputs import FixedBatch
from microbench.calibrate.timing import timed
from microbench.case import what_if_spec
from microbench.costs import device_bytes
from microbench.devices.card import GraphCost
from microbench.devices.spec import LaunchCost
from microbench.engines import EngineProfile
from microbench.protocols import Device, Host
from microbench.stats import median
from synthetic_models import Architecture

NODES = (1, 8, 32, 128, 320)
COPY_BYTES = tuple(4**i for i in range(1, 13))
SPIN_NS = 5_000_000
NOTHING = LaunchCost(gil_ns=0, free_ns=0)


def launch_ns(host: Host, device: Device, engine: EngineProfile, model: Architecture, launches: int) -> float:
    """Host time of the eager torch step of `model` at batch 1, divided by the launches that the model of it counts."""
    spec = what_if_spec(engine, gpu_ns=launches, launches=launches, launch=NOTHING)
    step = device.model(replace(spec, architecture=model, batch=1, context=128, plan_sync=False))
    batch = FixedBatch(device, 1, 64)
    return timed(host, device, lambda: step.forward(batch)).submit_ns / launches


def launch_latency_ns(host: Host, device: Device, *, repeats: int = 200) -> list[int]:
    """From the return of a launch on an idle stream until a polling host sees the shortest kernel done.

    About the time until the kernel starts, and more: its own few us and the poll that sees it are in it.
    """
    samples: list[int] = []

    def task() -> None:
        for _ in range(repeats):
            done = device.Event()
            device.spin(1)
            launched = host.now_ns()
            done.record()
            while not done.query():
                pass
            samples.append(host.now_ns() - launched)
            time.sleep(0)

    host.run({"launcher": task})
    return samples


def graph_cost(host: Host, device: Device, engine: EngineProfile) -> tuple[GraphCost, dict[int, float]]:
    """Host time of a replay against its nodes: the fit, and the points it is of."""
    points: dict[int, float] = {}
    for nodes in NODES:
        spec = what_if_spec(engine, gpu_ns=nodes * 1000, launches=nodes, launch=NOTHING, graph=NOTHING)
        step, batch = device.model(replace(spec, plan_sync=False)), FixedBatch(device, 1, 1)
        points[nodes] = timed(host, device, lambda step=step, batch=batch: step.forward(batch)).submit_ns  # type: ignore[misc]
    fixed, node = line(list(points), list(points.values()))
    return GraphCost(fixed_ns=round(fixed), node_ns=node), points


@dataclass(frozen=True, kw_only=True)
class CopyFit:
    """Device-to-host copies into pinned memory: time = latency + bytes / bandwidth, and the points it is of."""

    latency_ns: int
    bytes_per_s: float
    points: dict[int, float]


def copy_fit(host: Host, device: Device, sizes: Sequence[int] = COPY_BYTES) -> CopyFit:
    """By device events. The bandwidth is that of the largest copies, the latency that of the smallest."""
    points: dict[int, float] = {}
    for nbytes in sizes:
        values: Any = device_bytes(device.tensor_device, nbytes)
        if values is None:
            import torch

            values = torch.zeros(nbytes, dtype=torch.uint8)
        copy = lambda values=values, nbytes=nbytes: device.to_host(values, nbytes=nbytes)  # noqa: E731
        points[nbytes] = timed(host, device, copy).device_ns or 0.0
    latency = median(list(points.values())[:4])
    largest = list(points)[-3:]
    _, ns_per_byte = line(largest, [points[b] for b in largest])
    return CopyFit(latency_ns=round(latency), bytes_per_s=1e9 / ns_per_byte if ns_per_byte > 0 else 0.0, points=points)


def interference(host: Host, device: Device) -> float:
    """Time of two spins on two streams at once over that of one: 1 side by side, 2 one after the other."""
    streams = device.Stream(), device.Stream()

    def on(count: int) -> float:
        samples: list[float] = []

        def task() -> None:
            for _ in range(5):
                start = host.now_ns()
                for stream in streams[:count]:
                    with device.stream(stream):
                        device.spin(SPIN_NS)
                device.synchronize()
                samples.append(host.now_ns() - start)

        host.run({"launcher": task})
        return median(samples)

    return on(2) / on(1)
