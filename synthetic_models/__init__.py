"""Models of decoders and GPUs: data and arithmetic, without a clock, a thread or a third-party import."""

from .architectures import ARCHITECTURES, Architecture, architecture
from .batches import Batch
from .configs import architecture_from_config
from .errors import BadConfig, DoesNotFit, UnknownName
from .gpus import GPUS, Gpu, KernelClass, gpu, kernel_ns
from .kernels import Kernel, StepKernels, decode_step, prefill_step, step_kernels
from .memory import check_fits, kv_capacity_tokens, max_batch
from .step import StepTime, step_time

__all__ = [
    "ARCHITECTURES",
    "GPUS",
    "Architecture",
    "BadConfig",
    "Batch",
    "DoesNotFit",
    "Gpu",
    "Kernel",
    "KernelClass",
    "StepKernels",
    "StepTime",
    "UnknownName",
    "architecture",
    "architecture_from_config",
    "check_fits",
    "decode_step",
    "gpu",
    "kernel_ns",
    "kv_capacity_tokens",
    "max_batch",
    "prefill_step",
    "step_kernels",
    "step_time",
]
