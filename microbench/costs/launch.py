"""Kernel launch: one of many eager launches, and the replay of a graph, on three clocks.

On a modelled GPU the cost asked for is an input; the host's rows show what the host really spent on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from microbench.costs.clocks import clock_rows, measured
from microbench.costs.cost import Cost
from microbench.devices.spec import StepSpec
from microbench.protocols import Device, Host


class OneRow:
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


def launch(host: Host, device: Device, spec: StepSpec, *, steps: int = 20) -> list[Cost]:
    """Submit, device and completion time of one decode forward, each divided by its launches (one, for a graph)."""
    model, batch = device.model(replace(spec, plan_sync=False)), OneRow(device.tensor_device)
    launches = 1 if spec.graph else len(spec.forward_ns)
    clocks = measured(host, device, lambda: model.forward(batch), times=steps)
    variant = f"graph replay of {len(spec.forward_ns)} kernels" if spec.graph else "eager, one of many"
    return clock_rows(
        device, clocks, group="kernel launch", variant=variant, divide_by=launches, launches=float(launches)
    )
