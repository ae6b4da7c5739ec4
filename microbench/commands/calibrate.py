"""`microbench calibrate`: measures this machine's GPU into a device file."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, number
from microbench.errors import UsageError


@click.command("calibrate", epilog=example("microbench calibrate --gpu --out h200.json"))
@click.option("--gpu", "of_gpu", is_flag=True, help="Measure the GPU: launches, graphs, copies, kernels.")
@click.option("--target", "target_name", default="real+torch", show_default=True, help="The CUDA device to measure.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--seconds", type=float, default=120, show_default=True, callback=number(1, 86400, "s"))
@json_option
def command(of_gpu: bool, target_name: str, out: Path, seconds: float, as_json: bool) -> None:
    """Measure a GPU into a file that `sim:FILE` models, and print modelled beside measured for each figure."""
    from microbench.calibrate.gpu import calibrate
    from microbench.records import check_writable, write_json_atomic
    from microbench.target import parse_target
    from microbench.terminal import staged_progress, table

    if not of_gpu:
        raise UsageError("say what to calibrate: --gpu")
    target = parse_target(target_name)
    if target.gpu is not None:
        raise UsageError(f"target {target}: that GPU is a model; calibrate a real one, for example real+torch")
    if out.suffix != ".json":
        raise UsageError(f"--out {out}: a device file ends in .json")
    check_writable(out.absolute().parent)
    with staged_progress() as progress:
        card = calibrate(target, seconds=seconds, progress=progress)
    write_json_atomic(out, card.to_json())
    if as_json:
        emit(card.to_json())
        return

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:.4g}"

    table(
        f"{card.measured['device']} on {target}: {target.says}",
        ("what", "measured", "shipped model", "unit", "clock", "note"),
        (
            (
                f"{r['group']}: {r['name']}",
                figure(r["measured"]),
                figure(r["modelled"]),
                r["unit"],
                r["clock"],
                r["note"],
            )
            for r in card.rows
        ),
    )
    click.echo(f"{out}: use it as --target real+sim:{out} or virtual+sim:{out}")
