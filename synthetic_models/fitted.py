"""Constants fitted to measured kernels, and how far off they are on kernels that the fit never saw.

Printed by `microbench validate gpu --fit`, which fits them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .kernel_class import KernelClass


@dataclass(frozen=True, kw_only=True)
class Error:
    """|modelled / measured - 1| over `n` held-out points."""

    n: int
    median: float
    p90: float


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The fitted classes of one GPU and their errors, by the names that `microbench validate gpu` prints."""

    gemm: KernelClass
    attention: KernelClass
    prefill_attention: KernelClass
    held_out: dict[str, Error]


FITTED: Final = {
    "a100-80g": Fitted(
        gemm=KernelClass(compute=0.831, memory=0.783, floor_ns=3020, depth_ns=536, serial=0.63),
        attention=KernelClass(compute=0.578, memory=0.79, floor_ns=15400, ramp=0.799),
        prefill_attention=KernelClass(compute=0.578, memory=0.465, floor_ns=10000, serial=1.0, ramp=0.634),
        held_out={
            "GEMM": Error(n=4240, median=0.073, p90=0.205),
            "GEMM, memory-bound": Error(n=1379, median=0.055, p90=0.150),
            "GEMM, compute-bound": Error(n=901, median=0.063, p90=0.186),
            "GEMM, small": Error(n=1960, median=0.093, p90=0.238),
            "LM head": Error(n=160, median=0.071, p90=0.267),
            "decode attention, KV >= 64 MB": Error(n=154, median=0.048, p90=0.112),
            "decode attention, less KV": Error(n=266, median=0.100, p90=0.240),
            "prefill attention": Error(n=1263, median=0.056, p90=0.193),
            "decode step, each engine": Error(n=252, median=0.089, p90=0.218),
            "decode step, median engine": Error(n=84, median=0.040, p90=0.095),
            "decode step, qwen2.5-1.5b": Error(n=63, median=0.086, p90=0.228),
            "decode step, qwen2.5-3b": Error(n=63, median=0.103, p90=0.202),
            "decode step, qwen2.5-7b": Error(n=63, median=0.065, p90=0.215),
            "decode step, llama-3.1-8b": Error(n=63, median=0.089, p90=0.206),
        },
    ),
    "h100": Fitted(
        gemm=KernelClass(compute=0.781, memory=0.875, floor_ns=2170, depth_ns=383, serial=0.354),
        attention=KernelClass(compute=0.652, memory=0.889, floor_ns=9440, ramp=0.935),
        prefill_attention=KernelClass(compute=0.652, memory=0.41, floor_ns=13400, serial=1.0, ramp=0.888),
        held_out={
            "GEMM": Error(n=17297, median=0.057, p90=0.171),
            "GEMM, memory-bound": Error(n=5374, median=0.039, p90=0.112),
            "GEMM, compute-bound": Error(n=4451, median=0.046, p90=0.104),
            "GEMM, small": Error(n=7472, median=0.093, p90=0.228),
            "LM head": Error(n=1250, median=0.044, p90=0.125),
            "decode attention, KV >= 64 MB": Error(n=806, median=0.043, p90=0.165),
            "decode attention, less KV": Error(n=947, median=0.099, p90=0.232),
            "decode attention, head_dim 64": Error(n=477, median=0.069, p90=0.197),
            "prefill attention": Error(n=2058, median=0.081, p90=0.239),
            "prefill attention, head_dim 64": Error(n=415, median=0.160, p90=0.295),
            "decode step, each engine": Error(n=315, median=0.022, p90=0.066),
            "decode step, median engine": Error(n=105, median=0.017, p90=0.038),
            "decode step, qwen2.5-0.5b": Error(n=63, median=0.035, p90=0.106),
            "decode step, qwen2.5-1.5b": Error(n=63, median=0.016, p90=0.054),
            "decode step, qwen2.5-3b": Error(n=63, median=0.019, p90=0.061),
            "decode step, qwen2.5-7b": Error(n=63, median=0.019, p90=0.041),
            "decode step, llama-3.1-8b": Error(n=63, median=0.027, p90=0.054),
        },
    ),
    "h200": Fitted(
        gemm=KernelClass(compute=0.78, memory=0.867, floor_ns=2230, depth_ns=401, serial=0.38),
        attention=KernelClass(compute=0.626, memory=0.915, floor_ns=9260, ramp=0.798),
        prefill_attention=KernelClass(compute=0.626, memory=0.321, floor_ns=13400, serial=1.0, ramp=0.887),
        held_out={
            "GEMM": Error(n=17297, median=0.065, p90=0.185),
            "GEMM, memory-bound": Error(n=4962, median=0.047, p90=0.117),
            "GEMM, compute-bound": Error(n=4863, median=0.049, p90=0.113),
            "GEMM, small": Error(n=7472, median=0.100, p90=0.244),
            "LM head": Error(n=1250, median=0.058, p90=0.218),
            "decode attention, KV >= 64 MB": Error(n=806, median=0.043, p90=0.217),
            "decode attention, less KV": Error(n=947, median=0.089, p90=0.214),
            "decode attention, head_dim 64": Error(n=477, median=0.072, p90=0.218),
            "prefill attention": Error(n=2060, median=0.088, p90=0.230),
            "prefill attention, head_dim 64": Error(n=415, median=0.156, p90=0.303),
            "decode step, each engine": Error(n=315, median=0.031, p90=0.092),
            "decode step, median engine": Error(n=105, median=0.022, p90=0.053),
            "decode step, qwen2.5-0.5b": Error(n=63, median=0.070, p90=0.164),
            "decode step, qwen2.5-1.5b": Error(n=63, median=0.033, p90=0.076),
            "decode step, qwen2.5-3b": Error(n=63, median=0.026, p90=0.069),
            "decode step, qwen2.5-7b": Error(n=63, median=0.022, p90=0.047),
            "decode step, llama-3.1-8b": Error(n=63, median=0.026, p90=0.056),
        },
    ),
    "b200": Fitted(
        gemm=KernelClass(compute=0.692, memory=0.806, floor_ns=1550, depth_ns=432, serial=0.421),
        attention=KernelClass(compute=0.578, memory=0.884, floor_ns=8140),
        prefill_attention=KernelClass(compute=0.578, memory=0.383, floor_ns=9950, serial=1.0, ramp=0.602),
        held_out={
            "GEMM": Error(n=17297, median=0.078, p90=0.222),
            "GEMM, memory-bound": Error(n=5372, median=0.067, p90=0.193),
            "GEMM, compute-bound": Error(n=4453, median=0.046, p90=0.125),
            "GEMM, small": Error(n=7472, median=0.124, p90=0.273),
            "LM head": Error(n=1250, median=0.051, p90=0.154),
            "decode attention, KV >= 64 MB": Error(n=988, median=0.040, p90=0.268),
            "decode attention, less KV": Error(n=1066, median=0.083, p90=0.235),
            "decode attention, head_dim 64": Error(n=574, median=0.080, p90=0.263),
            "prefill attention": Error(n=2220, median=0.108, p90=0.333),
            "prefill attention, head_dim 64": Error(n=498, median=0.268, p90=0.384),
            "decode step, each engine": Error(n=315, median=0.022, p90=0.082),
            "decode step, median engine": Error(n=105, median=0.019, p90=0.069),
            "decode step, qwen2.5-0.5b": Error(n=63, median=0.028, p90=0.090),
            "decode step, qwen2.5-1.5b": Error(n=63, median=0.018, p90=0.061),
            "decode step, qwen2.5-3b": Error(n=63, median=0.027, p90=0.102),
            "decode step, qwen2.5-7b": Error(n=63, median=0.023, p90=0.063),
            "decode step, llama-3.1-8b": Error(n=63, median=0.016, p90=0.052),
        },
    ),
}
