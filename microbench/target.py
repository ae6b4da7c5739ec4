"""Targets: which host and which device, named by a string such as `real+sim:a100-80g`.

The only place that opens a host or device by name; what it opens is imported late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from microbench.errors import UsageError
from synthetic_models import GPUS, Gpu, gpu

if TYPE_CHECKING:
    from microbench.engines.prices import HostProfile
    from microbench.protocols import Device, Host

FORMS = "virtual+sim:GPU, real+sim:GPU, real+torch (GPU: " + ", ".join(GPUS) + ")"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A host and a device. `gpu` is the modelled one; None on a real GPU."""

    host: str
    device: str
    gpu: Gpu | None = None

    def __str__(self) -> str:
        return f"{self.host}+{self.device}" + (f":{self.gpu.name}" if self.gpu else "")

    @property
    def says(self) -> str:
        """What was measured and what modelled, in words for every place that shows a number."""
        host = "real host (measured)" if self.host == "real" else "virtual host (computed)"
        return f"{host}, " + (f"modelled GPU {self.gpu.name}" if self.gpu else "CUDA GPU (measured)")


def parse_target(text: str) -> Target:
    """The target of this name. Raises UsageError listing the known forms."""
    host, plus, rest = text.partition("+")
    device, _, model = rest.partition(":")
    if host not in ("real", "virtual") or not plus or device not in ("sim", "torch"):
        raise UsageError(f"unknown target {text!r}; known: {FORMS}")
    if device == "torch":
        if host == "virtual" or model:
            raise UsageError(f"target {text!r}: a CUDA GPU runs in real time; use real+torch")
        return Target(host=host, device=device)
    if not model:
        raise UsageError(f"target {text!r} names no GPU to model; use for example {text.rstrip(':')}:a100-80g")
    return Target(host=host, device=device, gpu=gpu(model))


def open_target(
    target: Target,
    *,
    profile: HostProfile | None = None,
    switch_interval_s: float | None = None,
    spin_waits: bool = False,
) -> tuple[Host, Device]:
    """A fresh host and device. `profile` prices the virtual host (default: the shipped one).

    spin_waits: on a modelled GPU, events made without `blocking=True` burn a core while waited for.
    Raises Unavailable when this machine lacks what the target needs.
    """
    host: Host
    if target.host == "virtual":
        from microbench.engines.prices import shipped_profile
        from microbench.hosts.virtual import VirtualHost

        profile = profile or shipped_profile()
        host = VirtualHost(
            wake_ns=profile.wake_ns,
            nap_wake_ns=profile.nap_wake_ns,
            signal_ns=profile.signal_ns,
            overshoot_ns=profile.overshoot_ns,
            queue_ns=profile.queue_ns,
            gil=profile.gil,
            switch_interval_ns=round((0.005 if switch_interval_s is None else switch_interval_s) * 1e9),
        )
    else:
        from microbench.hosts.real import RealHost

        host = RealHost(switch_interval_s=switch_interval_s)
    if target.gpu is None:
        from microbench.devices.torch_cuda import open_torch

        return host, open_torch(host)
    from microbench.devices.sim import SimDevice

    gpu_model = target.gpu
    return host, SimDevice(
        host, name=gpu_model.name, launch_latency_ns=gpu_model.launch_latency_ns, spin_waits=spin_waits
    )


def default_target(gpu_name: str) -> Target:
    """`real+torch` where CUDA works, else the real host with `gpu_name` modelled."""
    import torch

    return parse_target("real+torch" if torch.cuda.is_available() else f"real+sim:{gpu_name}")
