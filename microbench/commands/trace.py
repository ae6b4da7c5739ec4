"""`microbench trace`: a few steps of each scheduler as a trace for Perfetto, and as a figure."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import (
    any_architecture,
    emit,
    example,
    host_options,
    host_profile,
    json_option,
    number,
)
from microbench.errors import UsageError


@click.command("trace", epilog=example("microbench trace --model qwen2.5-0.5b --gpu a100-80g --batch 200 --out trace"))
@click.option("--model", required=True, help="A known name, a Hugging Face id of one, or a config.json.")
@click.option("--gpu", "gpu_name", required=True)
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option("--scheduler", "scheduler_names", help="Comma-separated. [default: the engine's two]")
@click.option("--batch", type=int, required=True, callback=number(1, 8192, "requests"))
@click.option(
    "--context", type=int, default=2560, show_default=True, callback=number(1, 10_000_000, "tokens"), help="Mean."
)
@click.option("--target", "target_name", help="[default: virtual+sim:GPU]")
@click.option("--steps", type=int, default=6, show_default=True, callback=number(2, 1000, "steps"))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for trace.json and timeline.png.")
@host_options
@json_option
def command(
    model: str,
    gpu_name: str,
    engine_name: str,
    scheduler_names: str | None,
    batch: int,
    context: int,
    target_name: str | None,
    steps: int,
    out: Path,
    profile_path: Path | None,
    host_speed: float,
    as_json: bool,
) -> None:
    """What every thread and stream does in a step: host segments, GIL waits, hand-offs, kernels.

    trace.json opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.
    """
    from microbench.advice import decode_case
    from microbench.engines import engine
    from microbench.perfetto import chrome_trace
    from microbench.records import check_writable, write_json_atomic
    from microbench.schedulers import scheduler
    from microbench.target import choose
    from microbench.timeline import record
    from plots.style import save
    from plots.timeline import draw
    from synthetic_models import gpu

    target, card = choose(target_name or f"virtual+sim:{gpu(gpu_name).name}", gpu_name)
    if not target.modelled:
        raise UsageError(f"target {target}: only a profiler sees a real GPU's kernels; trace a modelled one")
    profile = engine(engine_name)
    names = [scheduler(n.strip())[0] for n in (scheduler_names or ",".join(profile.schedulers)).split(",")]
    architecture = any_architecture(model)
    case = decode_case(architecture, card, profile, batch=batch, context=context, target=target, host_speed=host_speed)
    check_writable(out)
    priced = host_profile(profile_path, engine_name)
    timelines = [record(case, name, steps=steps, profile=priced) for name in names]
    write_json_atomic(out / "trace.json", chrome_trace(timelines))
    mode = "graph" if case.spec.graph else "eager"
    title = f"{architecture.name} on {card.name}, batch {batch}, context {context}, {mode}, {profile.name}"
    figures = save(draw(timelines, title), out, "timeline")
    files = [str(out / "trace.json"), *map(str, figures)]
    if as_json:
        emit({"target": str(target), "target_says": target.says, "schedulers": names, "files": files})
    else:
        click.echo("\n".join(files))
