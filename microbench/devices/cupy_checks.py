"""What can stand between a user and a GPU through CuPy, each in one line with what to do about it."""

from __future__ import annotations

import glob
import os
import re
import warnings
from importlib import import_module, metadata
from typing import Any

from microbench.devices.refusals import INSTEAD, NVIDIA, advice, shortened
from microbench.errors import Unavailable

DEVICE_FILES = "/dev/nvidia*"


def import_cupy() -> Any:
    named = (distribution.name or "" for distribution in metadata.distributions())
    found = sorted({name for name in named if re.fullmatch(r"(amd-)?cupy(-(cuda|rocm)[\w-]*)?", name)})
    if len(found) > 1:
        raise Unavailable(
            f"several CuPy packages are installed and overwrite each other ({', '.join(found)}): uninstall all, then "
            "install the extra cuda12 or cuda13"
        )
    try:
        return import_module("cupy")
    except ImportError as error:
        if error.name == "cupy":
            raise Unavailable(
                f"CuPy is not installed; install the extra cuda12 or cuda13 (as in .[cuda12]), {INSTEAD}"
            ) from None
        raise Unavailable(f"CuPy can't be imported: {shortened(error.__cause__ or error)}; install it anew") from error


def check_driver(driver: int, runtime: int) -> None:
    """Both as CUDA counts versions, 12090 for 12.9; a driver of 0 is none. Within a major version, all go together."""
    if not driver:
        raise Unavailable(f"CuPy finds no NVIDIA driver; {NVIDIA.driver}, {INSTEAD}")
    major = driver // 1000
    if major < runtime // 1000:
        raise Unavailable(
            f"the driver supports CUDA {_version(driver)} and CuPy was built for {_version(runtime)}; update the driver"
            + (", or install the extra cuda12 instead" if major == 12 else "")
        )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def torch_cuda() -> Any:
    """torch.cuda where torch sees a GPU, else None."""
    try:
        import torch
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.cuda if torch.cuda.is_available() else None


def advised(error: Exception) -> str:
    """What an error of CUDA or CuPy says, in a line with what to do."""
    line = shortened(error)
    if isinstance(error, OSError):
        return f"{line}; set CUPY_CACHE_DIR to a folder for compiled kernels that can be written"
    closed = [path for path in sorted(glob.glob(DEVICE_FILES)) if not os.access(path, os.R_OK | os.W_OK)]
    if "nvrtc" in line:
        return f"{line}; install CUDA's compiler: pip install 'cupy-cuda12x[ctk]' (or cupy-cuda13x)"
    if closed:
        return f"no permission for {closed[0]}; {NVIDIA.permission}"
    return f"{line}; {advice(line, 'check nvidia-smi and CUDA_VISIBLE_DEVICES')}"
