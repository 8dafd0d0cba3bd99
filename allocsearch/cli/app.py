"""The Typer application: global options, the commands, and errors as sentences."""

import inspect
import os
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from allocsearch.cli import exits
from allocsearch.cli.commands.data import data
from allocsearch.cli.commands.doctor import doctor
from allocsearch.cli.commands.evaluate import evaluate
from allocsearch.cli.commands.generate import generate
from allocsearch.cli.commands.launch import launch
from allocsearch.cli.commands.pareto import pareto
from allocsearch.cli.commands.plugins import plugins
from allocsearch.cli.commands.probe import probe
from allocsearch.cli.commands.resume import resume
from allocsearch.cli.commands.run import run
from allocsearch.cli.commands.show import show
from allocsearch.cli.commands.show_config import show_config
from allocsearch.cli.commands.space import space
from allocsearch.cli.commands.status import status
from allocsearch.cli.commands.table import table
from allocsearch.cli.commands.train import train
from allocsearch.cli.commands.trials import trials
from allocsearch.cli.commands.watch import watch
from allocsearch.cli.commands.worker import worker
from allocsearch.registry import ONLY_VARIABLE, check_limits
from allocsearch.version import __version__

# Typer carries its own copy of Click, older versions use the installed one.
ClickException: type[Exception] = typer.BadParameter.__mro__[2]

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Search": (run, resume, worker, launch, train),
    "Look": (status, trials, show, pareto, table, evaluate, watch, probe, generate),
    "Prepare": (data, space, show_config, plugins, doctor),
}


class SentenceGroup(TyperGroup):
    """A group whose errors end as one sentence on stderr and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run; every way out is a `SystemExit`."""
        asked = _Asked()
        try:
            code = super().main(*args, **kwargs, standalone_mode=False, obj=asked)
        except ClickException as error:
            exits.leave(_usage_sentence(error), exits.BAD_INPUT)
        except (Exception, KeyboardInterrupt) as error:
            if asked.debug:
                raise
            exits.leave(exits.sentence_of(error), exits.code_of(error))
        raise SystemExit(code if isinstance(code, int) else exits.DONE)

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, without the type that a flag does not take."""
        return _bare(super().get_help_option(ctx))


class SentenceCommand(TyperCommand):
    """A command of a `SentenceGroup`."""

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, without the type that a flag does not take."""
        return _bare(super().get_help_option(ctx))


class _Asked:
    """What the global options ask for."""

    debug = False


def _bare(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option


def _usage_sentence(error: Any) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    words = context.command_path.split()[1:] if context else []
    return f"{text}; see `{' '.join(['allocsearch', *words])} --help`"


app = typer.Typer(
    cls=SentenceGroup,
    help="Search how a streaming model should spend a fixed compute budget on depth, "
    "parallel experts and width.",
    epilog=exits.EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"allocsearch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show tracebacks of errors.")
    ] = False,
    plugins_only: Annotated[
        str | None,
        typer.Option(
            "--plugins-only",
            metavar="A,B",
            help="Look for plug-ins in these distributions alone; '' for none.",
        ),
    ] = None,
) -> None:
    del version
    if plugins_only is not None:
        # In the environment, so that worker processes keep to it as well.
        os.environ[ONLY_VARIABLE] = plugins_only
        check_limits()
    context.obj.debug = debug


def _help_of(command: Callable[..., None]) -> str:
    """The docstring with paragraphs unwrapped, but for indented lines of examples."""
    text = inspect.cleandoc(command.__doc__ or "").replace("[", r"\[")
    return re.sub(r"(?<!\n)\n(?=\S)", " ", text)


for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(
            _command.__name__.replace("_", "-"),
            cls=SentenceCommand,
            help=_help_of(_command),
            rich_help_panel=_panel,
        )(_command)
