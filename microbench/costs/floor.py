"""The noise floor: what the instruments themselves cost. It stands with every table of results."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from statistics import median

from microbench.costs.cost import Cost, clock_of
from microbench.hosts.real import RealHost
from microbench.protocols import Device, Host
from microbench.trace import SEGMENTS, Trace


def each(
    call: Callable[[], object], *, times: int, samples: int, settle: Callable[[], object] = lambda: None
) -> tuple[int, ...]:
    """ns of one call, from `samples` runs of `times` calls; `settle` before each run, not timed."""
    result = []
    for _ in range(samples):
        settle()
        start = time.perf_counter_ns()
        for _ in range(times):
            call()
        result.append((time.perf_counter_ns() - start) // times)
    return tuple(result)


def clock_read() -> Cost:
    """One read of the host's clock."""
    return Cost(group="noise floor", variant="clock read", samples_ns=each(time.monotonic_ns, times=1000, samples=50))


def queue_operation() -> Cost:
    """put + get of a queue.Queue on one thread, without waiting."""
    q: queue.Queue[int] = queue.Queue()

    def put_get() -> None:
        q.put(1)
        q.get()

    return Cost(
        group="noise floor", variant="queue put + get, same thread", samples_ns=each(put_get, times=200, samples=50)
    )


def overshoot(*, sleeps: int = 100, sleep_ns: int = 2_000_000) -> Cost:
    """How much later than asked a timed wait of the real host ends: added to every wait for a modelled GPU."""
    host = RealHost()
    samples: list[int] = []

    def waits() -> None:
        for _ in range(sleeps):
            due = host.now_ns() + sleep_ns
            host.wait_until(due, "the floor's timer")
            samples.append(host.now_ns() - due)

    host.run({"floor": waits})
    return Cost(group="noise floor", variant="wake-up overshoot of a timed wait", samples_ns=tuple(samples))


def harness(*, steps: int = 2000) -> Cost:
    """What recording one step costs: all its segments and the step's end, with nothing in between."""
    samples = []
    for _ in range(20):
        trace = Trace(time.monotonic_ns)
        lap = trace.track("floor")
        start = time.perf_counter_ns()
        for _ in range(steps // 20):
            at = time.monotonic_ns()
            for segment in (*SEGMENTS, "wait", "launch"):
                at = lap(segment, at)
            trace.step_done(at)
        samples.append((time.perf_counter_ns() - start) // (steps // 20))
    return Cost(group="noise floor", variant="recording one step", samples_ns=tuple(samples))


def event_floor(host: Host, device: Device) -> list[Cost]:
    """A null event pair (two records with nothing between) and the query of an event that is done."""
    first, second = device.Event(enable_timing=True), device.Event(enable_timing=True)

    def pair() -> None:
        first.record()
        second.record()

    costs: list[Cost] = []

    def measure() -> None:
        costs.append(
            Cost(
                group="noise floor",
                variant="null event pair",
                samples_ns=each(pair, times=100, samples=50, settle=second.synchronize),
                clock=clock_of(device),
            )
        )
        second.synchronize()
        costs.append(
            Cost(
                group="noise floor",
                variant="query of a finished event",
                samples_ns=each(second.query, times=100, samples=50),
                clock=clock_of(device),
            )
        )

    host.run({"floor": measure})
    return costs


def floor(host: Host, device: Device) -> list[Cost]:
    """All rows of the noise floor for this host and device."""
    return [clock_read(), queue_operation(), overshoot(), harness(), *event_floor(host, device)]


def overshoot_ns() -> int:
    """Median wake-up overshoot of this host."""
    return round(median(overshoot().samples_ns))


def queue_ns() -> int:
    """Median of one uncontended queue operation of this host."""
    return round(median(queue_operation().samples_ns) / 2)
