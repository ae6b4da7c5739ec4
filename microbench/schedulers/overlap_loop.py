"""Overlap on one thread: launch step N on a second stream, then process step N-1 while the GPU works.

SGLang 0.5.4 and later, mini-sglang, TensorRT-LLM's PyExecutor in shape. No hand-off and no second Python thread, so
launching is not hidden either.
"""

from __future__ import annotations

from microbench.protocols import Batch, EventLike, HostCopy
from microbench.schedulers.run import TOKEN_BYTES, Run


def overlap_loop(run: Run, steps: int) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    lap = trace.track("scheduler")
    forward_stream, schedule_stream = run.forward_stream or device.Stream(), device.current_stream()

    def finish(last: tuple[Batch, EventLike, HostCopy]) -> None:
        batch, copy_done, tokens = last
        at = host.now_ns()
        copy_done.synchronize()
        ids = tokens.tolist()
        at = lap("wait", at)
        work.process(batch, ids)
        at = lap("process", at)
        work.stream(batch)
        trace.step_done(lap("stream", at))

    def loop() -> None:
        last: tuple[Batch, EventLike, HostCopy] | None = None
        for _ in range(steps):
            at = host.now_ns()
            batch = work.schedule()
            if batch is None:
                break
            futures = work.futures(batch)
            at = lap("schedule", at)
            with device.stream(forward_stream):
                forward_stream.wait_stream(schedule_stream)
                work.resolve(batch)
                at = lap("launch", at)
                model.plan(batch)
                at = lap("wait", at)
                model.forward(batch)
                ids = model.sample(batch)
                copy_done = device.Event()
                work.publish(batch, ids)
                tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                copy_done.record()
            work.outputs(batch, futures)
            launched = (work.snapshot(batch), copy_done, tokens)
            lap("launch", at)
            if last is not None:
                finish(last)
            last = launched
        if last is not None:
            finish(last)

    host.run({"scheduler": loop})
