"""Overlap on one thread with late sampling: step N is sampled only when the tokens of N-1 have been processed.

TensorRT-LLM's PyExecutor: forward of N, wait for N-1 and update its requests, sample N, then answer for N-1. SGLang
does so for grammars. Launching the sampling is exposed when the forward ends before N-1 is processed.
"""

from __future__ import annotations

from microbench.schedulers.run import TOKEN_BYTES, Launched, Run, answer, update


def overlap_late_sample(run: Run, steps: int) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    lap = trace.track("scheduler")
    forward_stream, schedule_stream = run.forward_stream or device.Stream(), device.current_stream()

    def loop() -> None:
        last: Launched | None = None
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
                lap("launch", at)
                if last is not None:
                    update(run, lap, last)
                at = host.now_ns()
                ids = model.sample(batch)
                work.publish(batch, ids)
                copy_done = device.Event()
                tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                copy_done.record()
            work.outputs(batch, futures)
            launched = Launched(work.snapshot(batch), copy_done, tokens)
            lap("launch", at)
            if last is not None:
                trace.step_done(answer(run, lap, last))
            last = launched
        if last is not None:
            update(run, lap, last)
            trace.step_done(answer(run, lap, last))

    host.run({"scheduler": loop})
