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


@command.command("reports", epilog=example("microbench validate reports"))
@click.option(
    "--pairs",
    "path",
    type=click.Path(path_type=Path),
    help="A CSV file of pairs with the columns of the shipped one.  [default: the 57 that ship]",
)
@json_option
def reports(path: Path | None, as_json: bool) -> None:
    """Predict published pairs of runs with and without overlap: sign, ratio, error, and what isn't covered and why."""
    from microbench.reports.pairs import public_pairs, read_pairs
    from microbench.terminal import staged_progress
    from microbench.validate.reports import predict_all, score
    from microbench.validate.show import pairs_document, show_pairs

    pairs = read_pairs(path) if path else public_pairs()
    with staged_progress() as progress:
        found = predict_all(pairs, progress=lambda share: progress("replaying pairs", share))
    if as_json:
        emit(pairs_document(found, score(found, pairs)))
    else:
        show_pairs(found, score(found, pairs))


@command.command("founding", epilog=example("microbench validate founding"))
@json_option
def founding(as_json: bool) -> None:
    """Predict SGLang issue 2558 with one number fitted: the host's speed, on the column without overlap."""
    from microbench.serving.founding import founding_table, founding_text

    table = founding_table()
    if as_json:
        emit(table.to_json())
    else:
        click.echo(founding_text(table))


@command.command("all", epilog=example("microbench validate all --markdown"))
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table of the README.")
@json_option
def everything(as_markdown: bool, as_json: bool) -> None:
    """The scoreboard: every modelled number that was held against a published one, with its target."""
    from microbench.terminal import staged_progress, table
    from microbench.validate.scoreboard import markdown, scoreboard, to_json, words

    with staged_progress() as progress:
        lines, missing = scoreboard(progress=progress)
    if as_json:
        emit(to_json(lines, missing))
        return
    if as_markdown:
        click.echo(markdown(lines), nl=False)
    else:
        table(
            "Modelled numbers (computed) against published ones",
            ("what", "held against", "n", "found", "target", "met"),
            ((x.what, x.against, str(x.n), x.found, x.target, words(x.met).strip("*")) for x in lines),
        )
    for why in missing:
        click.echo(f"not scored: {why}", err=True)
