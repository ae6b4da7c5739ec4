"""`microbench validate`: modelled numbers against measurements that others published."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option


@click.group("validate", no_args_is_help=False, epilog=example("microbench validate gpu"))
def command() -> None:
    """Hold modelled numbers against measurements that others published."""


@command.command("gpu", epilog=example("microbench validate gpu --gpu h100 --json"))
@click.option("--gpu", "names", multiple=True, help="A GPU with measured tables; may be repeated.  [default: all four]")
@click.option(
    "--tables",
    type=click.Path(path_type=Path),
    help="A folder of measured tables.  [default: those inside the package aiconfigurator-core]",
)
@click.option("--fit", "refitted", is_flag=True, help="Fit the constants anew, score those, and print them.")
@click.option("--recompute", is_flag=True, help="Let aiconfigurator-core estimate the whole steps anew (about 10 s).")
@json_option
def gpu(names: tuple[str, ...], tables: Path | None, refitted: bool, recompute: bool, as_json: bool) -> None:
    """Score the GPU models on measured kernels that no constant was fitted to, and on whole decode steps."""
    from microbench.validate import gpu as validation
    from microbench.validate.estimates import estimates
    from microbench.validate.estimates import recompute as estimated_anew
    from microbench.validate.tables import tables_folder

    chosen = validation.chosen_gpus(names)
    folder = tables_folder(tables)
    steps = [one for one in estimates() if one.gpu in {model.name for model in chosen}]
    if recompute:
        steps = list(estimated_anew(steps))
    if refitted:
        chosen = tuple(validation.refit(model, folder) for model in chosen)
    found = {model: validation.scores(model, folder, steps) for model in chosen}
    fitted = {model.name: validation.constants(model, found[model]) for model in chosen} if refitted else {}
    if as_json:
        emit(validation.document(found, folder, fitted))
    else:
        validation.show(found, folder, fitted)
