"""Event wait: how long after the device reached an event the waiting host sees it, and the CPU burned meanwhile."""

from __future__ import annotations

import time

from microbench.costs.cost import Cost, clock_of
from microbench.protocols import Device, Host

MODES = ("spin", "blocking", "query loop")


def event_wait(host: Host, device: Device, mode: str, *, waits: int = 60, kernel_ns: int = 500_000) -> Cost:
    """Host-observed completion minus the event's own time, for kernels of `kernel_ns`.

    On a real GPU, whose clock is not the host's, it is the time from submitting to seeing minus the kernel's own time
    by device events, so the launch latency is in it.
    spin: the waiting call burns a core without the GIL. blocking: it sleeps. query loop: Python polls `query()`, which
    holds the GIL in torch, and yields the core in between.
    """
    samples: list[int] = []
    cpu: list[int] = []

    def measure() -> None:
        for _ in range(waits):
            first = device.Event(enable_timing=True)
            event = device.Event(enable_timing=True, blocking=mode == "blocking")
            first.record()
            start = host.now_ns()
            due = device.spin(kernel_ns)
            event.record()
            began = time.thread_time_ns()
            if mode == "query loop":
                while not event.query():
                    time.sleep(0)
            else:
                event.synchronize()
            cpu.append(time.thread_time_ns() - began)
            seen = host.now_ns()
            ended = due if due is not None else start + round(first.elapsed_time(event) * 1e6)
            samples.append(max(seen - ended, 0))

    host.run({"waiter": measure})
    return Cost(
        group="event wait",
        variant=mode,
        samples_ns=tuple(samples),
        clock=clock_of(device),
        facts={"cpu_share_of_wait": round(sum(cpu) / (waits * kernel_ns), 3), "kernel_us": kernel_ns / 1e3},
    )
