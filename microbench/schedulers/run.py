"""What a scheduler is given: everything it touches, by value."""

from __future__ import annotations

from dataclasses import dataclass

from microbench.protocols import Device, EngineWork, Host, Model
from microbench.trace import Trace


@dataclass(frozen=True)
class Run:
    """One engine instance on one host and device."""

    host: Host
    device: Device
    model: Model
    work: EngineWork
    trace: Trace


TOKEN_BYTES = 4
