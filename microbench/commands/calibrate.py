"""`microbench calibrate`: measures this machine's GPU, or the machine itself, into a file for their modelled twins."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, number
from microbench.errors import UsageError


@click.command("calibrate", epilog=example("microbench calibrate --gpu --out h200.json"))
@click.option("--gpu", "of_gpu", is_flag=True, help="Measure the GPU: launches, graphs, copies, kernels.")
@click.option("--host", "of_host", is_flag=True, help="Measure this machine's Python and threads.")
@click.option(
    "--engine", "engine_names", multiple=True, help="With --host: whose work to price; repeatable. [default: all]"
)
@click.option("--target", "target_name", default="real+torch", show_default=True, help="With --gpu.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option(
    "--seconds", type=float, default=120, show_default=True, callback=number(1, 86400, "s"), help="With --gpu."
)
@json_option
def command(
    of_gpu: bool,
    of_host: bool,
    engine_names: tuple[str, ...],
    target_name: str,
    out: Path,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure a GPU into a file that `sim:FILE` models, or this host into a profile for the virtual host.

    --gpu prints modelled beside measured for each figure; --host is for --host-profile of other commands.
    """
    if of_gpu == of_host:
        raise UsageError("say what to calibrate: --gpu or --host")
    if of_host:
        _host(engine_names, out, as_json)
    else:
        _gpu(target_name, out, seconds, as_json)


def _host(engine_names: tuple[str, ...], out: Path, as_json: bool) -> None:
    from microbench.calibrate.host import calibrate_host
    from microbench.engines import ENGINES, engine
    from microbench.records import check_writable, write_json_atomic
    from microbench.terminal import staged_progress, table

    engines = [engine(name) for name in engine_names or ENGINES]
    if out.suffix != ".json":
        raise UsageError(f"--out {out}: a host profile ends in .json")
    check_writable(out.absolute().parent)
    with staged_progress() as progress:
        profile = calibrate_host(engines, progress=progress)
    write_json_atomic(out, profile.to_json())
    if as_json:
        emit(profile.to_json())
        return
    shown = [(e, piece, price) for e, pieces in profile.prices.items() for piece, price in pieces.items()]
    table(
        f"{profile.machine}, measured {profile.measured}",
        ("engine, piece", "ms at batch 500", "fixed us", "ns a request", "ns a prompt token", "ns an output token"),
        (
            (
                f"{e}: {piece}",
                f"{price.held_ns(500, 500 * 2048, 500 * 512) / 1e6:.3f}",
                f"{price.fixed / 1e3:.2f}",
                f"{price.per_request:.0f}",
                f"{price.per_prompt_token:.4f}",
                f"{price.per_output_token:.4f}",
            )
            for e, piece, price in shown
        ),
    )
    click.echo(f"wake-up of a thread: median {profile.wake_ns[len(profile.wake_ns) // 2] / 1e3:.1f} us")
    click.echo(f"{out}: use it as --host-profile {out} on a virtual+sim target")


def _gpu(target_name: str, out: Path, seconds: float, as_json: bool) -> None:
    from microbench.calibrate.gpu import calibrate
    from microbench.records import check_writable, write_json_atomic
    from microbench.target import parse_target
    from microbench.terminal import staged_progress, table

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
