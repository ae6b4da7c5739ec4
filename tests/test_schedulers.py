"""Scheduler designs: same tokens, exact times on the virtual host, and errors that reach the caller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from microbench.case import Case, instances, what_if_spec
from microbench.devices.sim import SimDevice
from microbench.devices.spec import LaunchCost, StepSpec, even_kernels
from microbench.engines import ENGINES, Workload, engine, real_work
from microbench.engines.prices import HostProfile, Price
from microbench.errors import UsageError
from microbench.hosts.real import RealHost
from microbench.hosts.virtual import VirtualHost
from microbench.measure import sample
from microbench.schedulers import SCHEDULERS, Run, overlaps, scheduler
from microbench.target import parse_target
from microbench.trace import Trace

US, MS = 1_000, 1_000_000
TINY = LaunchCost(gil_ns=2 * US, free_ns=1 * US)
SPEC = StepSpec(forward_ns=(100 * US,) * 4, sample_ns=(10 * US,), launch=TINY, sample_launch=TINY)


def outputs(name: str, engine_name: str, host: Any, workload: Workload, steps: int = 60) -> tuple[list[list[int]], Any]:
    """What each request got, and the work."""
    work = real_work(engine(engine_name), workload, overlap=overlaps(name))
    device = SimDevice(host)
    try:
        SCHEDULERS[name](Run(host, device, device.model(SPEC), work, Trace(host.now_ns)), steps)
    finally:
        work.close()
    return [r.output_ids[workload.generated :] for r in work.all_requests], work


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_batch_yields_the_same_tokens_under_every_scheduler(engine_name: str) -> None:
    workload = Workload(requests=7, max_prompt=20, generated=2, output_tokens=(1, 12))
    expected, base = outputs("run_to_completion", engine_name, RealHost(), workload)
    assert [len(tokens) for tokens in expected] == workload.remaining_lengths()
    assert base.dead_rows == 0
    for name in SCHEDULERS:
        for host in (RealHost(), VirtualHost()):
            got, work = outputs(name, engine_name, host, workload)
            assert got == expected, (name, host.name)
            # With overlap every request is still in the batch after the one that ended it.
            assert work.dead_rows == (len(expected) if overlaps(name) else 0), (name, host.name)


@pytest.mark.parametrize("name", [n for n in SCHEDULERS if overlaps(n)])
def test_reading_tokens_before_copy_done_gives_other_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(requests=3, max_prompt=8, generated=2, output_tokens=(6, 6))
    expected, _ = outputs("run_to_completion", "minimal", VirtualHost(), workload)
    monkeypatch.setattr("microbench.devices.sim.SimEvent.synchronize", lambda self: None)
    got, _ = outputs(name, "minimal", VirtualHost(), workload)
    assert got != expected


# -- exact times: a host with round prices, no wake-up time and free queues --------------------------------------

S, P, O = 200 * US, 300 * US, 1500 * US  # noqa: E741 (the letters of the field)
ROUND = HostProfile(
    machine="made up",
    measured="never",
    wake_ns=(0,),
    nap_wake_ns=(0,),
    signal_ns=0,
    overshoot_ns=0,
    queue_ns=0,
    dispatch_factor=1.0,
    prices={"sglang-0.5.4": {"schedule": Price(fixed=S), "process": Price(fixed=P), "build": Price(fixed=O)}},
)


def step_ns(name: str, spec: StepSpec) -> float:
    case = Case(
        target=parse_target("virtual+sim:a100-80g"),
        engine=engine("sglang-0.5.4"),
        spec=spec,
        workload=Workload(requests=4),
    )
    with instances(case, [name], ROUND) as opened:
        return opened[0].block(20, warm=4).step_ns


def spec_of(gpu_ns: int, launches: int, each_ns: int, *, plan_sync: bool = False) -> StepSpec:
    cost = LaunchCost(gil_ns=each_ns, free_ns=0)
    return StepSpec(
        forward_ns=even_kernels(gpu_ns, launches), sample_ns=(), launch=cost, sample_launch=cost, plan_sync=plan_sync
    )


LATENCY = 4 * US
COPY = 6 * US + 1  # 16 B at 25 GB/s, rounded up to a whole ns


def test_run_to_completion_takes_everything_in_a_row() -> None:
    gpu, launches, each = 10 * MS, 10, 20 * US
    # The GPU starts with the first launch; the host waits for its end and the copy, then processes and streams.
    assert step_ns("run_to_completion", spec_of(gpu, launches, each)) == S + each + LATENCY + gpu + COPY + P + O


def test_overlap_on_one_thread_hides_the_host_under_the_gpu() -> None:
    assert step_ns("overlap_loop", spec_of(10 * MS, 10, 20 * US)) == 10 * MS + COPY


def test_overlap_on_one_thread_is_host_bound_when_the_gpu_is_fast() -> None:
    launches, each = 10, 20 * US
    assert step_ns("overlap_loop", spec_of(MS, launches, each)) == S + launches * each + P + O


@pytest.mark.parametrize("variant", ["attribute", "per_batch", "none"])
def test_a_forward_thread_hides_the_host_under_a_slow_gpu(variant: str) -> None:
    gpu = 20 * MS
    got = step_ns(f"overlap_thread:{variant}", spec_of(gpu, 10, 20 * US))
    assert gpu <= got <= gpu * 1.01


def test_launch_bound_a_second_thread_gains_nothing_under_the_gil() -> None:
    launches, each = 100, 50 * US
    spec = spec_of(MS, launches, each)
    alone = step_ns("run_to_completion", spec)
    for variant in ("attribute", "per_batch", "none"):
        assert step_ns(f"overlap_thread:{variant}", spec) >= 0.99 * alone - LATENCY - COPY


def test_without_launch_done_the_gain_is_gone_where_planning_synchronises() -> None:
    # SGLang issue 2558, point 2: the host work of N-1 then runs before N is launched, while the GPU idles.
    profile = engine("sglang-0.4.0.post1")
    case = Case(
        target=parse_target("virtual+sim:a100-80g"),
        engine=profile,
        spec=what_if_spec(profile, gpu_ns=25 * MS, launches=288, launch=profile.launch),
        workload=Workload(requests=500),
    )
    names = ["run_to_completion", "overlap_thread:attribute", "overlap_thread:per_batch", "overlap_thread:none"]
    sampled = sample(case, names)
    attribute, per_batch, none = (sampled.ratio(names[0], n).value for n in names[1:])
    assert attribute < 0.85
    assert per_batch < 0.85
    assert none > 0.95


# -- errors ------------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


@pytest.mark.parametrize("make_host", [lambda: RealHost(timeout_s=5), VirtualHost], ids=["real", "virtual"])
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("where", ["schedule", "resolve", "publish", "process", "stream", "forward", "sample"])
def test_an_error_anywhere_ends_the_run_with_that_error(make_host: Any, name: str, where: str) -> None:
    host = make_host()
    device = SimDevice(host)
    work = real_work(engine("minimal"), Workload(requests=2, max_prompt=4), overlap=overlaps(name))
    model = device.model(SPEC)
    calls = 0

    def break_third(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Broken(where)
        return original(*args)

    owner: Any = model if where in ("forward", "sample") else work
    original = getattr(owner, where)
    setattr(owner, where, break_third)
    run = Run(host, device, model, work, Trace(host.now_ns))
    try:
        if name == "run_to_completion" and where in ("resolve", "publish"):
            SCHEDULERS[name](run, 6)  # it has no future ids
            return
        with pytest.raises(Broken, match=where):
            SCHEDULERS[name](run, 6)
    finally:
        work.close()


def test_unknown_schedulers_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match="unknown scheduler 'overlap_threads'; known: run_to_completion, overlap_thread:"
    ):
        scheduler("overlap_threads")


def test_overlap_thread_alone_means_the_published_variant() -> None:
    assert scheduler("overlap_thread")[0] == "overlap_thread:attribute"


def test_a_graph_is_one_launch() -> None:
    spec = replace(spec_of(5 * MS, 100, 50 * US), graph=LaunchCost(gil_ns=0, free_ns=300 * US))
    assert spec.launch_ns == 300 * US
    assert step_ns("overlap_loop", spec) == 5 * MS + COPY
