"""copy_done: copy tokens to the host, record an event behind the copy, wait for it."""

from __future__ import annotations

from typing import Any

from microbench.costs.clocks import clock_rows, measured
from microbench.costs.cost import Cost
from microbench.protocols import Device, Host

SIZES_BYTES = (4, 64, 1024, 16 * 1024, 256 * 1024, 2 * 1024 * 1024)


def copy_done(
    host: Host, device: Device, nbytes: int, *, pinned: bool = True, copies: int = 60, values: Any = None
) -> list[Cost]:
    """Three rows: submit (copy and record), the copy by device events, and completion (to the end of the wait).

    values: what to copy, `nbytes` long; a modelled GPU needs none. A pageable copy waits inside the submit, so its
    device time is not held clear of the host.
    """
    done = device.Event()

    def copy() -> None:
        device.to_host(values, nbytes=nbytes, pinned=pinned)
        done.record()

    clocks = measured(host, device, copy, times=copies)
    memory = "pinned" if pinned else "pageable"
    size = f"{nbytes // 2**20} MiB" if nbytes >= 2**20 else f"{nbytes // 1024} KiB" if nbytes >= 1024 else f"{nbytes} B"
    return clock_rows(device, clocks, group="copy_done", variant=f"{size} {memory}", bytes=float(nbytes))
