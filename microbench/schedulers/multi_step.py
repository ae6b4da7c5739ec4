"""Schedule once for k decode steps: launch them all, then read, process and stream their results.

vLLM 0.6 (`--num-scheduler-steps`). The requests stay the same for k steps, so scheduling is paid once and each step's
inputs are the last one's outputs on the device. Paid for with up to k-1 dead rows a request, with tokens that come in
bursts, and with requests that wait up to k steps for admission.
"""

from __future__ import annotations

from microbench.protocols import Batch
from microbench.schedulers.run import TOKEN_BYTES, Launched, Run, answer, update


def multi_step(run: Run, steps: int, *, k: int) -> None:
    """Run up to `steps` decode steps in rounds of `k`, fewer when the requests end."""
    host, device, model, work, trace = run.host, run.device, run.model, run.work, run.trace
    lap = trace.track("scheduler")
    forward_stream, copy_stream = run.forward_stream or device.Stream(), device.Stream()

    def launch(batch: Batch, at: int) -> Launched:
        model.plan(batch)
        at = lap("wait", at)
        model.forward(batch)
        ids = model.sample(batch)
        work.outputs(batch, ids)
        copy_stream.wait_stream(forward_stream)
        with device.stream(copy_stream):
            copy_done = device.Event(blocking=True)
            tokens = device.to_host(ids, nbytes=TOKEN_BYTES * batch.size)
            copy_done.record()
        lap("launch", at)
        return Launched(work.snapshot(batch), copy_done, tokens, ids)

    def loop() -> None:
        done = 0
        while done < steps:
            start = at = host.now_ns()
            batch = work.schedule()
            if batch is None:
                return
            at = lap("schedule", at)
            launched = [launch(batch, at)]
            while len(launched) < min(k, steps - done):
                at = host.now_ns()
                batch = work.advance()
                at = lap("schedule", at)
                launched.append(launch(batch, at))
            for step in launched:
                update(run, lap, step)
                answer(run, lap, step)
            done += len(launched)
            # The results of a round come as a burst; a step's share of its time is one part in as many as there are.
            share = (host.now_ns() - start) / len(launched)
            for i in range(1, len(launched) + 1):
                trace.step_done(round(start + i * share))

    def on_stream() -> None:
        forward_stream.wait_stream(device.current_stream())
        with device.stream(forward_stream):
            loop()

    host.run({"scheduler": on_stream})
