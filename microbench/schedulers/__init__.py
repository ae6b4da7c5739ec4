"""Scheduler designs, one a file; each is a function of a `Run` and the number of steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from microbench.errors import unknown
from microbench.schedulers.batch_queue import batch_queue
from microbench.schedulers.multi_step import multi_step
from microbench.schedulers.overlap_copy_stream import overlap_copy_stream
from microbench.schedulers.overlap_late_sample import overlap_late_sample
from microbench.schedulers.overlap_loop import overlap_loop
from microbench.schedulers.overlap_thread import overlap_thread
from microbench.schedulers.run import Run
from microbench.schedulers.run_to_completion import run_to_completion

Scheduler = Callable[[Run, int], None]

SCHEDULERS: dict[str, Scheduler] = {
    "run_to_completion": run_to_completion,
    "run_to_completion:sender": partial(run_to_completion, send_apart=True),
    "overlap_thread:attribute": partial(overlap_thread, launch_done="attribute"),
    "overlap_thread:per_batch": partial(overlap_thread, launch_done="per_batch"),
    "overlap_thread:none": partial(overlap_thread, launch_done="none"),
    "overlap_loop": overlap_loop,
    "overlap_copy_stream": overlap_copy_stream,
    "overlap_late_sample": overlap_late_sample,
    "batch_queue": batch_queue,
    "multi_step:8": partial(multi_step, k=8),
}
ALIASES = {"overlap_thread": "overlap_thread:attribute", "multi_step": "multi_step:8"}


def scheduler(name: str) -> tuple[str, Scheduler]:
    """The full name and function of a scheduler. Raises UsageError listing the known ones."""
    full = ALIASES.get(name, name)
    try:
        return full, SCHEDULERS[full]
    except KeyError:
        raise unknown("scheduler", name, SCHEDULERS) from None


def overlaps(name: str) -> bool:
    """Whether this design schedules a step before the last one's result is known."""
    return not name.startswith("run_to_completion")


__all__ = ["SCHEDULERS", "Run", "Scheduler", "overlaps", "scheduler"]
