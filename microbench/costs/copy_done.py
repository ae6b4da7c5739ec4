"""copy_done: copy tokens to the host, record an event behind the copy, wait for it."""

from __future__ import annotations

from typing import Any

from microbench.costs.cost import Cost, clock_of
from microbench.protocols import Device, Host

SIZES_BYTES = (4, 64, 1024, 16 * 1024, 256 * 1024, 2 * 1024 * 1024)


def copy_done(
    host: Host, device: Device, nbytes: int, *, pinned: bool = True, copies: int = 60, values: Any = None
) -> list[Cost]:
    """Two rows: the host's submit time (copy and record), and completion as the host sees it (to the end of the wait).

    values: what to copy, `nbytes` long; a modelled GPU needs none. A pageable copy waits inside the submit.
    """
    submit: list[int] = []
    complete: list[int] = []

    def measure() -> None:
        for _ in range(copies):
            done = device.Event()
            start = host.now_ns()
            device.to_host(values, nbytes=nbytes, pinned=pinned)
            done.record()
            submitted = host.now_ns()
            done.synchronize()
            complete.append(host.now_ns() - start)
            submit.append(submitted - start)

    host.run({"scheduler": measure})
    memory = "pinned" if pinned else "pageable"
    size = f"{nbytes // 2**20} MiB" if nbytes >= 2**20 else f"{nbytes // 1024} KiB" if nbytes >= 1024 else f"{nbytes} B"
    facts, clock = {"bytes": float(nbytes)}, clock_of(device)
    return [
        Cost(group="copy_done", variant=f"{size} {memory}, submit", samples_ns=tuple(submit), clock=clock, facts=facts),
        Cost(
            group="copy_done",
            variant=f"{size} {memory}, complete",
            samples_ns=tuple(complete),
            clock=clock,
            facts=facts,
        ),
    ]
