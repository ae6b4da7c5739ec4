"""`microbench run`: the main job."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from microbench.commands.common import any_architecture, emit, example, json_option, number, uninterrupted
from microbench.errors import MicrobenchError, UsageError


@click.command("run", epilog=example("microbench run --out results/today"))
@click.option("--out", type=click.Path(path_type=Path), help="Results folder. [default: microbench-results/TIME]")
@click.option("--gpu", "gpu_name", help="GPU to model. [default: the CUDA GPU here if it is known, else a100-80g]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option(
    "--model", "models", multiple=True, help="Exactly two: the small and the large one. [default: qwen2.5-0.5b and -3b]"
)
@click.option("--target", "target_name", help="[default: real+torch with a CUDA GPU, else real+sim:GPU]")
@click.option(
    "--seconds", type=float, default=64, show_default=True, callback=number(1, 86400, "s"), help="Measuring time."
)
@json_option
def command(
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
    chosen = [any_architecture(m) for m in models] or [architecture("qwen2.5-0.5b"), architecture("qwen2.5-3b")]
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
    with uninterrupted():
        document = write_answer(folder, answer)
    if as_json:
        emit(document)
    else:
        show_answer(answer)
        click.echo(f"results: {folder}")
    if answer.error:
        raise MicrobenchError(f"{answer.error}; what was measured before is in {folder}")
