"""The record of the machine: complete, plain, cheap, and never a reason to fail."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from microbench import environment as module
from microbench.environment import differences, environment
from microbench.nvml import GpuState

ROOT = Path(__file__).resolve().parent.parent


def test_every_field_is_a_json_scalar_or_a_list_of_them() -> None:
    fields = environment()
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    for key, value in fields.items():
        for part in value if isinstance(value, list) else [value]:
            assert part is None or isinstance(part, bool | int | float | str), key


def test_the_fields_that_results_need() -> None:
    fields = environment()
    expected = {
        "project_version", "started_utc", "command", "python_version", "python_build", "gil_enabled",
        "free_threaded_build", "switch_interval_ns", "platform", "kernel", "cpu_model", "logical_cores", "affinity",
        "governor", "load_average", "hypervisor", "memory_total_bytes", "torch_version", "numpy_version", "variables",
        "cupy_version", "pytest_benchmark_version", "gpu", "gpu_driver", "gpu_sm_clock_mhz", "git_commit", "git_dirty",
    }  # fmt: skip
    assert expected <= fields.keys()
    assert fields["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert fields["numpy_version"] == __import__("numpy").__version__
    assert fields["logical_cores"] == os.cpu_count()
    assert str(fields["started_utc"]).endswith("+00:00")
    assert fields["command"] == sys.orig_argv


def test_the_keys_do_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = list(environment())

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("planted")

    for name in ("_cpu", "_memory", "_gpu", "_git"):
        monkeypatch.setattr(module, name, broken)
    monkeypatch.setattr(os, "getloadavg", broken)
    monkeypatch.setattr(os, "sched_getaffinity", broken, raising=False)
    monkeypatch.setattr(platform, "platform", broken)
    monkeypatch.setattr(metadata, "version", broken)
    fields = environment()
    assert list(fields) == usual
    assert fields["cpu_model"] is fields["gpu"] is fields["git_commit"] is fields["load_average"] is None
    assert fields["usable_cores"] == os.cpu_count()


def test_it_is_cheap_and_imports_no_torch() -> None:
    code = (
        "import sys, microbench.environment as e; f = e.environment();"
        "print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules], f['gpu'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] none"
    times_s = []
    for _ in range(3):
        start = time.perf_counter()
        environment()
        times_s.append(time.perf_counter() - start)
    assert min(times_s) < 0.3


def test_switch_interval_is_read_when_asked() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.0001)
        assert environment()["switch_interval_ns"] == 100_000
    finally:
        sys.setswitchinterval(before)


def test_gil_of_a_free_threaded_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert environment()["gil_enabled"] is False
    monkeypatch.delattr(sys, "_is_gil_enabled")
    assert environment()["gil_enabled"] is True


def test_only_variables_that_matter_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OMP_NUM_THREADS", "3"), ("CUDA_LAUNCH_BLOCKING", "1"), ("MY_SECRET_TOKEN", "x")):
        monkeypatch.setenv(name, value)
    variables = environment()["variables"]
    assert isinstance(variables, list)
    assert {"OMP_NUM_THREADS=3", "CUDA_LAUNCH_BLOCKING=1"} <= set(variables)
    assert not any("SECRET" in str(variable) for variable in variables)


@pytest.mark.skipif(os.name != "posix", reason="only there may a variable hold other bytes than text")
def test_variables_and_arguments_that_are_not_utf8_stay_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMP_PLANTED", "a\udcffb")
    monkeypatch.setattr(sys, "orig_argv", ["python", "\udcfe"])
    fields = environment()
    assert "OMP_PLANTED=a\\udcffb" in str(fields["variables"]).replace("\\\\", "\\")
    json.dumps(fields, ensure_ascii=False).encode("utf-8")


# Linux files


def test_cpu_of_the_first_block_only(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu hypervisor\n\nmodel name\t: Other\n")
    assert module._cpu(str(file)) == {"model": "Fast CPU", "hypervisor": True}
    file.write_text("model name : Bare CPU\nflags : fpu\n")
    assert module._cpu(str(file)) == {"model": "Bare CPU", "hypervisor": False}


def test_cpu_of_an_arm_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\nFeatures : fp\n")
    assert module._cpu(str(file)) == {"model": "aarch64 implementer 0x41 part 0xd4f", "hypervisor": None}


def test_cpu_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert module._cpu(str(tmp_path / "none")) == {"model": "arm", "hypervisor": None}


def test_memory(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  1000 kB\nMemFree: 5 kB\nMemAvailable:  10 kB\n")
    assert module._memory(str(file)) == {"MemTotal": 1_024_000, "MemAvailable": 10_240}


# git


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nname = "overlap-microbench"\n')
    try:
        run = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", "-C", str(root)]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run([*run, *command], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no git")
    return root


def test_git_commit_and_dirty(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    (checkout / "untracked").write_text("x")
    assert module._git(checkout) == {"git_commit": head.stdout.strip(), "git_dirty": False}
    (checkout / "pyproject.toml").write_text('name = "overlap-microbench" # changed\n')
    assert module._git(checkout) == {"git_commit": head.stdout.strip(), "git_dirty": True}
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert module._git(checkout)["git_commit"] == head.stdout.strip()


def test_git_of_another_project_is_not_ours(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text('name = "other"\n')
    assert module._git(checkout) == {"git_commit": None, "git_dirty": None}


def test_no_git_is_no_failure(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._git(tmp_path) == {"git_commit": None, "git_dirty": None}
    monkeypatch.setattr(module, "_ROOT", checkout)
    monkeypatch.setenv("PATH", str(tmp_path))
    fields = environment()
    assert fields["git_commit"] is fields["git_dirty"] is None


# GPU: torch and NVML as stand-ins (NVML itself: test_nvml)


def fake_torch(*, available: bool = True) -> Any:
    properties = SimpleNamespace(
        total_memory=143 << 30, multi_processor_count=132, major=9, minor=0, uuid="1234",
        pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0,
    )  # fmt: skip
    cuda = SimpleNamespace(
        is_available=lambda: available,
        current_device=lambda: 0,
        get_device_properties=lambda _: properties,
        get_device_name=lambda _: "NVIDIA H200",
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="12.8"))


def test_gpu_is_none_without_torch_or_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert environment()["gpu"] == "none"
    monkeypatch.setitem(sys.modules, "torch", fake_torch(available=False))
    assert environment()["gpu"] == "none"


def test_gpu_with_driver_and_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def gpu_state(uuid: str | None, bus_id: str | None) -> GpuState:
        asked.append((uuid, bus_id))
        return GpuState(
            driver="570.124.06",
            sm_clock_mhz=1200,
            memory_clock_mhz=2619,
            sm_clock_max_mhz=1980,
            memory_clock_max_mhz=2619,
            throttle_bits=1 << 40,
        )

    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setattr(module, "gpu_state", gpu_state)
    fields = {key: value for key, value in environment().items() if key.startswith(("gpu", "cuda"))}
    assert fields == {
        "gpu": "NVIDIA H200",
        "cuda_version": "12.8",
        "gpu_uuid": "GPU-1234",
        "gpu_memory_bytes": 143 << 30,
        "gpu_sm_count": 132,
        "gpu_compute_capability": "9.0",
        "gpu_driver": "570.124.06",
        "gpu_sm_clock_mhz": 1200,
        "gpu_memory_clock_mhz": 2619,
        "gpu_sm_clock_max_mhz": 1980,
        "gpu_memory_clock_max_mhz": 2619,
        "gpu_power_limit_mw": None,
        "gpu_throttle_reasons": 1 << 40,
    }
    assert asked == [("GPU-1234", "00000000:3b:00.0")]


def test_gpu_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setattr(module, "gpu_state", lambda *_: None)
    monkeypatch.setattr(module, "_kernel_driver", lambda: "550.54.14")
    fields = environment()
    assert (fields["gpu"], fields["gpu_driver"], fields["gpu_sm_clock_mhz"]) == ("NVIDIA H200", "550.54.14", None)


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC 12.2.0\n",
            "550.54.14",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n", "570.124.06"),
        ("something else\n", None),
    ],
)
def test_driver_of_the_kernel_module(tmp_path: Path, text: str, driver: str | None) -> None:
    file = tmp_path / "version"
    file.write_text(text)
    assert module._kernel_driver(str(file)) == driver


# Differences

ONE: dict[str, Any] = {
    "cpu_model": "A", "logical_cores": 8, "usable_cores": 8, "python_version": "3.11.7", "gil_enabled": True,
    "switch_interval_ns": 5_000_000, "torch_version": "2.9", "gpu": "NVIDIA H200", "gpu_driver": "570",
    "gpu_sm_clock_mhz": 1980, "gpu_sm_clock_max_mhz": 1980,
}  # fmt: skip


def test_an_environment_does_not_differ_from_itself() -> None:
    fields = environment()
    assert differences(fields, environment()) == []
    assert differences(json.loads(json.dumps(fields)), fields) == []
    assert differences({}, {}) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"cpu_model": "B"}, "CPU: A / B"),
        ({"logical_cores": 4}, "logical cores: 8 / 4"),
        ({"usable_cores": 2}, "usable cores: 8 / 2"),
        ({"python_version": "3.14.0"}, "Python: 3.11.7 / 3.14.0"),
        ({"gil_enabled": False}, "GIL enabled: yes / no"),
        ({"switch_interval_ns": 100_000}, "switch interval in ns: 5000000 / 100000"),
        ({"torch_version": None}, "torch: 2.9 / unknown"),
        ({"gpu": "none"}, "GPU: NVIDIA H200 / none"),
        ({"gpu_driver": "580"}, "GPU driver: 570 / 580"),
        ({"gpu_sm_clock_max_mhz": 1755}, "highest SM clock in MHz: 1980 / 1755"),
        ({"gpu_sm_clock_mhz": 1200}, "SM clock in MHz: 1980 / 1200"),
    ],
)
def test_each_difference_is_one_line(change: dict[str, Any], line: str) -> None:
    assert differences(ONE, ONE | change) == [line]
    assert len(differences(ONE | change, ONE)) == 1


def test_what_does_not_count_as_a_difference() -> None:
    other = ONE | {
        "gpu_sm_clock_mhz": 1965,
        "load_average": [9, 9, 9],
        "started_utc": "x",
        "command": ["y"],
        "gpu_uuid": "z",
    }
    assert differences(ONE, other) == []
    assert differences(ONE, ONE | {"gpu_sm_clock_mhz": None}) == []
