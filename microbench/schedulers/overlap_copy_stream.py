"""Overlap on one thread with a third stream: results are copied beside the next forward, not in front of it.

SGLang 0.5.15 and later. The copy waits for the forward stream and nobody waits for it but the host. Before it writes
what the last forward reads, the scheduler's stream waits until that has been read (write after read), which a graph
replay has done before it starts.
"""

from __future__ import annotations

from microbench.protocols import EventLike
from microbench.schedulers.run import TOKEN_BYTES, Launched, Run, finish


def overlap_copy_stream(run: Run, steps: int) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work = run.host, run.device, run.model, run.work
    lap = run.trace.track("scheduler")
    forward_stream, schedule_stream = run.forward_stream or device.Stream(), device.current_stream()
    copy_stream = device.Stream()

    def loop() -> None:
        last: Launched | None = None
        inputs_read: EventLike | None = None
        for _ in range(steps):
            at = host.now_ns()
            if inputs_read is not None:
                schedule_stream.wait_event(inputs_read)
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
                inputs_read = device.Event()
                inputs_read.record()
                model.forward(batch)
                ids = model.sample(batch)
                work.publish(batch, ids)
                copy_stream.wait_stream(forward_stream)
                with device.stream(copy_stream):
                    copy_done = device.Event()
                    tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                    copy_done.record()
            work.outputs(batch, futures)
            launched = Launched(work.snapshot(batch), copy_done, tokens, ids)
            lap("launch", at)
            if last is not None:
                finish(run, lap, last)
            last = launched
        if last is not None:
            finish(run, lap, last)

    host.run({"scheduler": loop})
