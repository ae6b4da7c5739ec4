"""Scheduler designs: same tokens, exact times on the virtual host, and errors that reach the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def working(engine_name: str, workload: Workload) -> Iterator[Any]:
    """`run(scheduler, host, steps)` on the engine's requests: what each got, and the work. Starts anew each time."""
    with ExitStack() as stack:
        works = {}
        for overlap in (False, True):
            works[overlap] = real_work(engine(engine_name), workload, overlap=overlap)
            stack.callback(works[overlap].close)

        def run(name: str, host: Any, steps: int = 60) -> tuple[list[list[int]], Any]:
            work = works[overlaps(name)]
            work.rewind()
            work.dead_rows = 0
            device = SimDevice(host)
            SCHEDULERS[name](Run(host, device, device.model(SPEC), work, Trace(host.now_ns)), steps)
            return [list(r.output_ids[workload.generated :]) for r in work.all_requests], work

        yield run


def dead_rows(name: str, skips_finishing: bool, lengths: list[int]) -> int:
    """Rows computed for requests that have ended, when `lengths` tokens end them."""
    if name == "multi_step:8":
        return sum(-n % 8 for n in lengths)
    return len(lengths) if overlaps(name) and not skips_finishing else 0


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_batch_yields_the_same_tokens_under_every_scheduler(engine_name: str) -> None:
    workload = Workload(requests=7, max_prompt=20, generated=2, output_tokens=(1, 12))
    lengths, skips_finishing = workload.remaining_lengths(), engine(engine_name).skips_finishing
    assert lengths is not None
    with working(engine_name, workload) as run:
        expected, _ = run("run_to_completion", RealHost())
        assert [len(tokens) for tokens in expected] == lengths
        for name in SCHEDULERS:
            for host in (RealHost(), VirtualHost()):
                got, work = run(name, host)
                assert got == expected, (name, host.name)
                assert work.dead_rows == dead_rows(name, skips_finishing, lengths), (
                    name,
                    host.name,
                )


def test_reading_tokens_before_copy_done_gives_other_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    with working("minimal", Workload(requests=3, max_prompt=8, generated=2, output_tokens=(6, 6))) as run:
        expected, _ = run("run_to_completion", VirtualHost())
        monkeypatch.setattr("microbench.devices.sim.SimEvent.synchronize", lambda self: None)
        for name in SCHEDULERS:
            if overlaps(name):
                assert run(name, VirtualHost())[0] != expected, name


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


def test_a_sender_hides_streaming_under_the_next_step() -> None:
    gpu, each = 10 * MS, 20 * US
    assert step_ns("run_to_completion:sender", spec_of(gpu, 10, each)) == S + each + LATENCY + gpu + COPY + P


@pytest.mark.parametrize("name", ["overlap_copy_stream", "batch_queue"])
def test_a_copy_on_its_own_stream_is_beside_the_next_forward(name: str) -> None:
    assert step_ns(name, spec_of(10 * MS, 10, 20 * US)) == 10 * MS


@pytest.mark.parametrize("name", ["run_to_completion:sender", "batch_queue"])
def test_a_sender_that_the_gil_keeps_waiting_still_costs_its_time(name: str) -> None:
    gpu, launches, each = 100 * US, 10, 20 * US
    got = step_ns(name, spec_of(gpu, launches, each))
    assert got == pytest.approx(S + launches * each + P + O, rel=0.1)


def test_late_sampling_is_exposed_when_the_forward_ends_before_the_last_step_is_processed() -> None:
    gpu, each, sample = 600 * US, 20 * US, 50 * US
    spec = replace(spec_of(gpu, 1, each), sample_ns=(sample,))
    # Host: S, the forward's launch, P, the sampling's launch, O. The GPU has finished the forward by then either way.
    for name in ("overlap_loop", "overlap_late_sample"):
        assert step_ns(name, spec) == S + each + each + P + O
    # GPU-bound, processing in between costs nothing.
    assert step_ns("overlap_late_sample", replace(spec_of(10 * MS, 1, each), sample_ns=(sample,))) == (
        10 * MS + sample + COPY
    )


def test_several_steps_a_schedule_pay_for_scheduling_and_the_last_result_once() -> None:
    gpu, each, k = 10 * MS, 20 * US, 8
    round_ns = S + each + LATENCY + k * gpu + COPY + P + O
    assert step_ns("multi_step:8", spec_of(gpu, 10, each)) == pytest.approx(round_ns / k, abs=1)


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


@pytest.fixture(scope="module")
def minimal_works() -> Iterator[dict[bool, Any]]:
    works = {o: real_work(engine("minimal"), Workload(requests=2, max_prompt=4), overlap=o) for o in (False, True)}
    yield works
    for work in works.values():
        work.close()


@pytest.mark.parametrize("make_host", [lambda: RealHost(timeout_s=5), VirtualHost], ids=["real", "virtual"])
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("where", ["schedule", "resolve", "publish", "process", "stream", "forward", "sample"])
def test_an_error_anywhere_ends_the_run_with_that_error(
    make_host: Any, name: str, where: str, minimal_works: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host()
    device = SimDevice(host)
    work = minimal_works[overlaps(name)]
    work.rewind()
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
    monkeypatch.setattr(owner, where, break_third)
    run = Run(host, device, model, work, Trace(host.now_ns))
    if where in ("resolve", "publish") and (name.startswith("multi_step") or not overlaps(name)):
        SCHEDULERS[name](run, 6)  # it has no future ids
        return
    with pytest.raises(Broken, match=where):
        SCHEDULERS[name](run, 24)


def test_unknown_schedulers_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match="unknown scheduler 'overlap_threads'; known: run_to_completion, run_to_completion:"
    ):
        scheduler("overlap_threads")


def test_overlap_thread_alone_means_the_published_variant() -> None:
    assert scheduler("overlap_thread")[0] == "overlap_thread:attribute"
    assert scheduler("multi_step")[0] == "multi_step:8"


def test_only_run_to_completion_does_not_overlap() -> None:
    assert [name for name in SCHEDULERS if not overlaps(name)] == ["run_to_completion", "run_to_completion:sender"]
    for profile in ENGINES.values():
        assert [overlaps(scheduler(name)[0]) for name in profile.schedulers] == [False, True]


def test_a_graph_is_one_launch() -> None:
    spec = replace(spec_of(5 * MS, 100, 50 * US), graph=LaunchCost(gil_ns=0, free_ns=300 * US))
    assert spec.launch_ns == 300 * US
    assert step_ns("overlap_loop", spec) == 5 * MS + COPY
