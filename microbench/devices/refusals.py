"""Why there is no GPU, and what to install or set: from what torch says and from what the machine shows.

The texts are those of c10/cuda/CUDAFunctions.cpp in PyTorch and of cudaGetErrorString (CUDA runtime API, error codes).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INSTEAD = "or measure on a modelled GPU (real+sim:a100-80g)"

_ADVICE = (
    (r"too old \(found version", "update the driver, or install a torch build for an older CUDA"),
    (r"Found no NVIDIA driver", "install an NVIDIA driver (nvidia-smi must work)"),
    (r"Error 802|system not yet initialized", "start the fabric manager: systemctl start nvidia-fabricmanager"),
    (
        r"Error 803|unsupported display driver",
        "libcuda is not that of the loaded driver: reboot after an update, or take cuda-compat out of LD_LIBRARY_PATH",
    ),
    (r"Error 804|forward compatibility", "take cuda-compat out of LD_LIBRARY_PATH, or update the driver"),
    (
        r"Error 80[5-8]|\bMPS\b",
        "start the MPS daemon (nvidia-cuda-mps-control -d) as this user, or unset CUDA_MPS_PIPE_DIRECTORY",
    ),
    (
        r"Error 304|OS call failed",
        "this user may not use all of /dev/nvidia*: start the container with --gpus all, or set the permissions",
    ),
    (
        r"unknown error|driver initialization failed",
        "make /dev/nvidia-uvm with nvidia-modprobe -u -c=0, and let CUDA_VISIBLE_DEVICES name only GPUs that exist",
    ),
    (
        r"busy or unavailable",
        "end the process that holds it (nvidia-smi), or allow several (nvidia-smi -c DEFAULT)",
    ),
    (r"no kernel image", "install a torch build with kernels for this GPU"),
    (r"out of memory", "free its memory: nvidia-smi lists the processes"),
    (r"ECC|unspecified launch failure|device-side|illegal|lost", "look for Xid lines in dmesg; it may need a reset"),
)


@dataclass(frozen=True)
class Vendor:
    """Where a vendor's driver shows, and the tool and variables that go with it."""

    name: str
    tool: str
    variables: tuple[str, ...]
    node: str
    loaded: str
    driver: str
    container: str
    permission: str


NVIDIA = Vendor(
    name="CUDA",
    tool="nvidia-smi",
    variables=("CUDA_VISIBLE_DEVICES",),
    node="dev/nvidiactl",
    loaded="proc/driver/nvidia/version",
    driver="install an NVIDIA driver (nvidia-smi must work)",
    container="start the container with --gpus all, or load the device files with nvidia-modprobe",
    permission="add this user to the group of /dev/nvidia*, or start the container with --gpus all",
)
AMD = Vendor(
    name="ROCm",
    tool="rocm-smi",
    variables=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    node="dev/kfd",
    loaded="sys/module/amdgpu",
    driver="install the amdgpu driver (rocm-smi must work)",
    container="start the container with --device /dev/kfd --device /dev/dri",
    permission="add this user to the groups render and video, or start the container with --group-add of both",
)


def vendor(hip: str | None) -> Vendor:
    """Of the torch build whose `torch.version.hip` this is."""
    return AMD if hip else NVIDIA


def shortened(text: object) -> str:
    """The line that says what happened, without where in the source and without torch's guess at the reason."""
    line = next(iter(str(text).strip().splitlines()), "")
    line = re.sub(r"\s*\(Triggered internally at .*", "", line)
    line = re.sub(r"^(CUDA initialization: )?Unexpected error from .*?(?=Error \d+)", r"\1", line)
    line = re.sub(r"\. Please .*", "", line)
    return line.rstrip(". ")


def advice(text: str, otherwise: str) -> str:
    """What to do about an error text of CUDA or torch."""
    return next((what for pattern, what in _ADVICE if re.search(pattern, text)), otherwise)


def no_gpu(
    text: str,
    *,
    hip: str | None = None,
    built_for: str | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> str:
    """One line for a torch that sees no GPU. Without a driver torch says nothing, so the machine is looked at, too.

    text: what torch warned of or raised, if anything. hip, built_for: `torch.version.hip` and `.cuda`. root: where
    /dev, /proc and /sys are.
    """
    from_whom = vendor(hip)
    what = shortened(text)
    too_old = re.search(r"too old \(found version (\d+)\)", text)
    hidden = next((name for name in from_whom.variables if environ.get(name, "0").strip() in _NOTHING), None)
    node, loaded = root / from_whom.node, (root / from_whom.loaded).exists()
    if too_old:
        found = f"{int(too_old[1]) // 1000}.{int(too_old[1]) % 1000 // 10}"
        why = f": the driver supports CUDA {found} and torch was built for {built_for}"
        do = f"update the driver, or install a torch build for CUDA {found} or older"
    elif hidden:
        why, do = f": {hidden}={environ[hidden]} hides every one", f"unset {hidden}"
    elif node.exists() and not os.access(node, os.R_OK | os.W_OK):
        why, do = f": no permission for /{from_whom.node}", from_whom.permission
    elif what:
        why, do = f": {what}", advice(text, f"check {from_whom.tool} and {from_whom.variables[0]}")
    elif not node.exists():
        why = f": there is no /{from_whom.node}, though the driver is loaded" if loaded else ": no driver is loaded"
        do = from_whom.container if loaded else from_whom.driver
    else:
        why, do = "", f"check {from_whom.tool} and {from_whom.variables[0]}"
    return f"torch sees no GPU{why}; {do}, {INSTEAD}"


_NOTHING = ("", "-1", "none", "void", "NoDevFiles")
"""Values of the variables that leave no device."""
