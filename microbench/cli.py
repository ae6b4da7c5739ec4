"""The `microbench` command: parses and checks; `terminal` prints, everything printed is computed elsewhere."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from microbench.errors import MicrobenchError, UsageError

F = TypeVar("F", bound=Callable[..., Any])
MOST_TOKENS = 50_000_000
"""Token ids that `step` may hold as Python objects, 40 bytes each."""


class _Group(click.Group):
    """Turns the errors a user can cause into one line; exit code 2 for bad input, 1 for a run that failed."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # newer click: bare `microbench` shows the help
                raise
            click.echo(f"microbench: {error.format_message()}", err=True)
            raise click.exceptions.Exit(2) from None

    def invoke(self, ctx: click.Context) -> Any:
        from microbench.errors import Unavailable
        from synthetic_models import BadConfig, DoesNotFit, UnknownName

        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            self._fail(ctx, error.format_message(), 2)
        except (UsageError, Unavailable, BadConfig, DoesNotFit, UnknownName, OSError) as error:
            self._fail(ctx, str(error), 1 if isinstance(error, TimeoutError) else 2)
        except MicrobenchError as error:
            self._fail(ctx, str(error), 1)
        except KeyboardInterrupt:
            self._fail(ctx, "interrupted before anything was measured", 130)

    @staticmethod
    def _fail(ctx: click.Context, message: str, code: int) -> None:
        click.echo(f"microbench: {' '.join(message.split())}", err=True)
        ctx.exit(code)


def _number(low: float, high: float, unit: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that refuses NaN, infinities and figures out of range."""

    def check(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is not None and not low <= value <= high:  # also refuses NaN
            shown = str(value) if len(str(value)) <= 20 else f"a number of {len(str(value))} digits"
            raise click.BadParameter(f"{shown} is not between {low:g} and {high:g} {unit}".rstrip())
        return value

    return check


def json_option(function: F) -> F:
    """Adds --json: one JSON document, last on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document, last on stdout.")(function)


def _emit(document: Any) -> None:
    click.echo(json.dumps(document, allow_nan=False))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="overlap-microbench")
def main() -> None:
    """Does overlap scheduling pay for this model on this GPU, why, and which default should an engine ship?"""


def _example(text: str) -> str:
    return f"\b\nExample:\n  {text}"


@main.command(epilog=_example("microbench run --out results/today"))
@click.option("--out", type=click.Path(path_type=Path), help="Results folder. [default: microbench-results/TIME]")
@click.option("--gpu", "gpu_name", help="GPU to model. [default: the CUDA GPU here if it is known, else a100-80g]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option(
    "--model", "models", multiple=True, help="Exactly two: the small and the large one. [default: qwen2.5-0.5b and -3b]"
)
@click.option("--target", "target_name", help="[default: real+torch with a CUDA GPU, else real+sim:GPU]")
@click.option(
    "--seconds", type=float, default=64, show_default=True, callback=_number(1, 86400, "s"), help="Measuring time."
)
@json_option
def run(
    out: Path | None,
    gpu_name: str | None,
    engine_name: str,
    models: tuple[str, ...],
    target_name: str | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Answer the founding question: does overlap pay from Qwen2.5 0.5B to 3B, and where is the crossover?

    Measures the two models on this host, computes a grid over sizes, batches and launch costs on the virtual host,
    and writes tables, figures and thresholds into a folder.
    """
    from microbench.answer import Question, ask
    from microbench.engines import engine
    from microbench.records import check_writable
    from microbench.report import write_answer
    from microbench.sweep import CONTEXT
    from microbench.target import choose, open_target
    from microbench.terminal import show_answer, staged_progress
    from synthetic_models import ARCHITECTURES, architecture, check_fits

    if models and len(models) != 2:
        raise click.UsageError("give --model exactly twice: the small and the large model")
    profile = engine(engine_name)
    chosen = [_architecture(m) for m in models] or [architecture("qwen2.5-0.5b"), architecture("qwen2.5-3b")]
    small, large = sorted(chosen, key=lambda a: a.parameters)
    if small.parameters == large.parameters:
        raise UsageError(f"{small.name} and {large.name} are of one size; give a small and a large model")
    family = {a.parameters: a for name, a in ARCHITECTURES.items() if name.startswith("qwen2.5")}
    ladder = sorted({**family, small.parameters: small, large.parameters: large}.values(), key=lambda a: a.parameters)
    target, card = choose(target_name, gpu_name)
    if target.host != "real":
        raise UsageError(f"target {target}: run measures, so the host must be real; for computed answers use advise")
    for model in (small, large):
        check_fits(model, card, 1, CONTEXT)
    open_target(target)
    folder = out or Path("microbench-results") / datetime.now().strftime("%Y%m%d-%H%M%S")
    check_writable(folder)
    click.echo(f"target: {target}: {target.says}", err=True)
    question = Question(
        target=target, gpu=card, engine=profile, ladder=tuple(ladder), pair=(small, large), seconds=seconds
    )
    with staged_progress() as progress:
        answer = ask(question, progress=progress)
    with _uninterrupted():
        document = write_answer(folder, answer)
    if as_json:
        _emit(document)
    else:
        show_answer(answer)
        click.echo(f"results: {folder}")
    if answer.error:
        raise MicrobenchError(f"{answer.error}; what was measured before is in {folder}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C off while files are written."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_results(folder: Path) -> Any:
    """The table and manifest of a folder that `microbench run` wrote, with at least one row."""
    from microbench.records import BadResults, read_results

    frame, manifest = read_results(folder)
    if manifest.get("kind") != "run":
        raise BadResults(f"{folder}: not the results of `microbench run`; give a folder that it wrote")
    if frame.empty:
        raise BadResults(f"{folder}: the run was interrupted before anything was measured; run it again")
    return frame, manifest


def _architecture(name: str) -> Any:
    from synthetic_models import architecture, architecture_from_config

    return architecture_from_config(Path(name)) if name.endswith(".json") else architecture(name)


@main.command(
    epilog=_example(
        "microbench step --target real+sim:a100-80g --scheduler run_to_completion,overlap_thread:attribute "
        "--gpu-ms 5 --requests 500"
    )
)
@click.option("--target", "target_name", default="real+sim:a100-80g", show_default=True)
@click.option("--scheduler", "scheduler_names", default="run_to_completion,overlap_thread:attribute", show_default=True)
@click.option(
    "--gpu-ms", type=float, required=True, callback=_number(0.001, 10_000, "ms"), help="GPU time of a forward."
)
@click.option("--requests", type=int, required=True, callback=_number(1, 8192, "requests"), help="Decode batch.")
@click.option("--launches", type=int, default=288, show_default=True, callback=_number(1, 100_000, ""))
@click.option("--launch-gil-us", type=float, callback=_number(0, 100_000, "us"), help="With the GIL. [engine's]")
@click.option("--launch-free-us", type=float, callback=_number(0, 100_000, "us"), help="Without it. [engine's]")
@click.option("--graph", type=click.IntRange(0, 1), default=0, show_default=True, help="1: one graph replay.")
@click.option("--graph-launch-us", type=float, callback=_number(0, 1e6, "us"), help="Host time of a replay. [engine's]")
@click.option("--switch-interval", type=float, callback=_number(1e-6, 10, "s"), help="Of the GIL. [Python's, 0.005]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option("--max-prompt", type=int, default=4096, show_default=True, callback=_number(1, 1_000_000, "tokens"))
@click.option("--generated", type=int, default=40, show_default=True, callback=_number(1, 1_000_000, "tokens"))
@click.option("--stream", type=click.IntRange(0, 1), default=1, show_default=True, help="1: requests stream tokens.")
@click.option("--rounds", type=int, default=4, show_default=True, callback=_number(1, 1000, ""), help="Of 15 steps.")
@json_option
def step(
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
    )
    budget = Budget(seconds=3600, steps=15, warm=5, exactly=rounds)
    sampled = sample(case, names, budget=budget)
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
        _emit({**point, "partial": sampled.interrupted, "results": results})
        return
    show_steps(
        f"One step: {target} ({target.says}); {profile.name}, {requests} requests; ms a step",
        results,
        sampled.interrupted,
    )


@main.command(epilog=_example("microbench costs --target real+sim:h100"))
@click.option("--target", "target_name", help="[default: real+torch with a CUDA GPU, else real+sim:a100-80g]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@json_option
def costs(target_name: str | None, engine_name: str, as_json: bool) -> None:
    """The isolated costs, one by one, below the noise floor of the instruments."""
    from microbench.costs import all_costs
    from microbench.engines import engine
    from microbench.target import default_target, parse_target
    from microbench.terminal import show_costs, staged_progress

    target = parse_target(target_name) if target_name else default_target()
    if target.host != "real":
        raise UsageError(f"target {target}: isolated costs are measured, so the host must be real")
    found, partial, profile = [], False, engine(engine_name)
    with staged_progress() as progress:
        try:
            for cost in all_costs(target, profile):
                found.append(cost)
                progress(cost.group, 1)
        except KeyboardInterrupt:
            if not found:
                raise
            partial = True
    if as_json:
        _emit({"target": str(target), "partial": partial, "costs": [cost.to_json() for cost in found]})
    else:
        show_costs(target, found, partial)


@main.command(epilog=_example("microbench advise --model qwen2.5-0.5b --gpu a100-80g --batch 200 --context 2560"))
@click.option("--model", required=True, help="A known name, a Hugging Face id of one, or a config.json.")
@click.option("--gpu", "gpu_name", required=True)
@click.option("--engine", "engine_name", default="sglang-0.5.4", show_default=True)
@click.option("--batch", type=int, required=True, callback=_number(1, 8192, "requests"))
@click.option("--context", type=int, required=True, callback=_number(1, 10_000_000, "tokens"), help="Mean a request.")
@click.option("--target", "target_name", help="[default: virtual+sim:GPU]")
@click.option("--seconds", type=float, default=10, show_default=True, callback=_number(0.1, 3600, "s"))
@json_option
def advise(
    model: str,
    gpu_name: str,
    engine_name: str,
    batch: int,
    context: int,
    target_name: str | None,
    seconds: float,
    as_json: bool,
) -> None:
    """pays / loses / equal / inconclusive for one model on one GPU, the cost that decides, and the engine flag."""
    from microbench.advice import advice
    from microbench.engines import engine
    from microbench.target import choose
    from microbench.terminal import show_advice
    from synthetic_models import gpu

    target, card = choose(target_name or f"virtual+sim:{gpu(gpu_name).name}", gpu_name)
    found = advice(
        _architecture(model),
        card,
        engine(engine_name),
        batch=batch,
        context=context,
        target=target,
        seconds=seconds,
    )
    if as_json:
        _emit(found)
        return
    show_advice(f"{model} on {card.name} (batch {batch}, context {context})", found)


@main.command(epilog=_example("microbench plot microbench-results/20261201-120000"))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def plot(folder: Path, as_json: bool) -> None:
    """Draw the figures of a results folder again."""
    from plots import draw_all

    frame, manifest = _run_results(folder)
    drawn = draw_all(frame, manifest, folder)
    _emit({"target": manifest["target"], "figures": [str(p) for p in drawn]}) if as_json else click.echo(
        "\n".join(str(p) for p in drawn)
    )


@main.command(epilog=_example("microbench thresholds microbench-results/20261201-120000"))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def thresholds(folder: Path, as_json: bool) -> None:
    """From which model size and GPU step time overlap pays, by batch, and the engine flag that follows."""
    from microbench.report import frame_thresholds
    from microbench.terminal import show_thresholds

    frame, manifest = _run_results(folder)
    document = frame_thresholds(frame, manifest)
    if as_json:
        _emit(document)
    else:
        show_thresholds(document)


if __name__ == "__main__":
    sys.exit(main())
