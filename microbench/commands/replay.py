"""`microbench replay`: a serving benchmark on a modelled GPU, under each scheduler."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from microbench.commands.common import any_architecture, emit, example, json_option, number
from microbench.errors import UsageError

COMPARED = (
    "duration",
    "output_throughput",
    "median_e2e_latency_ms",
    "median_ttft_ms",
    "median_tpot_ms",
    "median_itl_ms",
)


@click.command(
    "replay",
    epilog=example(
        "microbench replay --engine sglang-0.4.0.post1 --model qwen2.5-0.5b --gpu a100-80g --num-prompts 500 "
        "--random-input 4096 --random-output 2048"
    ),
)
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@click.option("--model", "model_name", default="qwen2.5-0.5b", show_default=True, help="A name or a config.json.")
@click.option("--gpu", "gpu_name", help="GPU to model. [default: a100-80g]")
@click.option("--target", "target_name", default="virtual+sim", show_default=True, help="With or without :GPU.")
@click.option("--scheduler", "scheduler_names", help="Comma-separated. [default: the engine's, overlap off and on]")
@click.option("--num-prompts", type=int, default=500, show_default=True)
@click.option("--random-input", type=int, default=1024, show_default=True, help="Longest prompt.")
@click.option("--random-output", type=int, default=1024, show_default=True, help="Longest output.")
@click.option("--random-range-ratio", type=float, default=0.0, show_default=True, help="Shortest over longest.")
@click.option("--request-rate", type=float, default=math.inf, show_default=True, help="Requests a second, or inf.")
@click.option("--max-concurrency", type=int, help="Requests under way at once. [default: no limit]")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--host-speed",
    type=float,
    default=1.0,
    show_default=True,
    callback=number(0.01, 100, "times"),
    help="Speed of the host over the one that was priced.",
)
@click.option("--output-file", type=click.Path(path_type=Path), help="Append one JSON line a scheduler to this file.")
@json_option
def command(
    engine_name: str,
    model_name: str,
    gpu_name: str | None,
    target_name: str,
    scheduler_names: str | None,
    num_prompts: int,
    random_input: int,
    random_output: int,
    random_range_ratio: float,
    request_rate: float,
    max_concurrency: int | None,
    seed: int,
    host_speed: float,
    output_file: Path | None,
    as_json: bool,
) -> None:
    """Replay a serving benchmark: requests arrive, are prefilled in chunks, batched, streamed and finish.

    On virtual+sim (computed) that takes seconds; on real+sim the engine's Python runs for as long as it says.

    Lengths, arrivals and metrics are those of SGLang's `bench_serving --dataset-name random`; the same seed draws the
    same lengths. Times are what the scheduler's process takes: tokenizing, detokenizing and HTTP are not modelled.
    """
    from microbench.engines import engine
    from microbench.records import check_writable
    from microbench.schedulers import scheduler
    from microbench.serving import Replay, Traffic, run_replay
    from microbench.serving.metrics import block

    served_by = engine(engine_name)
    names = [scheduler(n.strip())[0] for n in (scheduler_names or ",".join(served_by.schedulers)).split(",")]
    if len(set(names)) < len(names):
        raise UsageError(f"--scheduler names a scheduler twice: {scheduler_names}")
    traffic = Traffic(
        num_prompts=num_prompts,
        random_input=random_input,
        random_output=random_output,
        random_range_ratio=random_range_ratio,
        request_rate=request_rate,
        max_concurrency=max_concurrency,
        seed=seed,
    )
    replay = Replay(
        target=_target(target_name, gpu_name),
        engine=served_by,
        architecture=any_architecture(model_name),
        traffic=traffic,
        host_speed=host_speed,
    )
    if output_file:
        check_writable(output_file.parent)
    rows = []
    for name in names:
        row = run_replay(replay, name).row()
        rows.append(row)
        if not as_json:
            click.echo(f"{served_by.name}, {row['model']}, {name}: {replay.target}: {replay.target.says}")
            click.echo(block(row))
    if output_file:
        _append(output_file, rows)
    ratios = {name: _ratios(rows[0], row) for name, row in zip(names[1:], rows[1:], strict=True)}
    if as_json:
        results = [row | {"request_rate": _finite(row["request_rate"])} for row in rows]
        emit({"target": str(replay.target), "says": replay.target.says, "results": results, "ratios": ratios})
        return
    for name, ratio in ratios.items():
        shown = ", ".join(f"{key} {value:.3f}" for key, value in ratio.items() if value is not None)
        click.echo(f"{name} over {names[0]} ({replay.target.says}): {shown}")


def _target(name: str, gpu_name: str | None) -> Any:
    from microbench.target import parse_target
    from synthetic_models import gpu

    if name.endswith("+sim"):
        return parse_target(f"{name}:{gpu(gpu_name or 'a100-80g').name}")
    target = parse_target(name)
    if gpu_name and target.gpu != gpu(gpu_name):
        raise UsageError(f"--gpu {gpu_name}, but target {name} is another GPU; name one")
    return target


def _ratios(base: dict[str, Any], other: dict[str, Any]) -> dict[str, float | None]:
    return {key: other[key] / base[key] if base[key] else None for key in COMPARED}


def _finite(rate: float) -> float | str:
    """JSON has no infinity; the lines of --output-file write it as the benchmark does."""
    return rate if math.isfinite(rate) else "inf"


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    """As the benchmark appends to its file, but all lines or none."""
    from microbench.records import write_bytes_atomic

    before = path.read_bytes() if path.exists() else b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_bytes_atomic(path, before + lines.encode())
