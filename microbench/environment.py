"""What the machine was: a flat record of everything that two results need in common to be compared."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from microbench.nvml import gpu_state, torch_ids

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar]
T = TypeVar("T")

DISTRIBUTION = "overlap-microbench"
VARIABLE_PREFIXES = ("CUDA_", "PYTORCH_", "PYTHON", "OMP_")
CLOCK_TOLERANCE = 0.10
"""Share by which two readings of a clock that idles and boosts may differ before they count as different."""

_ROOT = Path(__file__).resolve().parent.parent
_GPU_FIELDS = (
    "gpu_uuid",
    "gpu_memory_bytes",
    "gpu_sm_count",
    "gpu_compute_capability",
    "gpu_driver",
    "gpu_sm_clock_mhz",
    "gpu_memory_clock_mhz",
    "gpu_sm_clock_max_mhz",
    "gpu_memory_clock_max_mhz",
    "gpu_power_limit_mw",
    "gpu_throttle_reasons",
)

# Label, field. The order is that of the lines of `differences`.
_COMPARED = (
    ("CPU", "cpu_model"),
    ("logical cores", "logical_cores"),
    ("usable cores", "usable_cores"),
    ("Python", "python_version"),
    ("Python implementation", "python_implementation"),
    ("free-threaded build", "free_threaded_build"),
    ("GIL enabled", "gil_enabled"),
    ("switch interval in ns", "switch_interval_ns"),
    ("torch", "torch_version"),
    ("GPU", "gpu"),
    ("GPU driver", "gpu_driver"),
    ("highest SM clock in MHz", "gpu_sm_clock_max_mhz"),
    ("highest memory clock in MHz", "gpu_memory_clock_max_mhz"),
)
_COMPARED_CLOCKS = (("SM clock in MHz", "gpu_sm_clock_mhz"), ("memory clock in MHz", "gpu_memory_clock_mhz"))


def environment() -> dict[str, Value]:
    """The environment of this process as JSON scalars and lists; every field is always there, None where unknown.

    Never raises and never imports torch: without torch in the process `gpu` is "none". Call it once at the start of a
    run, outside anything timed (it reads files, asks git, and with torch loaded opens the current CUDA device). Units
    are in the names; `load_average` is over 1, 5 and 15 minutes, `gpu_throttle_reasons` the bit mask of NVML.
    """
    cpu = _attempt(_cpu) or {}
    memory = _attempt(_memory) or {}
    affinity = _attempt(lambda: sorted(os.sched_getaffinity(0)))
    loads = _attempt(os.getloadavg)
    variables = (f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(VARIABLE_PREFIXES))
    fields: dict[str, Value] = {
        "project_version": _version(DISTRIBUTION),
        "started_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": [_text(argument) for argument in sys.orig_argv],
        "python_version": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "python_build": " ".join(platform.python_build()),
        "python_compiler": platform.python_compiler(),
        "gil_enabled": _gil_enabled(),
        "free_threaded_build": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "switch_interval_ns": round(sys.getswitchinterval() * 1e9),
        "platform": _attempt(platform.platform),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": cpu.get("model"),
        "hypervisor": cpu.get("hypervisor"),
        "logical_cores": os.cpu_count(),
        "usable_cores": os.cpu_count() if affinity is None else len(affinity),
        "affinity": None if affinity is None else [*affinity],
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_average": None if loads is None else [round(load, 2) for load in loads],
        "memory_total_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "torch_version": _version("torch"),
        "numpy_version": _version("numpy"),
        "cupy_version": _version("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
        "pytest_benchmark_version": _version("pytest-benchmark"),
        "variables": [_text(variable) for variable in variables],
    }
    fields.update(_attempt(_gpu) or _no_gpu() | {"gpu": None})
    fields.update(_attempt(lambda: _git(_ROOT)) or {"git_commit": None, "git_dirty": None})
    return fields


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The fields that make two environments incomparable, one line each ("GPU: X / Y"); empty where they agree.

    Clocks as read at one moment may differ by `CLOCK_TOLERANCE`, and are left out where one side has none.
    """
    lines = []
    for label, key in _COMPARED:
        one, two = a.get(key), b.get(key)
        if one != two:
            lines.append(f"{label}: {_shown(one)} / {_shown(two)}")
    for label, key in _COMPARED_CLOCKS:
        one, two = a.get(key), b.get(key)
        if one is not None and two is not None and abs(one - two) > CLOCK_TOLERANCE * max(one, two):
            lines.append(f"{label}: {_shown(one)} / {_shown(two)}")
    return lines


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _attempt(probe: Callable[[], T]) -> T | None:
    # A record of the machine must not end a run, whatever a driver, a container or another operating system answers.
    try:
        return probe()
    except Exception:
        return None


def _text(value: str) -> str:
    # Arguments and variables that are not UTF-8 arrive as lone surrogates, which no JSON file can hold.
    return value.encode("utf-8", "backslashreplace").decode()


def _read(path: str) -> str | None:
    return _attempt(lambda: Path(path).read_text(errors="replace").strip() or None)


def _version(*distributions: str) -> str | None:
    for name in distributions:
        with contextlib.suppress(Exception):
            return metadata.version(name)
    return None


def _gil_enabled() -> bool:
    probe = getattr(sys, "_is_gil_enabled", None)
    return True if probe is None else bool(probe())


def _cpu(path: str = "/proc/cpuinfo") -> dict[str, Scalar]:
    """Model and hypervisor flag of the first CPU; the flag is None where the file has no x86 flags."""
    fields: dict[str, str] = {}
    try:
        with open(path, errors="replace") as lines:
            # Stops at the first blank line: the kernel takes its time over each CPU, and there may be hundreds.
            for line in lines:
                if not line.strip():
                    break
                key, _, value = line.partition(":")
                fields[key.strip()] = value.strip()
    except OSError:
        return {"model": platform.processor() or None, "hypervisor": None}
    model = fields.get("model name")
    if model is None and "CPU part" in fields:
        model = f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    hypervisor = "hypervisor" in fields["flags"].split() if "flags" in fields else None
    return {"model": model or platform.processor() or None, "hypervisor": hypervisor}


def _memory(path: str = "/proc/meminfo") -> dict[str, int]:
    found = re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in found}


def _git(root: Path) -> dict[str, Value]:
    """Commit of the checkout that this package is imported from, and whether a tracked file differs from it."""
    nothing: dict[str, Value] = {"git_commit": None, "git_dirty": None}
    if not (root / ".git").exists() or DISTRIBUTION not in (root / "pyproject.toml").read_text(encoding="utf-8"):
        return nothing
    # Inside a git hook GIT_DIR points at another repository; and a read must not take the lock of the index.
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "--untracked-files=no"],
        capture_output=True,
        text=True,
        errors="replace",
        env=variables,
        stdin=subprocess.DEVNULL,
        timeout=2,
        check=False,
    )
    commit = re.search(r"^# branch\.oid ([0-9a-f]{40,64})$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or commit is None:
        return nothing
    dirty = any(line and not line.startswith("#") for line in done.stdout.splitlines())
    return {"git_commit": commit[1], "git_dirty": dirty}


def _no_gpu() -> dict[str, Value]:
    fields: dict[str, Value] = {"gpu": "none", "cuda_version": None}
    return fields | dict.fromkeys(_GPU_FIELDS)


def _gpu() -> dict[str, Value]:
    """The current CUDA device of torch, if torch is already loaded; driver and clocks from NVML."""
    fields = _no_gpu()
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return fields
    device = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(device)
    fields["gpu"] = str(torch.cuda.get_device_name(device))
    fields["cuda_version"] = _attempt(lambda: str(torch.version.cuda))
    fields["gpu_memory_bytes"] = _attempt(lambda: int(properties.total_memory))
    fields["gpu_sm_count"] = _attempt(lambda: int(properties.multi_processor_count))
    fields["gpu_compute_capability"] = _attempt(lambda: f"{properties.major}.{properties.minor}")
    fields["gpu_driver"] = _attempt(_kernel_driver)
    uuid, bus_id = torch_ids(properties)
    fields["gpu_uuid"] = uuid
    fields.update(_attempt(lambda: _nvml(uuid, bus_id)) or {})
    return fields


def _nvml(uuid: str | None, bus_id: str | None) -> dict[str, Value]:
    """Driver, clocks, power limit and throttle bits, as far as NVML answers."""
    state = gpu_state(uuid, bus_id)
    if state is None:
        return {}
    fields: dict[str, Value] = {
        "gpu_driver": state.driver,
        "gpu_sm_clock_mhz": state.sm_clock_mhz,
        "gpu_memory_clock_mhz": state.memory_clock_mhz,
        "gpu_sm_clock_max_mhz": state.sm_clock_max_mhz,
        "gpu_memory_clock_max_mhz": state.memory_clock_max_mhz,
        "gpu_power_limit_mw": state.power_limit_mw,
        "gpu_throttle_reasons": state.throttle_bits,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _kernel_driver(path: str = "/proc/driver/nvidia/version") -> str | None:
    found = re.search(r"Kernel Module.*?\s(\d{3,}(?:\.\d+)+)\s", Path(path).read_text())
    return found[1] if found else None
