"""Isolated costs: each measures what its name says, on the virtual host exactly where it can."""

from __future__ import annotations

import sys

import pytest

from microbench.case import what_if_spec
from microbench.costs import event_wait as waits
from microbench.costs.copy_done import copy_done
from microbench.costs.event_wait import MODES, event_wait
from microbench.costs.floor import clock_read, harness, overshoot, queue_operation
from microbench.costs.gil import gil
from microbench.costs.handoff import PRIMITIVES, handoff, handoff_busy
from microbench.costs.launch import launch
from microbench.costs.scheduling import scheduling
from microbench.devices.sim import SimDevice, SimEvent
from microbench.engines import engine
from microbench.errors import WaitTimedOut
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.stats import median

US = 1_000


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_signal_arrives_after_it_was_sent(primitive: str) -> None:
    cost = handoff(primitive, hand_overs=30)
    assert len(cost.samples_ns) == 30
    assert min(cost.samples_ns) > 0


def test_a_hand_off_beside_a_busy_thread_stalls_for_switch_intervals() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.02)
    try:
        # On a loaded machine the busy thread may be off its core, and keeps no GIL then.
        costs = [handoff_busy("queue.Queue", hand_overs=12)]
        while max(costs[-1].samples_ns) <= 0.01e9 and len(costs) < 20:
            costs.append(handoff_busy("queue.Queue", hand_overs=12))
    finally:
        sys.setswitchinterval(before)
    assert max(costs[-1].samples_ns) > 0.01e9
    assert costs[-1].facts["switch_interval_s"] == pytest.approx(0.02)


def test_a_call_that_gives_the_gil_up_pays_for_it_only_beside_a_busy_thread() -> None:
    alone, busy = gil(None, calls=20), gil(0.02, calls=20)
    for _ in range(200):  # as above; without a stall it takes under a millisecond
        if max(busy.samples_ns) > 0.01e9:
            break
        busy = gil(0.02, calls=20)
    assert max(busy.samples_ns) > 0.01e9
    assert median(alone.samples_ns) < max(busy.samples_ns) / 10


def test_the_harness_costs_less_than_20_us_a_step() -> None:
    assert median(harness().samples_ns) < 20 * US


def test_the_floor_is_positive_and_a_timed_wait_is_never_early() -> None:
    assert median(clock_read().samples_ns) > 0
    assert median(queue_operation().samples_ns) > median(clock_read().samples_ns)
    assert min(overshoot(sleeps=10).samples_ns) >= 0


@pytest.mark.parametrize("mode", MODES)
def test_events_are_seen_after_they_happened(mode: str) -> None:
    host = RealHost()
    seen, submit, on_device, complete = event_wait(host, SimDevice(host, spin_waits=True), mode, waits=10)
    assert min(seen.samples_ns) >= 0
    burned = seen.facts["cpu_share_of_wait"]
    assert burned < 0.5 if mode == "blocking" else burned > 0.5
    assert min(submit.samples_ns) > 0
    assert min(on_device.samples_ns) >= 500 * US
    assert min(complete.samples_ns) >= 500 * US
    assert "held_share" not in on_device.facts


def test_a_query_loop_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    host = RealHost()
    device = SimDevice(host)
    monkeypatch.setattr(SimEvent, "query", lambda self: False)
    monkeypatch.setattr(waits, "TIMEOUT_S", 0.05)
    with pytest.raises(WaitTimedOut) as error:
        event_wait(host, device, "query loop", waits=1)
    assert str(error.value) == "thread 'waiter' waited longer than 0.05 s for an event by a query loop"


def test_a_modelled_copy_takes_latency_and_bandwidth() -> None:
    host = VirtualHost()
    device = SimDevice(host, copy_latency_ns=6_000, copy_bytes_per_s=1e9)
    submit, on_device, complete = copy_done(host, device, 4096, copies=3)
    assert set(submit.samples_ns) == {0}
    assert set(on_device.samples_ns) == set(complete.samples_ns) == {6_000 + 4_096}
    assert on_device.facts == {"bytes": 4096.0, "held_share": 1.0}
    submit, on_device, complete = copy_done(host, device, 4096, pinned=False, copies=3)
    assert set(submit.samples_ns) == set(on_device.samples_ns) == set(complete.samples_ns) == {10_096}
    assert on_device.facts["held_share"] == 0  # the copy waited for the hold to end
    assert submit.variant == "4 KiB pageable, host submit"


def test_a_launch_costs_what_was_asked_for() -> None:
    profile = engine("sglang-0.4.0.post1")
    spec = what_if_spec(profile, gpu_ns=1_000_000, launches=50, launch=profile.launch)
    host = VirtualHost()
    submit, on_device, complete = launch(host, SimDevice(host), spec, steps=3)
    assert set(submit.samples_ns) == {25_000}
    assert set(on_device.samples_ns) == {20_000}  # 1 ms in 50 kernels, with none of the host's 25 us each in it
    assert set(complete.samples_ns) == {25_000 + (4_000 + 20_000) // 50}  # latency and kernel of the last one
    assert submit.facts == {"launches": 50.0}
    assert {cost.clock for cost in (submit, on_device, complete)} == {
        f"{clock}; GPU modelled" for clock in ("host submit", "device event", "host completion")
    }


def test_python_scheduling_grows_with_the_batch() -> None:
    small = {
        c.variant.split(",")[0]: median(c.samples_ns) for c in scheduling(engine("sglang-0.4.0.post1"), 2, steps=4)
    }
    large = {
        c.variant.split(",")[0]: median(c.samples_ns) for c in scheduling(engine("sglang-0.4.0.post1"), 96, steps=4)
    }
    assert set(small) == {"schedule (S)", "process (P)", "stream (O)"}
    assert large["stream (O)"] > 3 * small["stream (O)"]
    assert large["process (P)"] > 3 * small["process (P)"]
