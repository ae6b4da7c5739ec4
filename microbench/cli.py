"""The `microbench` command: finds the commands by name and turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from microbench.errors import MicrobenchError, UsageError

COMMANDS = {
    "run": "run",
    "advise": "advise",
    "step": "step",
    "costs": "costs",
    "plot": "plot",
    "thresholds": "thresholds",
    "replay": "replay",
    "trace": "trace",
    "compare": "compare",
    "calibrate": "calibrate",
    "gpu-check": "gpu_check",
    "report": "report",
    "validate": "validate",
}
"""Command, and its module in `microbench.commands`, imported when it is asked for."""


class _Group(click.Group):
    """Turns the errors a user can cause into one line; exit code 2 for bad input, 1 for a run that failed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"microbench.commands.{COMMANDS[cmd_name]}").command
        return command

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


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="overlap-microbench")
def main() -> None:
    """Does overlap scheduling pay for this model on this GPU, why, and which default should an engine ship?"""


if __name__ == "__main__":
    sys.exit(main())
