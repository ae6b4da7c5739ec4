"""Targets: which host and which device, named by a string such as `real+sim:a100-80g`.

The only place that opens a host or device by name; what it opens is imported late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microbench.errors import Unavailable, UsageError
from synthetic_models import GPUS, Gpu, UnknownName, gpu

if TYPE_CHECKING:
    from microbench.devices.card import DeviceCard
    from microbench.engines.prices import HostProfile
    from microbench.protocols import Device, Host

FORMS = (
    "virtual+sim:GPU, real+sim:GPU, real+torch, real+cupy (GPU: "
    + ", ".join(GPUS)
    + ", or a device file NAME.json; a further card of this machine: real+torch:1)"
)
SIMULATED = "simulated"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A host and a device. `gpu` is the modelled one, None on a real GPU; `card` and `file` where it was calibrated.

    index: which card of this machine. simulated: the CUDA code over a stand-in for its library, to try the code alone.
    """

    host: str
    device: str
    gpu: Gpu | None = None
    card: DeviceCard | None = None
    file: str | None = None
    index: int = 0
    simulated: bool = False

    def __str__(self) -> str:
        if self.simulated:
            return f"{self.host}+{self.device}:{SIMULATED}"
        which = self.file or (self.gpu.name if self.gpu else str(self.index or ""))
        return f"{self.host}+{self.device}" + (f":{which}" if which else "")

    @property
    def modelled(self) -> bool:
        """No number on this target is a measurement of a GPU."""
        return self.gpu is not None or self.simulated

    @property
    def says(self) -> str:
        """What was measured and what modelled, in words for every place that shows a number."""
        host = "real host (measured)" if self.host == "real" else "virtual host (computed)"
        if self.simulated:
            return f"{host}, simulated {self.device} library: no GPU, and no model of one; only the code is tried"
        if self.gpu is None:
            return f"{host}, CUDA GPU (measured)"
        return f"{host}, modelled GPU {self.gpu.name}" + (f" calibrated {_when(self.card)}" if self.card else "")


def _when(card: DeviceCard) -> str:
    return card.measured.get("date", "at an unknown date")


def parse_target(text: str) -> Target:
    """The target of this name; a device file is read. Raises UsageError listing the known forms."""
    host, plus, rest = text.partition("+")
    device, _, model = rest.partition(":")
    if host not in ("real", "virtual") or not plus or device not in ("sim", "torch", "cupy"):
        raise UsageError(f"unknown target {text!r}; known: {FORMS}")
    if device != "sim":
        if host == "virtual":
            raise UsageError(f"target {text!r}: a CUDA GPU runs in real time; use real+{device}")
        if model == SIMULATED:
            return Target(host=host, device=device, simulated=True)
        if model and not (model.isascii() and model.isdigit() and len(model) <= 3):
            raise UsageError(
                f"target {text!r}: behind real+{device} comes the index of a card; use for example real+{device}:1"
            )
        return Target(host=host, device=device, index=int(model or 0))
    if not model:
        raise UsageError(f"target {text!r} names no GPU to model; use for example {text.rstrip(':')}:a100-80g")
    if model.endswith(".json"):
        from microbench.devices.card import read_card

        card = read_card(Path(model))
        return Target(host=host, device=device, gpu=card.gpu, card=card, file=model)
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
            dispatch_factor=profile.dispatch_factor,
            overshoot_ns=profile.overshoot_ns,
            queue_ns=profile.queue_ns,
            gil=profile.gil,
            switch_interval_ns=round((0.005 if switch_interval_s is None else switch_interval_s) * 1e9),
        )
    else:
        from microbench.hosts.real import RealHost

        host = RealHost(switch_interval_s=switch_interval_s)
    if target.simulated:
        return host, _simulated(target, host)
    if target.device == "torch":
        from microbench.devices.torch_cuda import open_torch

        return host, open_torch(host, target.index)
    if target.device == "cupy":
        from microbench.devices.cupy_cuda import open_cupy

        return host, open_cupy(host, target.index)
    from microbench.devices.sim import SimDevice

    assert target.gpu is not None
    measured: dict[str, Any] = {}
    if target.card:
        card = target.card
        measured = {
            "copy_latency_ns": card.copy_latency_ns,
            "copy_bytes_per_s": card.copy_bytes_per_s,
            "exclusive": card.exclusive,
        }
    return host, SimDevice(
        host,
        name=target.gpu.name,
        launch_latency_ns=target.gpu.launch_latency_ns,
        spin_waits=spin_waits,
        **measured,
    )


def _simulated(target: Target, host: Host) -> Device:
    """The CUDA device's own code over a module that has its library's names and a modelled GPU's timelines."""
    from microbench.devices.sim import SimDevice

    timelines = SimDevice(host, name=SIMULATED)
    device: TorchDevice | CupyDevice
    if target.device == "torch":
        from microbench.devices.torch_cuda import TorchDevice
        from microbench.devices.torch_style import SimulatedCuda

        device = TorchDevice(host, module=SimulatedCuda(timelines), tensor_device="cpu")
    else:
        from microbench.devices.cupy_cuda import CupyDevice
        from microbench.devices.cupy_style import SimulatedCupy

        device = CupyDevice(host, module=SimulatedCupy(timelines), tensor_device="cpu")
    device.modelled = True
    return device


def visible_gpu() -> Gpu | None:
    """The CUDA GPU of this machine, None without one.

    A card that isn't among the known ones gets its own name and memory, and the A100's speeds with a source that says
    so.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    name: str = torch.cuda.get_device_name(0)
    try:
        return gpu(name)
    except UnknownName:
        return replace(
            gpu("a100-80g"),
            name=name.lower().replace(" ", "-"),
            memory_bytes=torch.cuda.get_device_properties(0).total_memory,
            source=("speeds of a100-80g: this card is not among the known ones, so modelled times are not its own",),
            fit_error=None,
        )


def choose(target_name: str | None, gpu_name: str | None) -> tuple[Target, Gpu]:
    """The target to measure on, and the GPU that is modelled beside it.

    Without a target: the CUDA GPU if there is one (and it is the one named), else this host with the named GPU (default
    a100-80g) modelled. Raises UsageError when the two names are of different GPUs.
    """
    card = gpu(gpu_name) if gpu_name else None
    if target_name and (modelled := parse_target(target_name).gpu):
        if card and card != modelled:
            raise UsageError(f"--gpu {card.name}, but target {target_name} models {modelled.name}; name one GPU")
        return parse_target(target_name), modelled
    here = visible_gpu()
    if target_name:
        target = parse_target(target_name)
        if target.simulated:
            return target, card or gpu("a100-80g")
        if here is None:
            open_target(target)  # says what is missing
            raise Unavailable(f"target {target}: no CUDA GPU is visible")
        if card and card != here:
            raise UsageError(f"--gpu {card.name}, but target {target} is this machine's {here.name}; leave --gpu out")
        return target, here
    if here is not None and card in (None, here):
        return parse_target("real+torch"), here
    card = card or gpu("a100-80g")
    return parse_target(f"real+sim:{card.name}"), card


def default_target() -> Target:
    """`real+torch` where CUDA works, else this host with an A100 modelled."""
    return choose(None, None)[0]
