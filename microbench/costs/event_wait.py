"""Event wait: how long after the device reached an event the waiting host sees it, and the CPU burned meanwhile."""

from __future__ import annotations

import threading
import time

from microbench.costs.clocks import WARM_UP, Clocks, clock_rows
from microbench.costs.cost import Cost, clock_of
from microbench.errors import WaitTimedOut
from microbench.protocols import Device, EventLike, Host

MODES = ("spin", "blocking", "query loop")
TIMEOUT_S = 30.0


def event_wait(host: Host, device: Device, mode: str, *, waits: int = 60, kernel_ns: int = 500_000) -> list[Cost]:
    """Host-observed completion minus the event's own time, for kernels of `kernel_ns`; then the three clocks of it.

    On a real GPU, whose clock is not the host's, the first is the time from submitting to seeing minus the kernel's own
    time by device events, so the launch latency is in it. For the same reason the device clock is not held.
    spin: the waiting call burns a core without the GIL. blocking: it sleeps. query loop: Python polls `query()`, which
    holds the GIL in torch, and yields the core in between. Raises WaitTimedOut when the loop sees no end.
    """
    seen_after: list[int] = []
    submit: list[int] = []
    on_device: list[int] = []
    completion: list[int] = []
    cpu: list[int] = []
    first = device.Event(enable_timing=True)
    event = device.Event(enable_timing=True, blocking=mode == "blocking")

    def once() -> None:
        first.record()
        start = host.now_ns()
        due = device.spin(kernel_ns)
        event.record()
        submitted = host.now_ns()
        began = time.thread_time_ns()
        if mode == "query loop":
            _poll(host, event)
        else:
            event.synchronize()
        cpu.append(time.thread_time_ns() - began)
        seen = host.now_ns()
        on_device.append(round(first.elapsed_time(event) * 1e6))
        seen_after.append(max(seen - (due if due is not None else start + on_device[-1]), 0))
        submit.append(submitted - start)
        completion.append(seen - start)

    def measure() -> None:
        for _ in range(WARM_UP):
            once()
        for samples in (seen_after, submit, on_device, completion, cpu):
            samples.clear()
        for _ in range(waits):
            once()

    host.run({"waiter": measure})
    facts = {"cpu_share_of_wait": round(sum(cpu) / (waits * kernel_ns), 3), "kernel_us": kernel_ns / 1e3}
    clocks = Clocks(submit_ns=tuple(submit), device_ns=tuple(on_device), completion_ns=tuple(completion))
    seen_row = Cost(
        group="event wait",
        variant=f"{mode}, seen after the event",
        samples_ns=tuple(seen_after),
        clock=clock_of(device, "host completion"),
        facts=facts,
    )
    return [seen_row, *clock_rows(device, clocks, group="event wait", variant=mode)]


def _poll(host: Host, event: EventLike) -> None:
    deadline = host.now_ns() + round(TIMEOUT_S * 1e9)
    while not event.query():
        if host.now_ns() > deadline:
            raise WaitTimedOut(threading.current_thread().name, "an event by a query loop", TIMEOUT_S)
        time.sleep(0)
