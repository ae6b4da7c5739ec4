"""GPUs: what the datasheet promises, which share of it kernels reach, and how long a kernel takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import UnknownName
from .fitted import FITTED
from .kernel_class import KernelClass as KernelClass
from .kernels import Kernel

PREFILL_FLOPS_PER_BYTE: Final = 32


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU model.

    Peaks are the datasheet's, dense, per second. `launch_latency_ns` is the time from a launch call to the start of its
    kernel on an idle stream. `fit_error` is the median of |predicted / estimated - 1| of whole decode forwards and
    `fit_against` names the estimates; None means that nothing was compared. `fitted.FITTED` has the errors by class.
    """

    name: str
    memory_bytes: int
    bf16_flops: int
    bandwidth: int
    gemm: KernelClass
    attention: KernelClass
    prefill_attention: KernelClass
    elementwise: KernelClass
    launch_latency_ns: int
    source: tuple[str, ...]
    fit_error: float | None = None
    fit_against: str = "nothing: unmeasured"

    def kernel_class(self, kernel: Kernel) -> KernelClass:
        """The class whose constants hold for `kernel`.

        Attention that does more than 32 FLOPs a byte reads prompts: decode does at most one per query head of a KV
        head, so up to 16, a prompt of 128 tokens at least 32. A mixed batch goes by its own figure; no table has one.
        """
        if kernel.kind in ("gemm", "moe_gemm"):
            return self.gemm
        if kernel.kind != "attention":
            return self.elementwise
        prefill = kernel.flops > PREFILL_FLOPS_PER_BYTE * (kernel.read_bytes + kernel.write_bytes)
        return self.prefill_attention if prefill else self.attention


def kernel_ns(gpu: Gpu, kernel: Kernel) -> int:
    """GPU time of all launches of `kernel`, rounded; each does an equal share (see KernelClass.launch_ns)."""
    memory = (kernel.read_bytes + kernel.write_bytes) * 1e9 / gpu.bandwidth
    compute = kernel.flops * 1e9 / gpu.bf16_flops
    n = kernel.launches
    return round(n * gpu.kernel_class(kernel).launch_ns(memory / n, compute / n, kernel.k))


def gpu(name: str) -> Gpu:
    """The named GPU, in any case, also by usual other names (`A100`, `NVIDIA H200`, `RTX4090`). Raises UnknownName."""
    if isinstance(name, str):
        key = name.strip().lower().removeprefix("nvidia ").removeprefix("geforce ").replace(" ", "-").replace("_", "-")
        key = _ALIASES.get(key, key)
        if key in GPUS:
            return GPUS[key]
    raise UnknownName("GPU", name, GPUS)


_MIB: Final = 2**20

# Norms, rope, KV writes, activation, combine and sampling: assumed. AIConfigurator allows 3 us and bytes at 0.8 of the
# bandwidth for each of a layer's two norms and its activation; 1.5 us for each of the six launches here come to the
# same. CUDA cores have about 0.06 of the tensor cores' FLOP/s.
_ELEMENTWISE: Final = KernelClass(compute=0.06, memory=0.8, floor_ns=1_500)

_MEMORY: Final = "memory: memory.total of nvidia-smi"
_FIT: Final = (
    "GEMM and attention: fitted to half of the shapes in the bf16 tables of aiconfigurator-core 0.12.0 (Apache-2.0), "
    "the median of vLLM, SGLang and TensorRT-LLM, L2 cache not emptied between runs; compute share of decode "
    "attention: prefill's; elementwise and sampling: assumed, 1.5 us a launch, where Vidur's profiles (MIT, 2024) "
    "have 2 to 6 us for norm, rope and activation on A100 and H100"
)
_REUSED: Final = (
    "constants and launch latency: unmeasured here, reused from a100-80g, the nearest architecture with data"
)
_ESTIMATES: Final = (
    "AIConfigurator 0.12.0 static_gen estimates of a bf16 decode forward (sums of measured operators), none of them "
    "fitted to; Qwen2.5 0.5B to 7B and Llama 3.1 8B at batch 1 to 500, context 1024 to 3072, on "
)
_ENGINES: Final = "vLLM 0.24.0, SGLang 0.5.14, TensorRT-LLM 1.3.0rc20"


def _gpu(
    name: str,
    *,
    mib: int,
    bf16_flops: int,
    bandwidth: int,
    launch_latency_ns: int,
    source: tuple[str, ...],
    engines: str,
    but: str = "",
) -> Gpu:
    """A GPU with the constants fitted for it, and their error on decode steps of `engines`."""
    fitted = FITTED[name]
    steps = fitted.held_out["decode step, each engine"]
    return Gpu(
        name=name, memory_bytes=mib * _MIB, bf16_flops=bf16_flops, bandwidth=bandwidth, gemm=fitted.gemm,
        attention=fitted.attention, prefill_attention=fitted.prefill_attention, elementwise=_ELEMENTWISE,
        launch_latency_ns=launch_latency_ns, source=source, fit_error=steps.median,
        fit_against=f"{_ESTIMATES}{engines}; {steps.n} points, 90th percentile {steps.p90:.0%}{but}",
    )  # fmt: skip


def _unmeasured(name: str, *, mib: int, bf16_flops: int, bandwidth: int, datasheet: str) -> Gpu:
    like = FITTED["a100-80g"]
    return Gpu(
        name=name, memory_bytes=mib * _MIB, bf16_flops=bf16_flops, bandwidth=bandwidth, gemm=like.gemm,
        attention=like.attention, prefill_attention=like.prefill_attention, elementwise=_ELEMENTWISE,
        launch_latency_ns=4_000, source=(datasheet, _MEMORY, _REUSED),
    )  # fmt: skip


GPUS: Final = {
    model.name: model
    for model in (
        _gpu(
            "a100-80g",
            mib=81_920,
            bf16_flops=312 * 10**12,
            bandwidth=2_039 * 10**9,
            launch_latency_ns=4_000,
            source=(
                "peaks: NVIDIA A100 80GB SXM datasheet",
                _MEMORY,
                _FIT,
                "attention of head_dim 64, so Qwen2.5-0.5B: unmeasured on this GPU; a fit to head_dim 128 alone "
                "is off on head_dim 64 by 7% (h100) and 8% (h200), 90th percentile 22%",
                "launch latency: least call-to-start time in PyTorch traces of HolisticTraceAnalysis (MIT)",
            ),
            engines="vLLM 0.14.0, SGLang 0.5.10, TensorRT-LLM 1.0.0",
            but="; engines differ by up to 1.5x, so no one model comes near all; none is of Qwen2.5-0.5B",
        ),
        _gpu(
            "h100",
            mib=81_559,
            bf16_flops=989 * 10**12,
            bandwidth=3_350 * 10**9,
            launch_latency_ns=5_000,
            source=(
                "peaks: NVIDIA H100 SXM datasheet",
                _MEMORY,
                _FIT,
                "launch latency: least call-to-start time in PyTorch traces of TraceLens (MIT)",
            ),
            engines=_ENGINES,
        ),
        _gpu(
            "h200",
            mib=143_771,
            bf16_flops=989 * 10**12,
            bandwidth=4_800 * 10**9,
            launch_latency_ns=5_000,
            source=("peaks: NVIDIA H200 SXM datasheet", _MEMORY, _FIT, "launch latency: unmeasured, h100's"),
            engines=_ENGINES,
        ),
        _gpu(
            "b200",
            mib=183_359,
            bf16_flops=2_250 * 10**12,
            bandwidth=8_000 * 10**9,
            launch_latency_ns=7_700,
            source=(
                "peaks: NVIDIA HGX B200 datasheet, per GPU",
                _MEMORY,
                _FIT,
                "launch latency: least call-to-start time in one PyTorch trace of TraceLens (MIT)",
            ),
            engines=_ENGINES,
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
