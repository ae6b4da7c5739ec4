"""`microbench step`: one what-if step under each scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, host_options, host_profile, json_option, number
from microbench.errors import UsageError

MOST_TOKENS = 50_000_000
"""Token ids that `step` may hold as Python objects, 40 bytes each."""


@click.command(
    "step",
    epilog=example(
        "microbench step --target real+sim:a100-80g --scheduler run_to_completion,overlap_thread:attribute "
        "--gpu-ms 5 --requests 500"
    ),
)
@click.option("--target", "target_name", default="real+sim:a100-80g", show_default=True)
@click.option("--scheduler", "scheduler_names", default="run_to_completion,overlap_thread:attribute", show_default=True)
@click.option(
    "--gpu-ms", type=float, required=True, callback=number(0.001, 10_000, "ms"), help="GPU time of a forward."
)
@click.option("--requests", type=int, required=True, callback=number(1, 8192, "requests"), help="Decode batch.")
@click.option("--launches", type=int, default=288, show_default=True, callback=number(1, 100_000, ""))
@click.option("--launch-gil-us", type=float, callback=number(0, 100_000, "us"), help="With the GIL. [engine's]")
@click.option("--launch-free-us", type=float, callback=number(0, 100_000, "us"), help="Without it. [engine's]")
@click.option("--graph", type=click.IntRange(0, 1), default=0, show_default=True, help="1: one graph replay.")
@click.option("--graph-launch-us", type=float, callback=number(0, 1e6, "us"), help="Host time of a replay. [engine's]")
@click.option("--switch-interval", type=float, callback=number(1e-6, 10, "s"), help="Of the GIL. [Python's, 0.005]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option("--max-prompt", type=int, default=4096, show_default=True, callback=number(1, 1_000_000, "tokens"))
@click.option("--generated", type=int, default=40, show_default=True, callback=number(1, 1_000_000, "tokens"))
@click.option("--stream", type=click.IntRange(0, 1), default=1, show_default=True, help="1: requests stream tokens.")
@click.option("--rounds", type=int, default=4, show_default=True, callback=number(1, 1000, ""), help="Of 15 steps.")
@host_options
@json_option
def command(
    target_name: str,
    scheduler_names: str,
    gpu_ms: float,
    requests: int,
    launches: int,
    launch_gil_us: float | None,
    launch_free_us: float | None,
    graph: int,
    graph_launch_us: float | None,
    switch_interval: float | None,
    engine_name: str,
    max_prompt: int,
    generated: int,
    stream: int,
    rounds: int,
    profile_path: Path | None,
    host_speed: float,
    as_json: bool,
) -> None:
    """One what-if step: its time under each scheduler, and where the host's time goes.

    The GPU's time is the one given (plus 0.2 ms of sampling); host work is the engine's. Schedulers run interleaved.
    """
    from microbench.case import Case, what_if_spec
    from microbench.devices.spec import LaunchCost
    from microbench.engines import Workload, engine
    from microbench.measure import Budget, sample
    from microbench.schedulers import scheduler
    from microbench.target import parse_target
    from microbench.terminal import show_steps

    target, profile = parse_target(target_name), engine(engine_name)
    names = [scheduler(name.strip())[0] for name in scheduler_names.split(",")]
    if len(set(names)) < len(names):
        raise UsageError(f"--scheduler names a scheduler twice: {scheduler_names}")

    priced = (launch_gil_us, launch_free_us, graph_launch_us)
    if target.gpu is None and any(us is not None for us in priced):
        raise UsageError(f"target {target}: a launch costs what it costs there; leave the launch prices out")
    tokens = requests * (max_prompt // 2 + generated)
    if target.host == "real" and tokens > MOST_TOKENS:
        raise UsageError(
            f"{requests} requests of up to {max_prompt} + {generated} tokens are {tokens:.1e} tokens to hold; "
            f"at most {MOST_TOKENS:.0e}"
        )

    def ns(us: float | None, otherwise: int) -> int:
        return otherwise if us is None else round(us * 1000)

    launch = LaunchCost(
        gil_ns=ns(launch_gil_us, profile.launch.gil_ns), free_ns=ns(launch_free_us, profile.launch.free_ns)
    )
    replay = LaunchCost(gil_ns=0, free_ns=ns(graph_launch_us, profile.graph_launch.free_ns))
    spec = what_if_spec(
        profile, gpu_ns=round(gpu_ms * 1e6), launches=launches, launch=launch, graph=replay if graph else None
    )
    case = Case(
        target=target,
        engine=profile,
        spec=spec,
        workload=Workload(requests=requests, max_prompt=max_prompt, generated=generated, stream=bool(stream)),
        switch_interval_s=switch_interval,
        host_speed=host_speed,
    )
    budget = Budget(seconds=3600, steps=15, warm=5, exactly=rounds)
    sampled = sample(case, names, budget=budget, profile=host_profile(profile_path, engine_name))
    results = []
    for name in names:
        busy = sampled.busy_ns(name)
        results.append(
            {
                "scheduler": name,
                "step_ms": round(sampled.step_ns(name) / 1e6, 4),
                "gpu_busy_ms": None if busy is None else round(busy / 1e6, 4),
                "host_ms": {k: round(v / 1e6, 4) for k, v in sampled.host_ns(name).items()},
                "rounds_ms": [round(b.step_ns / 1e6, 4) for b in sampled.blocks[name]],
            }
        )
    if as_json:
        point = {"target": str(target), "engine": profile.name, "requests": requests, "gpu_ms": gpu_ms}
        emit({**point, "partial": sampled.interrupted, "results": results})
        return
    show_steps(
        f"One step: {target} ({target.says}); {profile.name}, {requests} requests; ms a step",
        results,
        sampled.interrupted,
    )
