"""CUDA sources compile for the GPU generations in use, through NVRTC from PyPI: no GPU and no toolkit is needed.

Compiling to PTX checks the C++, compiling to a cubin also what is written in assembly.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from synthetic_models.cupy_kernels import HOLD, KERNELS, RELEASED, SOURCE, SPIN, SPIN_BETWEEN, TIMED_OUT, TIMESTAMP

ARCHITECTURES = (80, 90, 100)
"""A100, H100 and H200, B200."""


class CompileError(Exception):
    """Carries NVRTC's log."""


class Nvrtc:
    """The few calls of nvrtc.h that a compilation takes."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise RuntimeError(f"{function}: {self._library.nvrtcGetErrorString(status).decode()}")

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw

    def compile(self, source: str, target: str) -> bytes:
        """PTX for a target like compute_90, a cubin for one like sm_90. Raises CompileError."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        try:
            # CuPy compiles a RawModule as C++17, too.
            options = (f"--gpu-architecture={target}".encode(), b"--std=c++17")
            array = (ctypes.c_char_p * len(options))(*options)
            if self._library.nvrtcCompileProgram(program, len(options), array):
                raise CompileError(self._read("ProgramLog", program).decode().rstrip("\0"))
            return self._read("CUBIN" if target.startswith("sm_") else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))


def installed() -> Path | None:
    """The library of the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, which share the namespace `nvidia`."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations or [] if spec else []
    found = [path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.*")]
    return max(found, default=None)


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    library = installed()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return Nvrtc(library)


def entry(ptx: str, kernel: str) -> str:
    """The PTX of one kernel."""
    found = re.search(rf"\.visible \.entry {kernel}\(.*?\n}}", ptx, re.DOTALL)
    assert found, f"no kernel {kernel}"
    return found[0]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def ptx(request: pytest.FixtureRequest, nvrtc: Nvrtc) -> str:
    text = nvrtc.compile(SOURCE, f"compute_{request.param}").decode()
    assert f".target sm_{request.param}" in text
    return text


def test_every_kernel_is_there_and_no_other(ptx: str) -> None:
    assert re.findall(r"\.visible \.entry (\w+)\(", ptx) == list(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_reads_the_global_timer(ptx: str, kernel: str) -> None:
    assert "%globaltimer" in entry(ptx, kernel)


@pytest.mark.parametrize("kernel", [SPIN, SPIN_BETWEEN])
def test_a_spin_loops_over_the_cycle_counter(ptx: str, kernel: str) -> None:
    loops = loops_of(entry(ptx, kernel))
    assert any("%clock64" in loop for loop in loops)


def test_a_hold_reads_its_flag_and_the_time_in_every_round(ptx: str) -> None:
    flag = re.search(r"ld\.volatile\.\S*[ub]64", entry(ptx, HOLD))
    assert flag
    assert any(flag[0] in loop and "%globaltimer" in loop for loop in loops_of(entry(ptx, HOLD)))


@pytest.mark.parametrize(("kernel", "words"), [(TIMESTAMP, 1), (SPIN_BETWEEN, 2), (HOLD, 2)])
def test_what_is_written_reaches_the_host(ptx: str, kernel: str, words: int) -> None:
    body = entry(ptx, kernel)
    assert len(re.findall(r"st\.volatile\.\S*[ub]64", body)) == words
    assert "membar.sys" in body or "fence.sc.sys" in body or "fence.acq_rel.sys" in body


def test_a_hold_writes_the_outcomes_that_the_host_reads(ptx: str) -> None:
    body = entry(ptx, HOLD)
    for outcome in (RELEASED, TIMED_OUT):
        assert re.search(rf"mov\.[ub]64\s+%rd\d+, {outcome};|st\.volatile\.\S*[ub]64\s+\[%rd\d+\], {outcome};", body)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_assembler_takes_it(nvrtc: Nvrtc, architecture: int) -> None:
    cubin = nvrtc.compile(SOURCE, f"sm_{architecture}")
    assert cubin.startswith(b"\x7fELF")
    assert all(f".text.{kernel}".encode() in cubin for kernel in KERNELS)


def test_a_broken_source_gives_the_compilers_log(nvrtc: Nvrtc) -> None:
    with pytest.raises(CompileError, match=r'kernels\.cu\(\d+\): error: identifier "clock65" is undefined'):
        nvrtc.compile(SOURCE.replace("clock64", "clock65"), "compute_80")


def test_broken_assembly_is_found(nvrtc: Nvrtc) -> None:
    with pytest.raises(CompileError, match="globaltimes"):
        nvrtc.compile(SOURCE.replace("%globaltimer", "%globaltimes"), "sm_80")


def loops_of(body: str) -> list[str]:
    """What stands between each label and a later jump back to it."""
    found = []
    for label in re.finditer(r"^(\$\S+):", body, re.MULTILINE):
        back = re.search(rf"bra(\.uni)?\s+{re.escape(label[1])};", body[label.end() :])
        if back:
            found.append(body[label.end() : label.end() + back.end()])
    return found
