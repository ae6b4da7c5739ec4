"""EngineProfile: the facts about one engine version that decide what a step costs on the host.

The Python work itself is in one file an engine (`sglang_0_4_0.py`, ...); what it costs on a computed clock is in
`prices.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from microbench.devices.spec import LaunchCost
from microbench.errors import unknown


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """One engine version.

    graph_batches: decode batch sizes with a captured CUDA graph; a batch is padded up to the next one, and past the
        last it runs eagerly.
    launch, sample_launch: host time of one eager launch of the forward and of sampling.
    graph_launch: host time of one graph replay with its input copies.
    plan_sync: attention planning reads back from the GPU, so a step can't be enqueued before the last has ended.
    schedulers: the designs that are compared for it: (without overlap, with overlap).
    flag: the switch that turns overlap off; None for an engine that has none.
    """

    name: str
    streaming: str
    graph_batches: tuple[int, ...]
    launch: LaunchCost
    sample_launch: LaunchCost
    graph_launch: LaunchCost
    plan_sync: bool
    schedulers: tuple[str, str]
    flag: str | None
    sources: tuple[str, ...]

    def captured_batch(self, batch: int) -> int | None:
        """The graph a decode batch of this size replays, or None when it runs eagerly."""
        return next((b for b in self.graph_batches if b >= batch), None)


def _ladder(last: int) -> tuple[int, ...]:
    return (1, 2, 4, *range(8, last + 1, 8))


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

ENGINES: dict[str, EngineProfile] = {
    p.name: p
    for p in (
        EngineProfile(
            name="sglang-0.4.0.post1",
            streaming="rebuild",
            graph_batches=_ladder(160),
            launch=EAGER,
            sample_launch=EAGER,
            graph_launch=GRAPH,
            plan_sync=True,
            schedulers=("run_to_completion", "overlap_thread:attribute"),
            flag="--disable-overlap-schedule",
            sources=(
                "sglang 0.4.0.post1 on PyPI: managers/scheduler.py, managers/tp_worker_overlap_thread.py, "
                "model_executor/cuda_graph_runner.py (graphs to 160)",
                "plan_sync: flashinfer 0.2.0.post2, decode.py: plan() copies indptr to the CPU and waits for it; that "
                "the wheel current at the release did so too is an assumption",
            ),
        ),
        EngineProfile(
            name="sglang-0.5.4",
            streaming="incremental",
            graph_batches=_ladder(256),
            launch=EAGER,
            sample_launch=EAGER,
            graph_launch=GRAPH,
            plan_sync=False,
            schedulers=("run_to_completion", "overlap_loop"),
            flag="--disable-overlap-schedule",
            sources=(
                "sglang 0.5.4 on PyPI: managers/scheduler.py (one thread, two streams), managers/overlap_utils.py",
                "decode graphs to 256 on 80 GB cards at TP 1: server_args.py",
            ),
        ),
        EngineProfile(
            name="minimal",
            streaming="none",
            graph_batches=(1, 2, 4, *range(8, 16, 8), *range(16, 513, 16)),
            launch=LaunchCost(gil_ns=10_000, free_ns=8_000),
            sample_launch=LaunchCost(gil_ns=10_000, free_ns=8_000),
            graph_launch=GRAPH,
            plan_sync=False,
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
