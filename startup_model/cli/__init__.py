"""The command line: ``startup-model predict``, ``explain`` and the rest; tables for people, JSON for programs.

Bad input ends with exit status 2 and one line on standard error; a traceback is a bug.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, NoReturn

from startup_model import __version__
from startup_model.errors import StartupModelError, one_line

try:
    import typer
    from rich.console import Console

    from startup_model.cli.terminal import echo, flush_or_drop, go_quiet
except ModuleNotFoundError as error:  # pragma: no cover - depends on the installation
    sys.stderr.write(
        f"startup-model: {error.name} is missing; install the command line with pip install 'startup-model[cli]'\n"
    )
    raise SystemExit(2) from None

__all__ = ["app", "main"]

app = typer.Typer(
    name="startup-model",
    help="Start-up time of LLM inference servers, from a model's config.json and a node.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version or context.invoked_subcommand is None:
        echo(__version__ if version else context.get_help())
        raise typer.Exit


@cache
def _commands() -> Callable[..., object]:
    """All commands, those of other packages included; put together once."""
    from startup_model.cli import decisions, plan, predictions

    for commands in (predictions, decisions, plan):
        commands.register(app)
    for extension in entry_points(group="startup_model.commands"):
        try:
            extension.load()(app)
        except (
            Exception
        ) as error:  # whatever the import of a foreign package raises: the other commands work without it
            message = one_line(f"{type(error).__name__}: {error}", 200)
            sys.stderr.write(
                f"startup-model: the commands of {extension.value} cannot be loaded: {message}; update or remove it\n"
            )
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: runs the command and turns errors of the library into one line and exit status 2.

    arguments: those of this process where left out.
    """
    _open_closed_streams()
    Console.on_broken_pipe = go_quiet  # type: ignore[method-assign, assignment]  # else a command that nobody reads ends with status 1, whatever it found
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets a question mark
    code: object = 0
    try:
        code = _commands()(arguments, prog_name="startup-model", standalone_mode=False)
        sys.stdout.flush()
    except StartupModelError as error:
        _fail(str(error), getattr(error, "__notes__", ()))
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except BrokenPipeError:
        pass  # nobody reads on: end quietly
    except SystemExit as stop:
        # The option parser ends with 1 where nobody reads on, and wraps the output so that flushing it is silent.
        code = 0 if type(sys.stdout).__name__ == "PacifyFlushWrapper" else stop.code
    except OSError as error:
        _fail(f"output: {error.strerror or error}; write it elsewhere")
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail(_parser_message(error.format_message()))  # an error of the option parser
    flush_or_drop()
    raise SystemExit(code or 0)


def _open_closed_streams() -> None:
    """Put the null device where a standard stream is closed: files opened later would take its number, and be written into."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _parser_message(message: str) -> str:
    """What the option parser says, with the option that was probably meant."""
    hints = {
        "--tp": "--engine 'vllm serve MODEL -tp N'",
        "unexpected extra argument": "--model NAME",
        "--dp": "--engine",
    }
    hint = next((f"; use {use}" for word, use in hints.items() if word in message), "")
    return message.split(" (Possible options", maxsplit=1)[0].rstrip(".") + hint


def _fail(message: str, notes: Sequence[str] = ()) -> NoReturn:
    for line in (f"startup-model: {' '.join(message.split())}", *notes):
        echo(line, err=True)
    raise SystemExit(2)
