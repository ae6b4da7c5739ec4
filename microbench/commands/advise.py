"""`microbench advise`: one model on one GPU."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import any_architecture, emit, example, host_options, host_profile, json_option, number


@click.command(
    "advise", epilog=example("microbench advise --model qwen2.5-0.5b --gpu a100-80g --batch 200 --context 2560")
)
@click.option("--model", required=True, help="A known name, a Hugging Face id of one, or a config.json.")
@click.option("--gpu", "gpu_name", required=True)
@click.option("--engine", "engine_name", default="sglang-0.5.4", show_default=True)
@click.option("--batch", type=int, required=True, callback=number(1, 8192, "requests"))
@click.option("--context", type=int, required=True, callback=number(1, 10_000_000, "tokens"), help="Mean a request.")
@click.option("--target", "target_name", help="[default: virtual+sim:GPU]")
@click.option("--seconds", type=float, default=10, show_default=True, callback=number(0.1, 3600, "s"))
@host_options
@json_option
def command(
    model: str,
    gpu_name: str,
    engine_name: str,
    batch: int,
    context: int,
    target_name: str | None,
    seconds: float,
    profile_path: Path | None,
    host_speed: float,
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
        any_architecture(model),
        card,
        engine(engine_name),
        batch=batch,
        context=context,
        target=target,
        seconds=seconds,
        profile=host_profile(profile_path, engine_name),
        host_speed=host_speed,
    )
    if as_json:
        emit(found)
        return
    show_advice(f"{model} on {card.name} (batch {batch}, context {context})", found)
