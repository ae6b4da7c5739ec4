"""Host cost of each call on events and streams, for the library that makes it: torch and CuPy side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

from microbench.costs.cost import Cost, clock_of
from microbench.costs.floor import each
from microbench.protocols import Device, Host

GROUP = "stream and event calls"
CALLS = (
    "create + record + destroy, timing on",
    "create + record + destroy, timing off",
    "create + destroy, timing on",
    "create + destroy, timing off",
    "record, timing on",
    "record, timing off",
    "query of a done event",
    "synchronize with a done event",
    "wait of a stream for an event",
    "query of an idle stream",
    "current_stream",
    "enter + leave a stream",
    "record, two threads at once",
)
"""The rows, in this order. (An event of torch takes its CUDA event at the first record.)"""


def stream_calls(host: Host, device: Device, library: str, *, times: int = 100, samples: int = 20) -> list[Cost]:
    """One row a call, ns of one from `samples` runs of `times`; `library` leads each variant.

    Nothing is waited for: what is queried and synchronised with is done, and what is recorded marks an idle stream.
    """
    timed, plain = device.Event(enable_timing=True), device.Event()
    side, current = device.Stream(), device.current_stream()

    def switch() -> None:
        with device.stream(side):
            pass

    calls: tuple[Callable[[], object], ...] = (
        lambda: device.Event(enable_timing=True).record(),
        lambda: device.Event().record(),
        lambda: device.Event(enable_timing=True),
        lambda: device.Event(),
        timed.record,
        plain.record,
        plain.query,
        plain.synchronize,
        lambda: side.wait_event(plain),
        side.query,
        device.current_stream,
        switch,
    )
    found: dict[str, tuple[int, ...]] = {}

    def one_thread() -> None:
        for event in (timed, plain):
            event.record()
            event.synchronize()
        for name, call in zip(CALLS[:-1], calls, strict=True):
            each(call, times=times, samples=1)
            # What a run enqueues is gone before the next, so that no call blocks on a full launch queue.
            found[name] = each(call, times=times, samples=samples, settle=device.synchronize)

    host.run({"caller": one_thread})
    rows = [Cost(group=GROUP, variant=name, samples_ns=ns, clock=clock_of(device)) for name, ns in found.items()]
    rows.append(_two_threads(host, device, (current, side), times=times))
    return [replace(row, variant=f"{library}: {row.variant}") for row in rows]


def _two_threads(
    host: Host, device: Device, streams: tuple[Any, Any], *, times: int, together_ns: int = 40_000_000
) -> Cost:
    """ns of one record while another thread records on its stream, too: they share the GIL and the driver's lock.

    For `together_ns`, many switch intervals. The median is of runs that nobody interrupted where a record keeps the
    GIL; the mean holds what the other thread took.
    """
    samples: dict[str, list[int]] = {"recorder": [], "other recorder": []}
    ready = {name: host.latch(f"{name} is ready") for name in samples}

    def record(name: str, other: str, stream: Any) -> None:
        with device.stream(stream):  # makes the device current on this thread
            event = device.Event()
            event.record()
            ready[name].set()
            ready[other].wait()
            end = host.now_ns() + together_ns
            while host.now_ns() < end:
                start = time.perf_counter_ns()
                for _ in range(times):
                    event.record()
                samples[name].append((time.perf_counter_ns() - start) // times)
                event.synchronize()

    first, second = samples
    host.run({first: lambda: record(first, second, streams[0]), second: lambda: record(second, first, streams[1])})
    both = [ns for found in samples.values() for ns in found]
    return Cost(
        group=GROUP,
        variant=CALLS[-1],
        samples_ns=tuple(both),
        clock=clock_of(device),
        facts={"mean_us": round(fmean(both) / 1e3, 3)},
    )
