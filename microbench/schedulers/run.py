"""What a scheduler is given: everything it touches, by value. And the two things most designs do alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from microbench.protocols import Batch, Channel, Device, EngineWork, EventLike, Host, HostCopy, Model
from microbench.trace import Trace


@dataclass(frozen=True)
class Run:
    """One engine instance on one host and device.

    forward_stream: where overlapping designs run the model; made once an instance, since a CUDA stream brings its own
        workspaces. A run without one makes its own.
    """

    host: Host
    device: Device
    model: Model
    work: EngineWork
    trace: Trace
    forward_stream: Any = None


class Launched(NamedTuple):
    """A step on its way: what processing it needs, and where its tokens will be when `copy_done` is reached.

    source: what is copied, where that happens on another stream than the one it belongs to: it must outlive the copy.
    """

    batch: Batch
    copy_done: EventLike
    tokens: HostCopy
    source: Any = None


Lap = Callable[[str, int], int]
TOKEN_BYTES = 4


def update(run: Run, lap: Lap, step: Launched) -> None:
    """Wait for the tokens of a step and process them."""
    at = run.host.now_ns()
    step.copy_done.synchronize()
    ids = step.tokens.tolist()
    at = lap("wait", at)
    run.work.process(step.batch, ids)
    lap("process", at)


def answer(run: Run, lap: Lap, step: Launched) -> int:
    """Stream the outputs of a processed step; returns when that ended."""
    at = run.host.now_ns()
    run.work.stream(step.batch)
    return lap("stream", at)


def finish(run: Run, lap: Lap, step: Launched) -> None:
    """Wait for the tokens of a step, process and stream them."""
    update(run, lap, step)
    run.trace.step_done(answer(run, lap, step))


def sender(run: Run, processed: Channel) -> Callable[[], None]:
    """A task that streams the batches which come through `processed`, until None does.

    A step is over for the scheduler when it has handed it on, so that is where it is recorded. The sender's work shows
    in the step time by what it takes of the GIL, and in its own segments.
    """

    def send() -> None:
        lap = run.trace.track("sender")
        while (batch := processed.get()) is not None:
            at = run.host.now_ns()
            run.work.stream(batch)
            lap("stream", at)

    return send
