"""Overlap with a forward thread: the scheduler processes step N-1 while the other thread launches step N.

SGLang 0.4.0 to 0.5.3. What the scheduler waits for before it processes N-1 is the variant:

* `attribute` (0.4.0.post1 to 0.4.6): an attribute that the forward thread replaces when it starts a batch. Meant to be
  N's event; when the forward thread has not got to N yet it is N-1's, already set, and nothing is waited for.
* `per_batch` (0.4.9 to 0.5.3): the event travels with batch N, so it is always N's. The forward stream waits for the
  scheduler's, where the other two block the scheduler until its own stream is idle.
* `none` (proposed in SGLang issue 2558): only the copy of N-1's tokens is waited for.
"""

from __future__ import annotations

from collections import deque

from microbench.protocols import Batch, EventLike, HostCopy, Latch
from microbench.schedulers.run import TOKEN_BYTES, Run


class _Shared:
    """The attribute both threads see."""

    launch_done: Latch


def overlap_thread(run: Run, steps: int, *, launch_done: str = "attribute") -> None:
    """Run up to `steps` decode steps; `launch_done` is `attribute`, `per_batch` or `none`."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    to_forward, to_scheduler = host.channel("batches"), host.channel("results")
    forward_stream, schedule_stream = run.forward_stream or device.Stream(), device.current_stream()
    shared = _Shared()

    def forward() -> None:
        lap = trace.track("forward")
        alive: deque[Batch] = deque(maxlen=2)  # tensors of a batch must outlive its kernels
        with device.stream(forward_stream):
            while (item := to_forward.get()) is not None:
                batch, launched, prepared = item
                at = host.now_ns()
                alive.append(batch)
                if launch_done == "attribute":
                    launched = shared.launch_done = host.latch("launch_done")
                copy_done = device.Event()
                if prepared is not None:
                    forward_stream.wait_event(prepared)
                work.resolve(batch)
                at = lap("launch", at)
                model.plan(batch)
                at = lap("wait", at)
                model.forward(batch)
                if launched is not None:
                    launched.set()
                ids = model.sample(batch)
                work.publish(batch, ids)
                tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
                copy_done.record()
                lap("launch", at)
                to_scheduler.put((copy_done, tokens))

    def schedule() -> None:
        lap = trace.track("scheduler")
        in_flight: deque[tuple[Batch, Latch | None]] = deque()
        current: Latch | None = None

        def finish_oldest(newest: Latch | None) -> None:
            batch, _ = in_flight.popleft()
            at = host.now_ns()
            copy_done, tokens = to_scheduler.get()
            ids = _await(copy_done, tokens, newest)
            at = lap("wait", at)
            work.process(batch, ids)
            at = lap("process", at)
            work.stream(batch)
            trace.step_done(lap("stream", at))

        def _await(copy_done: EventLike, tokens: HostCopy, newest: Latch | None) -> list[int]:
            if launch_done == "per_batch":
                if newest is not None:
                    newest.wait()
                copy_done.synchronize()
            else:
                copy_done.synchronize()
                if launch_done == "attribute":
                    shared.launch_done.wait()
            return tokens.tolist()

        try:
            for _ in range(steps):
                at = host.now_ns()
                batch = work.schedule()
                if batch is None:
                    break
                at = lap("schedule", at)
                current, prepared = None, None
                if launch_done == "per_batch":
                    current, prepared = host.latch("launch_done"), device.Event()
                    prepared.record()
                else:
                    schedule_stream.synchronize()
                to_forward.put((batch, current, prepared))
                work.outputs(batch, work.futures(batch))
                in_flight.append((work.snapshot(batch), current))
                lap("schedule", at)
                if len(in_flight) > 1:
                    finish_oldest(current)
            while in_flight:
                finish_oldest(None)
        finally:
            to_forward.put(None)

    host.run({"scheduler": schedule, "forward": forward})
