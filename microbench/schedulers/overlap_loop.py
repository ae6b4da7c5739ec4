"""Overlap on one thread: launch step N on a second stream, then process step N-1 while the GPU works.

SGLang 0.5.4 to 0.5.12, mini-sglang. No hand-off and no second Python thread, so launching is not hidden either.
"""

from __future__ import annotations

from microbench.schedulers.run import TOKEN_BYTES, Launched, Run, finish


def overlap_loop(run: Run, steps: int) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work = run.host, run.device, run.model, run.work
    lap = run.trace.track("scheduler")
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
                ids = model.sample(batch)
                copy_done = device.Event()
                work.publish(batch, ids)
                tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                copy_done.record()
            work.outputs(batch, futures)
            launched = Launched(work.snapshot(batch), copy_done, tokens)
            lap("launch", at)
            if last is not None:
                finish(run, lap, last)
            last = launched
        if last is not None:
            finish(run, lap, last)

    host.run({"scheduler": loop})
