"""What a scheduler is given: everything it touches, by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from microbench.protocols import Device, EngineWork, Host, Model
from microbench.trace import Trace


@dataclass(frozen=True)
class Run:
    """One engine instance on one host and device.

    forward_stream: where overlapping designs run the model; made once an instance, since a CUDA stream brings its own
        workspaces. A run without one makes its own.
    """

    host: Host
    device: Device
    model: Model
    work: EngineWork
    trace: Trace
    forward_stream: Any = None


TOKEN_BYTES = 4
