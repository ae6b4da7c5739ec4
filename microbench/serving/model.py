"""The forward of a changing batch on a modelled GPU: kernel durations and launches are those of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from microbench.engines import EngineProfile
from microbench.serving.batching import Step
from synthetic_models import Architecture, Batch, Gpu, StepTime, step_time

if TYPE_CHECKING:
    from microbench.devices.sim import SimDevice
    from microbench.serving.work import ServingBatch


CONTEXT_STEP = 16
"""Mean contexts are rounded to this many tokens."""


class ServingModel:
    """A `protocols.Model`: a prefill is launched eagerly, a decode batch as its engine does it at this size."""

    def __init__(self, device: SimDevice, engine: EngineProfile, architecture: Architecture, gpu: Gpu) -> None:
        self.device, self.engine, self.architecture, self.gpu = device, engine, architecture, gpu
        self._decodes: dict[tuple[int, int], StepTime] = {}
        self.eager_steps = self.graph_steps = self.prefill_steps = 0

    def plan(self, batch: ServingBatch) -> None:
        if self.engine.plan_sync and batch.step:
            self.device.current_stream().synchronize()

    def forward(self, batch: ServingBatch) -> None:
        if batch.step is None:
            return
        time, captured = self.time(batch.step)
        batch.sample_ns = time.sample_ns
        self.prefill_steps += batch.step.prefill
        if captured:
            self.graph_steps += 1
            self.device.replay(self.engine.graph_launch, time.forward_ns)
        else:
            self.eager_steps += not batch.step.prefill
            self.device.launch(self.engine.launch, time.forward_ns)

    def sample(self, batch: ServingBatch) -> Any:
        if batch.step is not None:
            self.device.launch(self.engine.sample_launch, batch.sample_ns)
        return batch.next_ids()

    def time(self, step: Step) -> tuple[StepTime, int | None]:
        """GPU time of a step's kernels, and the batch of the graph it replays."""
        if step.prefill:
            batch = Batch(query_lens=tuple(step.query.tolist()), context_lens=tuple(step.context.tolist()))
            return step_time(self.architecture, self.gpu, batch), None
        rows = len(step.rows)
        captured = self.engine.captured_batch(rows, self.gpu.memory_bytes)
        padded = captured or rows
        # Attention depends on the sum of the contexts; rows that a graph is padded with attend to one token each.
        mean = (int(step.context.sum()) + padded - rows) / padded
        return self._decode_time(padded, max(1, CONTEXT_STEP * round(mean / CONTEXT_STEP))), captured

    def _decode_time(self, rows: int, context: int) -> StepTime:
        """Kept, because on a real host the model must not cost more than a launch."""
        key = rows, context
        if key not in self._decodes:
            self._decodes[key] = step_time(self.architecture, self.gpu, Batch.decode(rows, context))
        return self._decodes[key]
