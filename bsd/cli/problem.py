"""An error as the command line reports it (SPEC §9): the message, `Try: …`, the exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import structlog

from bsd.cli.output import safe, styled
from bsd.cli.stopping import Stopped
from bsd.core.errors import BsdError, FieldError, Invalid, os_problem

_log = structlog.stdlib.get_logger(module="cli")

# Hints for errors that repeat only the system's message.
_HINTS = {77: "run bsd as the owner of these files, or correct their permissions"}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a call reports it; as JSON it is the API's `{error, hint?, errors?}`."""

    error: str
    exit_code: int
    hint: str | None = None
    errors: tuple[FieldError, ...] = ()

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"error": self.error}
        if self.hint is not None:
            document["hint"] = self.hint
        if self.errors:
            document["errors"] = [error._asdict() for error in self.errors]
        return document

    def show(self) -> None:
        """Print the problem to stderr, for people."""
        lines = [f"{styled('Error:', '1;31', sys.stderr)} {safe(self.error, lines=True)}"]
        if not all(error.message in self.error for error in self.errors):
            lines += [f"  {safe(error.field)}: {safe(error.message)}" for error in self.errors]
        if self.hint is not None:
            lines.append(f"{styled('Try:', '1', sys.stderr)} {safe(self.hint, lines=True)}")
        sys.stderr.write("\n".join(lines) + "\n")


def problem_of(error: BaseException, log_file: Path | None, command: str = "bsd") -> Problem:
    """Translate an error for the user. The traceback of an unexpected error goes to the log.

    Args:
        log_file: the log of this call; None if it has none.
        command: the command that was called, as in `bsd config set`; a usage error without a hint
            gets the command's help as its hint.
    """
    match error:
        case BsdError():
            usual = f"`{command} --help`" if error.exit_code == Invalid.exit_code else None
            hint = error.hint or _HINTS.get(error.exit_code) or usual
            return Problem(error.message, error.exit_code, hint, error.errors)
        case Stopped():
            text = "stopped; the next call finishes or undoes a change that was in flight"
            return Problem(text, error.exit_code)
        case click.exceptions.NoArgsIsHelpError():  # a group without a command
            hint = f"`{error.ctx.command_path} --help`"
            return Problem("missing command", error.exit_code, hint)
        case click.ClickException():
            return Problem(_sentence(error), error.exit_code, _nearest(error))
        case OSError():
            known = os_problem(error, str(error.filename or "the system refused"))
            return Problem(known.message, known.exit_code, known.hint)
        case _:
            return _internal(error, log_file)


def _sentence(error: click.ClickException) -> str:
    """Return click's message in bsd's form, without its suggestion for an unknown name."""
    known = isinstance(error, click.NoSuchCommand | click.NoSuchOption)
    text = error.message if known else error.format_message()
    return (text[:1].lower() + text[1:]).rstrip(".")


def _nearest(error: click.ClickException) -> str | None:
    """Return a hint: the name that the user may have meant, or the help page with all names."""
    if not isinstance(error, click.UsageError):
        return None
    here = error.ctx.command_path if error.ctx else "bsd"
    match error:
        case click.NoSuchCommand(ctx=click.Context(command=click.Group() as group) as context):
            names = get_close_matches(error.command_name, group.list_commands(context), 1)
            return f"`{here} {names[0]}`" if names else f"`{here} --help`"
        case click.NoSuchOption(possibilities=[nearest, *_]):
            return f"`{nearest}`; `{here} --help` lists all options"
        case _:
            return f"`{here} --help`"


def _internal(error: BaseException, log_file: Path | None) -> Problem:
    trace = "".join(traceback.format_exception(error))
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _write_down(trace, log_file)
    hint = f"the details are in {place}; please report them" if place else "please report it"
    return Problem(f"internal error: {kind}", 1, hint)


def _write_down(trace: str, log_file: Path | None) -> Path | None:
    """Write a traceback to the log, or to a file of its own if this call has no log."""
    if log_file is not None:
        _log.error("internal error", traceback=trace)
        return log_file
    try:
        descriptor, name = tempfile.mkstemp(prefix="bsd-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(trace)
    except OSError:  # no place to write; the message itself is still printed
        return None
    return Path(name)
