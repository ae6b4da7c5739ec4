"""No overlap: schedule, launch, wait, process, stream, one after the other on one thread and one stream.

SGLang's `event_loop_normal` (--disable-overlap-schedule), nano-vllm. vLLM without asynchronous scheduling streams from
a thread of its own (`send_apart`), so that this much of the host work runs under the next step.
"""

from __future__ import annotations

from microbench.schedulers.run import TOKEN_BYTES, Run, sender


def run_to_completion(run: Run, steps: int, *, send_apart: bool = False) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    lap = trace.track("scheduler")
    processed = host.channel("processed batches")

    def loop() -> None:
        for _ in range(steps):
            at = host.now_ns()
            batch = work.schedule()
            if batch is None:
                return
            at = lap("schedule", at)
            model.plan(batch)
            at = lap("wait", at)
            model.forward(batch)
            ids = model.sample(batch)
            work.outputs(batch, ids)
            at = lap("launch", at)
            tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size, pinned=False).tolist()
            at = lap("wait", at)
            work.process(batch, tokens)
            at = lap("process", at)
            if send_apart:
                processed.put(batch)
            else:
                work.stream(batch)
                at = lap("stream", at)
            trace.step_done(at)

    def loop_then_end() -> None:
        try:
            loop()
        finally:
            processed.put(None)

    if send_apart:
        host.run({"scheduler": loop_then_end, "sender": sender(run, processed)})
    else:
        host.run({"scheduler": loop})
