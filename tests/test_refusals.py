"""Each reason for which there is no GPU gives one line that says what to install or set.

The texts are what torch raises or warns, as c10/cuda/CUDAFunctions.cpp writes them and users report them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench.devices.refusals import INSTEAD, advice, no_gpu, shortened

TOO_OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version "
    "of the CUDA driver. (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:109.)"
)
NO_DRIVER = (
    "CUDA initialization: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
    "installed a driver from http://www.nvidia.com/Download/index.aspx"
)
UNKNOWN = (
    "CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
    "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero. "
    "(Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)"
)
INITIALIZATION = "CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu."


def unexpected(code: int, text: str) -> str:
    return (
        "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before "
        f"calling NumCudaDevices() that might have already set an error? Error {code}: {text} "
        "(Triggered internally at /opt/conda/conda-bld/pytorch_1716905979055/work/c10/cuda/CUDAFunctions.cpp:108.)"
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The /dev, /proc and /sys of a machine without any driver."""
    for folder in ("dev", "proc/driver/nvidia", "sys/module"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def working(root: Path) -> Path:
    """With the driver of an NVIDIA GPU, and the right to use it."""
    (root / "proc/driver/nvidia/version").write_text("NVRM version")
    (root / "dev/nvidiactl").touch()
    return root


@pytest.mark.parametrize(
    ("text", "why", "do"),
    [
        (
            TOO_OLD,
            "the driver supports CUDA 11.4 and torch was built for 12.8",
            "update the driver, or install a torch build for CUDA 11.4 or older",
        ),
        (
            NO_DRIVER,
            "CUDA initialization: Found no NVIDIA driver on your system",
            "install an NVIDIA driver (nvidia-smi must work)",
        ),
        (
            UNKNOWN,
            "CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. "
            "changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero",
            "make /dev/nvidia-uvm with nvidia-modprobe -u -c=0, and let CUDA_VISIBLE_DEVICES name only GPUs that exist",
        ),
        (
            INITIALIZATION,
            "CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu",
            "make /dev/nvidia-uvm with nvidia-modprobe -u -c=0, and let CUDA_VISIBLE_DEVICES name only GPUs that exist",
        ),
        (
            unexpected(304, "OS call failed or operation not supported on this OS"),
            "CUDA initialization: Error 304: OS call failed or operation not supported on this OS",
            "this user may not use all of /dev/nvidia*: start the container with --gpus all, or set the permissions",
        ),
        (
            unexpected(802, "system not yet initialized"),
            "CUDA initialization: Error 802: system not yet initialized",
            "start the fabric manager: systemctl start nvidia-fabricmanager",
        ),
        (
            unexpected(803, "system has unsupported display driver / cuda driver combination"),
            "CUDA initialization: Error 803: system has unsupported display driver / cuda driver combination",
            "libcuda is not that of the loaded driver: reboot after an update, or take cuda-compat out of "
            "LD_LIBRARY_PATH",
        ),
        (
            unexpected(804, "forward compatibility was attempted on non supported HW"),
            "CUDA initialization: Error 804: forward compatibility was attempted on non supported HW",
            "take cuda-compat out of LD_LIBRARY_PATH, or update the driver",
        ),
        (
            unexpected(805, "MPS client failed to connect to the MPS control daemon or the MPS server"),
            "CUDA initialization: Error 805: MPS client failed to connect to the MPS control daemon or the MPS server",
            "start the MPS daemon (nvidia-cuda-mps-control -d) as this user, or unset CUDA_MPS_PIPE_DIRECTORY",
        ),
        (
            unexpected(999, "something new"),
            "CUDA initialization: Error 999: something new",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES",
        ),
    ],
)
def test_what_torch_says(working: Path, text: str, why: str, do: str) -> None:
    assert no_gpu(text, built_for="12.8", environ={}, root=working) == f"torch sees no GPU: {why}; {do}, {INSTEAD}"


def test_no_driver_and_torch_says_nothing(root: Path) -> None:
    assert no_gpu("", environ={}, root=root) == (
        f"torch sees no GPU: no driver is loaded; install an NVIDIA driver (nvidia-smi must work), {INSTEAD}"
    )


def test_a_container_without_the_gpus(working: Path) -> None:
    (working / "dev/nvidiactl").unlink()
    assert no_gpu("", environ={}, root=working) == (
        "torch sees no GPU: there is no /dev/nvidiactl, though the driver is loaded; "
        f"start the container with --gpus all, or load the device files with nvidia-modprobe, {INSTEAD}"
    )


@pytest.mark.parametrize("text", ["", UNKNOWN, unexpected(304, "OS call failed")])
def test_no_permission(working: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(working / "dev/nvidiactl"))  # as not root
    assert no_gpu(text, environ={}, root=working) == (
        "torch sees no GPU: no permission for /dev/nvidiactl; "
        f"add this user to the group of /dev/nvidia*, or start the container with --gpus all, {INSTEAD}"
    )


@pytest.mark.parametrize("value", ["", "-1", "none"])
def test_hidden_by_a_variable(working: Path, value: str) -> None:
    assert no_gpu("", environ={"CUDA_VISIBLE_DEVICES": value}, root=working) == (
        f"torch sees no GPU: CUDA_VISIBLE_DEVICES={value} hides every one; unset CUDA_VISIBLE_DEVICES, {INSTEAD}"
    )


def test_a_variable_that_names_a_gpu_hides_none(working: Path) -> None:
    assert no_gpu("", environ={"CUDA_VISIBLE_DEVICES": "7"}, root=working) == (
        f"torch sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, {INSTEAD}"
    )


def test_rocm_is_not_called_cuda(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(**environ: str) -> str:
        return no_gpu("", hip="6.2", environ=environ, root=root)

    assert line() == (
        f"torch sees no GPU: no driver is loaded; install the amdgpu driver (rocm-smi must work), {INSTEAD}"
    )
    assert line(HIP_VISIBLE_DEVICES="-1").startswith("torch sees no GPU: HIP_VISIBLE_DEVICES=-1 hides every one; unset")
    (root / "sys/module/amdgpu").mkdir()
    assert line() == (
        "torch sees no GPU: there is no /dev/kfd, though the driver is loaded; "
        f"start the container with --device /dev/kfd --device /dev/dri, {INSTEAD}"
    )
    (root / "dev/kfd").touch()
    assert line() == f"torch sees no GPU; check rocm-smi and HIP_VISIBLE_DEVICES, {INSTEAD}"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert line() == (
        "torch sees no GPU: no permission for /dev/kfd; add this user to the groups render and video, "
        f"or start the container with --group-add of both, {INSTEAD}"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "nvidia-smi -c DEFAULT"),
        ("CUDA error: no kernel image is available for execution on the device", "install a torch build"),
        ("CUDA error: out of memory", "free its memory"),
        ("CUDA error: uncorrectable ECC error encountered", "Xid lines in dmesg"),
        ("CUDA error: MPS server is not ready to accept new MPS client requests", "nvidia-cuda-mps-control"),
        ("CUDA error: a new one", "check it"),
    ],
)
def test_a_gpu_that_fails_when_opened(text: str, what: str) -> None:
    assert what in advice(text, "check it")


@given(st.text(max_size=300))
def test_whatever_the_text_it_is_one_line(text: str) -> None:
    line = no_gpu(text, environ={}, root=Path("/nowhere"))
    assert line.startswith("torch sees no GPU")
    assert line.endswith(INSTEAD)
    assert len(line.splitlines()) == 1
    assert shortened(shortened(text)) == shortened(text)
