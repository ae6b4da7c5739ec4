"""Kernel launch: host time of one launch, eager and as a graph replay.

On a modelled GPU the cost asked for is an input; the row shows what the host really spent on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from microbench.costs.cost import Cost, clock_of
from microbench.devices.spec import StepSpec
from microbench.protocols import Device, Host


class _OneRow:
    """The smallest batch a model takes."""

    size = 1

    def __init__(self, device: str) -> None:
        self.input_ids: Any = None
        self.seq_lens: Any = None
        if device != "cpu":
            import torch

            self.input_ids = torch.ones(1, dtype=torch.int64, device=device)
            self.seq_lens = torch.ones(1, dtype=torch.int64, device=device)

    def next_ids(self) -> Any:
        return self.input_ids


def launch(host: Host, device: Device, spec: StepSpec, *, steps: int = 20) -> Cost:
    """Host submit time of one decode forward divided by its launches (one, for a graph), never waiting inside."""
    spec = replace(spec, plan_sync=False)
    model, batch = device.model(spec), _OneRow(device.tensor_device)
    launches = 1 if spec.graph else len(spec.forward_ns)
    samples: list[int] = []

    def measure() -> None:
        for _ in range(steps):
            start = host.now_ns()
            model.forward(batch)
            samples.append((host.now_ns() - start) // launches)
            device.synchronize()

    host.run({"launcher": measure})
    variant = f"graph replay of {len(spec.forward_ns)} kernels" if spec.graph else "eager, one of many"
    return Cost(
        group="kernel launch",
        variant=variant,
        samples_ns=tuple(samples),
        clock=clock_of(device),
        facts={"launches": float(launches)},
    )
