"""GPUs: what the datasheet promises, which share of it kernels reach, and how long a kernel takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import UnknownName
from .kernels import Kernel


@dataclass(frozen=True, kw_only=True)
class KernelClass:
    """Shares of the peak FLOP/s and of the bandwidth that a class of kernels reaches, and the ns each launch adds."""

    compute: float
    memory: float
    floor_ns: int


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU model.

    Peaks are the datasheet's, dense, per second. `launch_latency_ns` is the time from a launch call to the start of its
    kernel on an idle stream. `fit_error` is the median of |predicted / estimated - 1| of whole decode forwards and
    `fit_against` names the estimates; None means that nothing was compared.
    """

    name: str
    memory_bytes: int
    bf16_flops: int
    bandwidth: int
    gemm: KernelClass
    attention: KernelClass
    elementwise: KernelClass
    launch_latency_ns: int
    source: tuple[str, ...]
    fit_error: float | None = None
    fit_against: str = "nothing: unmeasured"

    def kernel_class(self, kernel: Kernel) -> KernelClass:
        """The class whose efficiencies and floor hold for `kernel`."""
        if kernel.kind == "gemm":
            return self.gemm
        return self.attention if kernel.kind == "attention" else self.elementwise


def kernel_ns(gpu: Gpu, kernel: Kernel) -> int:
    """GPU time of all launches of `kernel`: a roofline with efficiencies, plus a floor per launch, rounded.

    launches * floor + max(flops / (peak * compute), bytes / (bandwidth * memory)). The floor stands for what a launch
    costs however little it does: start, tail, and the latency of dependent memory accesses.
    """
    limits = gpu.kernel_class(kernel)
    compute = kernel.flops / (gpu.bf16_flops * limits.compute)
    memory = (kernel.read_bytes + kernel.write_bytes) / (gpu.bandwidth * limits.memory)
    return kernel.launches * limits.floor_ns + round(1e9 * max(compute, memory))


def gpu(name: str) -> Gpu:
    """The named GPU, in any case, also by usual other names (`A100`, `NVIDIA H200`, `RTX4090`). Raises UnknownName."""
    if isinstance(name, str):
        key = name.strip().lower().removeprefix("nvidia ").removeprefix("geforce ").replace(" ", "-").replace("_", "-")
        key = _ALIASES.get(key, key)
        if key in GPUS:
            return GPUS[key]
    raise UnknownName("GPU", name, GPUS)


_MIB: Final = 2**20

# AIConfigurator takes 0.8 of the bandwidth for these; CUDA cores have about 0.06 of the tensor cores' FLOP/s.
_ELEMENTWISE: Final = KernelClass(compute=0.06, memory=0.8, floor_ns=1_500)
_AMPERE_GEMM: Final = KernelClass(compute=0.7, memory=0.7, floor_ns=5_000)
_AMPERE_ATTENTION: Final = KernelClass(compute=0.5, memory=0.78, floor_ns=17_000)

_MEMORY: Final = "memory: memory.total of nvidia-smi"
_FIT: Final = (
    "efficiencies and floors: rounded by hand to fit the decode-step estimates and the GEMM and attention tables of "
    "AIConfigurator 0.12.0 (Apache-2.0); the compute share of attention and all of elementwise are assumed"
)
_REUSED: Final = (
    "efficiencies, floors and launch latency: unmeasured here, reused from a100-80g, the nearest architecture with data"
)
_ESTIMATES: Final = (
    "AIConfigurator 0.12.0 static_gen estimates of a bf16 decode step (sums of measured operators), batch 1 to 500, "
    "context 1024 to 3072, in the sample fitted: "
)


def _unmeasured(name: str, *, mib: int, bf16_flops: int, bandwidth: int, datasheet: str) -> Gpu:
    return Gpu(
        name=name, memory_bytes=mib * _MIB, bf16_flops=bf16_flops, bandwidth=bandwidth, gemm=_AMPERE_GEMM,
        attention=_AMPERE_ATTENTION, elementwise=_ELEMENTWISE, launch_latency_ns=4_000,
        source=(datasheet, _MEMORY, _REUSED),
    )  # fmt: skip


GPUS: Final = {
    model.name: model
    for model in (
        Gpu(
            name="a100-80g",
            memory_bytes=81_920 * _MIB,
            bf16_flops=312 * 10**12,
            bandwidth=2_039 * 10**9,
            gemm=_AMPERE_GEMM,
            attention=_AMPERE_ATTENTION,
            elementwise=_ELEMENTWISE,
            launch_latency_ns=4_000,
            source=(
                "peaks: NVIDIA A100 80GB SXM datasheet",
                _MEMORY,
                _FIT,
                "launch latency: least call-to-start time in PyTorch traces of HolisticTraceAnalysis (MIT)",
            ),
            fit_error=0.079,
            fit_against=_ESTIMATES + "Qwen2.5-3B and Llama-3-8B on vLLM 0.14.0, SGLang 0.5.10, TensorRT-LLM 1.0.0; "
            "126 points, 90th percentile 21%; engines differ by up to 1.5x",
        ),
        Gpu(
            name="h100",
            memory_bytes=81_559 * _MIB,
            bf16_flops=989 * 10**12,
            bandwidth=3_350 * 10**9,
            gemm=KernelClass(compute=0.75, memory=0.85, floor_ns=3_500),
            attention=KernelClass(compute=0.5, memory=0.85, floor_ns=10_000),
            elementwise=_ELEMENTWISE,
            launch_latency_ns=5_000,
            source=(
                "peaks: NVIDIA H100 SXM datasheet",
                _MEMORY,
                _FIT,
                "launch latency: least call-to-start time in PyTorch traces of TraceLens (MIT)",
            ),
            fit_error=0.028,
            fit_against=_ESTIMATES + "Qwen2.5-0.5B, Qwen2.5-3B and Llama-3-8B on vLLM 0.24.0, SGLang 0.5.14, "
            "TensorRT-LLM 1.3.0rc20; 189 points, 90th percentile 9%",
        ),
        Gpu(
            name="h200",
            memory_bytes=143_771 * _MIB,
            bf16_flops=989 * 10**12,
            bandwidth=4_800 * 10**9,
            gemm=KernelClass(compute=0.75, memory=0.85, floor_ns=4_000),
            attention=KernelClass(compute=0.5, memory=0.82, floor_ns=10_000),
            elementwise=_ELEMENTWISE,
            launch_latency_ns=5_000,
            source=("peaks: NVIDIA H200 SXM datasheet", _MEMORY, _FIT, "launch latency: unmeasured, h100's"),
            fit_error=0.024,
            fit_against=_ESTIMATES + "Qwen2.5-0.5B, Qwen2.5-3B and Llama-3-8B on vLLM 0.24.0, SGLang 0.5.14; "
            "126 points, 90th percentile 7%",
        ),
        Gpu(
            name="b200",
            memory_bytes=183_359 * _MIB,
            bf16_flops=2_250 * 10**12,
            bandwidth=8_000 * 10**9,
            gemm=KernelClass(compute=0.75, memory=0.8, floor_ns=3_500),
            attention=KernelClass(compute=0.5, memory=0.85, floor_ns=9_000),
            elementwise=_ELEMENTWISE,
            launch_latency_ns=7_700,
            source=(
                "peaks: NVIDIA HGX B200 datasheet, per GPU",
                _MEMORY,
                _FIT,
                "launch latency: least call-to-start time in one PyTorch trace of TraceLens (MIT)",
            ),
            fit_error=0.029,
            fit_against=_ESTIMATES + "Qwen2.5-0.5B, Qwen2.5-3B and Llama-3-8B on vLLM 0.24.0 at context 2048; "
            "only 12 points, 90th percentile 6%",
        ),
        _unmeasured(
            "l4", mib=23_034, bf16_flops=121 * 10**12, bandwidth=300 * 10**9, datasheet="peaks: NVIDIA L4 datasheet"
        ),
        _unmeasured(
            "l40s",
            mib=46_068,
            bf16_flops=362 * 10**12,
            bandwidth=864 * 10**9,
            datasheet="peaks: NVIDIA L40S datasheet",
        ),
        _unmeasured(
            "a10g", mib=23_028, bf16_flops=70 * 10**12, bandwidth=600 * 10**9, datasheet="peaks: NVIDIA A10G datasheet"
        ),
        _unmeasured(
            "rtx-4090",
            mib=24_564,
            bf16_flops=165 * 10**12,
            bandwidth=1_008 * 10**9,
            datasheet="peaks: NVIDIA Ada architecture whitepaper, GeForce RTX 4090, FP32 accumulate",
        ),
    )
}

_ALIASES: Final = {
    "a100": "a100-80g",
    "a100-80gb": "a100-80g",
    "a100-sxm": "a100-80g",
    "a100-sxm4-80gb": "a100-80g",
    "h100-80g": "h100",
    "h100-sxm": "h100",
    "h100-80gb-hbm3": "h100",
    "h200-sxm": "h200",
    "b200-sxm": "b200",
    "rtx4090": "rtx-4090",
    "4090": "rtx-4090",
}
