"""Overlap with a queue of two batches: a thread waits for results and reads them, another sends the outputs.

vLLM V1 with asynchronous scheduling (`step_with_batch_queue`). The queue is filled first; only when it is full does the
scheduler wait for the oldest result. The model runs on one stream, results are copied on a second. The host writes the
buffers that inputs are copied from only once the last step's copies are done.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from microbench.protocols import Batch, EventLike
from microbench.schedulers.run import TOKEN_BYTES, Run, sender

DEPTH = 2


def batch_queue(run: Run, steps: int) -> None:
    """Run up to `steps` decode steps, fewer when the requests end."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    copies, results, processed = host.channel("copies"), host.channel("results"), host.channel("processed batches")
    forward_stream, copy_stream = run.forward_stream or device.Stream(), device.Stream()

    def read() -> None:
        lap = trace.track("outputs")
        while (item := copies.get()) is not None:
            at = host.now_ns()
            copy_done, tokens = item
            copy_done.synchronize()
            ids = tokens.tolist()
            lap("wait", at)
            results.put(ids)

    def schedule() -> None:
        lap = trace.track("scheduler")
        in_flight: deque[tuple[Batch, Any]] = deque()  # with the ids, which must outlive their copy
        inputs_copied: EventLike | None = None

        def finish_oldest() -> None:
            at = host.now_ns()
            ids = results.get()
            at = lap("wait", at)
            batch, _ = in_flight.popleft()
            work.process(batch, ids)
            trace.step_done(lap("process", at))
            processed.put(batch)

        forward_stream.wait_stream(device.current_stream())
        try:
            with device.stream(forward_stream):
                for _ in range(steps):
                    at = host.now_ns()
                    batch = work.schedule()
                    if batch is None:
                        break
                    at = lap("schedule", at)
                    if inputs_copied is not None:
                        inputs_copied.synchronize()
                    at = lap("wait", at)
                    work.resolve(batch)
                    inputs_copied = device.Event()
                    inputs_copied.record()
                    at = lap("launch", at)
                    model.plan(batch)
                    at = lap("wait", at)
                    model.forward(batch)
                    ids = model.sample(batch)
                    futures = work.futures(batch)
                    work.publish(batch, ids)
                    copy_stream.wait_stream(forward_stream)
                    with device.stream(copy_stream):
                        copy_done = device.Event(blocking=True)
                        tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                        copy_done.record()
                    copies.put((copy_done, tokens))
                    work.outputs(batch, futures)
                    in_flight.append((work.snapshot(batch), ids))
                    lap("launch", at)
                    if len(in_flight) == DEPTH:
                        finish_oldest()
                while in_flight:
                    finish_oldest()
        finally:
            copies.put(None)
            processed.put(None)

    host.run({"scheduler": schedule, "outputs": read, "sender": sender(run, processed)})
