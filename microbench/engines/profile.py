"""EngineProfile: the facts about one engine version that decide what a step costs on the host.

The Python work itself is in one file an engine (`sglang_0_4_0.py`, ...); what it costs on a computed clock is in
`prices.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from microbench.devices.spec import LaunchCost
from microbench.errors import unknown

EAGER = LaunchCost(gil_ns=15_000, free_ns=10_000)
"""One launch of an engine's eager forward: its Python modules (GIL held), then the dispatcher and driver (GIL
released). Published: 8 us an op for a bare torch op (github.com/flagos-ai/Torch-FL/pull/27, A100), 19 to 32 us a
launch in Hugging Face eager models (H100 Kineto traces of TraceLens, MIT), 31 to 40 us
(github.com/vllm-project/vllm-omni/pull/6516), 84 us (vLLM eager prefill, B200, TraceLens). 25 us is in the lower
part of that range; every command that uses it can be told another figure, and `microbench run` shows at which one
the answer turns."""

GRAPH = LaunchCost(gil_ns=0, free_ns=300_000)
"""Replaying a decode graph with its input copies and plan: 0.3 ms, all without the GIL, an assumption. Published
replay calls alone range from 2.5 us (NVIDIA, straight-line graphs, CUDA 12.6) to 1 us a node
(github.com/sgl-project/sglang/issues/29960)."""


SGLANG_FLAG = "--disable-overlap-schedule"


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """One engine version.

    graph_batches: decode batch sizes with a captured CUDA graph; a batch is padded up to the next one, and past the
        last it runs eagerly.
    graph_limits: (GiB, largest) pairs, ascending: a GPU with less memory than that captures no size above `largest`.
        A single GPU is meant; tensor parallelism raises some of them.
    launch, sample_launch: host time of one eager launch of the forward and of sampling.
    graph_launch: host time of one graph replay with its input copies.
    plan_sync: attention planning reads back from the GPU, so a step can't be enqueued before the last has ended.
    skips_finishing: a request known to end by length with the step in flight is left out of the next one.
    schedulers: the designs that are compared for it: (without overlap, with overlap).
    flag: the switch that turns overlap off; None for an engine that has none.
    """

    name: str
    streaming: str
    graph_batches: tuple[int, ...]
    graph_limits: tuple[tuple[int, int], ...] = ()
    launch: LaunchCost = EAGER
    sample_launch: LaunchCost = EAGER
    graph_launch: LaunchCost = GRAPH
    plan_sync: bool = False
    skips_finishing: bool = False
    schedulers: tuple[str, str]
    flag: str | None
    sources: tuple[str, ...]

    def captured_batch(self, batch: int, memory_bytes: int = 80 << 30) -> int | None:
        """The graph a decode batch of this size replays on a GPU with so much memory, or None when it runs eagerly."""
        limits = (largest for gib, largest in self.graph_limits if memory_bytes < gib << 30)
        largest = next(limits, self.graph_batches[-1])
        return next((b for b in self.graph_batches if batch <= b <= largest), None)


def _ladder(last: int) -> tuple[int, ...]:
    return (1, 2, 4, *range(8, min(last, 256) + 1, 8), *range(272, last + 1, 16))


SGLANG_SIZES = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16))
SGLANG_LIMITS = ((20, 8), (35, 16), (60, 32), (160, 256))
"""Sizes and limits of SGLang 0.5.4's server_args.py, one GPU: 256 on cards of 80 to 141 GB, 512 above 160 GiB."""

ENGINES: dict[str, EngineProfile] = {
    p.name: p
    for p in (
        EngineProfile(
            name="sglang-0.4.0.post1",
            streaming="rebuild",
            graph_batches=_ladder(160),
            graph_limits=((25, 8),),
            plan_sync=True,
            schedulers=("run_to_completion", "overlap_thread:attribute"),
            flag=SGLANG_FLAG,
            sources=(
                "sglang 0.4.0.post1 on PyPI: managers/scheduler.py, managers/tp_worker_overlap_thread.py, "
                "model_executor/cuda_graph_runner.py (graphs to 160), server_args.py (8 below 25 GB)",
                "plan_sync: flashinfer 0.2.0.post2, decode.py: plan() copies indptr to the CPU and waits for it; that "
                "the wheel current at the release did so too is an assumption",
            ),
        ),
        EngineProfile(
            name="sglang-0.4.9",
            streaming="rebuild, send the new ids",
            graph_batches=(1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)),
            graph_limits=((35, 8), (90, 160), (156, 256)),
            plan_sync=True,
            schedulers=("run_to_completion", "overlap_thread:per_batch"),
            flag=SGLANG_FLAG,
            sources=(
                "sglang 0.4.9 on PyPI: managers/tp_worker_overlap_thread.py (launch_done belongs to the batch, the "
                "forward stream waits for sync_event, not the host), managers/scheduler_output_processor_mixin.py",
                "graphs: cuda_graph_runner.py, get_batch_sizes_to_capture (160; 256 above 90 GiB; 512 above 160 GB)",
                "plan_sync: layers/attention/flashinfer_backend.py of that version, fast_decode_plan: indptr.cpu(); "
                "its FlashAttention 3 backend, the default on Hopper, does not read back on the forward stream",
            ),
        ),
        EngineProfile(
            name="sglang-0.5.4",
            streaming="incremental",
            graph_batches=SGLANG_SIZES,
            graph_limits=SGLANG_LIMITS,
            schedulers=("run_to_completion", "overlap_loop"),
            flag=SGLANG_FLAG,
            sources=(
                "sglang 0.5.4 on PyPI: managers/scheduler.py (one thread, two streams), managers/overlap_utils.py",
                "decode graphs to 256 on cards of 60 to 160 GiB, to 512 above: server_args.py",
            ),
        ),
        EngineProfile(
            name="sglang-0.5.15",
            streaming="incremental",
            graph_batches=SGLANG_SIZES,
            graph_limits=SGLANG_LIMITS,
            schedulers=("run_to_completion", "overlap_copy_stream"),
            flag=SGLANG_FLAG,
            sources=(
                "sglang 0.5.15 on PyPI: managers/scheduler.py (copy_stream, _apply_war_barrier), "
                "managers/scheduler_components/output_streamer.py, model_executor/runner/decode_cuda_graph_runner.py "
                "(read-done event before the replay)",
                "graph sizes and limits: assumed to be 0.5.4's",
            ),
        ),
        EngineProfile(
            name="sglang-0.5.23",
            streaming="incremental",
            graph_batches=SGLANG_SIZES,
            graph_limits=SGLANG_LIMITS,
            skips_finishing=True,
            schedulers=("run_to_completion", "overlap_copy_stream"),
            flag=SGLANG_FLAG,
            sources=(
                "sglang 0.5.23 on PyPI: managers/scheduler.py, enable_skip_finishing_decode (no dead row for a request "
                "that ends by length)",
                "everything else: assumed to be 0.5.15's",
            ),
        ),
        EngineProfile(
            name="vllm-v1",
            streaming="output objects, sent by a thread",
            graph_batches=_ladder(512),
            skips_finishing=True,
            schedulers=("run_to_completion:sender", "batch_queue"),
            flag="--no-async-scheduling",
            sources=(
                "github.com/vllm-project/vllm at 00080ee: vllm/v1/engine/core.py (step, step_with_batch_queue), "
                "vllm/v1/core/sched/scheduler.py, async_scheduler.py, vllm/v1/worker/gpu_model_runner.py",
                "graph sizes: vllm/config/vllm.py, _set_cudagraph_sizes: to min(2 * max_num_seqs, 512); at least 256 "
                "sequences assumed",
                "its engine core is a process of its own: the API server shares no GIL with it and isn't modelled",
            ),
        ),
        EngineProfile(
            name="tensorrt-llm",
            streaming="response objects",
            graph_batches=_ladder(128),
            skips_finishing=True,
            schedulers=("run_to_completion", "overlap_late_sample"),
            flag="disable_overlap_scheduler",
            sources=(
                "github.com/NVIDIA/TensorRT-LLM at 9521caf: tensorrt_llm/_torch/pyexecutor/py_executor.py "
                "(_executor_loop_overlap), model_engine.py (_prepare_tp_inputs)",
                "graph sizes: tensorrt_llm/llmapi/llm_args.py, CudaGraphConfig with enable_padding, to its default "
                "largest batch of 128",
            ),
        ),
        EngineProfile(
            name="mini-sglang",
            streaming="one object a token",
            graph_batches=_ladder(256),
            graph_limits=((80, 160),),
            skips_finishing=True,
            schedulers=("run_to_completion", "overlap_loop"),
            flag="MINISGL_DISABLE_OVERLAP_SCHEDULING=1",
            sources=(
                "github.com/sgl-project/mini-sglang at 04340ee: python/minisgl/scheduler/scheduler.py (overlap_loop, "
                "normal_loop), python/minisgl/core.py",
                "graphs to 160, or 256 with more than 80 GB free, taken as more than 80 GiB of memory",
            ),
        ),
        EngineProfile(
            name="minimal",
            streaming="none",
            graph_batches=(1, 2, 4, *range(8, 16, 8), *range(16, 513, 16)),
            launch=LaunchCost(gil_ns=10_000, free_ns=8_000),
            sample_launch=LaunchCost(gil_ns=10_000, free_ns=8_000),
            schedulers=("run_to_completion", "overlap_loop"),
            flag=None,  # nano-vllm has no overlap: the loop shows what it would bring
            sources=("github.com/GeeeekExplorer/nano-vllm at bb823b3: engine/scheduler.py, engine/model_runner.py",),
        ),
    )
}


def engine(name: str) -> EngineProfile:
    """The profile of this name. Raises UsageError listing the known ones."""
    try:
        return ENGINES[name]
    except KeyError:
        raise unknown("engine", name, ENGINES) from None
