"""Whatever went wrong, told so that a user can act on it (SPEC §9); no traceback among it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from bsd.cli.call import Stopped
from bsd.cli.output import safe, styled
from bsd.core.errors import BsdError, FieldError, Invalid, os_problem
from bsd.core.logs import get_logger
from bsd.core.verb_names import split_command

# For errors that say no more than what the system said.
_HINTS = {77: "run bsd as the owner of these files, or mend their permissions"}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a call reports it; as JSON it is the API's `{error, hint?, errors?}`."""

    error: str
    exit_code: int
    hint: str | None = None
    errors: tuple[FieldError, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"error": self.error}
        if self.hint is not None:
            document["hint"] = self.hint
        if self.errors:
            document["errors"] = [
                {"field": error.field, "message": error.message} for error in self.errors
            ]
        return document

    def with_hint(self, argv: list[str]) -> Problem:
        """The same; if it is one of usage and has no hint, the command's help is one."""
        _, name, _ = split_command(argv)
        if self.hint is not None or self.exit_code != Invalid.exit_code or name is None:
            return self
        return replace(self, hint=f"`bsd {name} --help`")

    def show(self) -> None:
        """Print it to stderr for people."""
        lines = [f"{styled('Error:', '1;31', sys.stderr)} {safe(self.error, lines=True)}"]
        if not all(error.message in self.error for error in self.errors):
            lines += [f"  {safe(error.field)}: {safe(error.message)}" for error in self.errors]
        if self.hint is not None:
            lines.append(f"{styled('Try:', '1', sys.stderr)} {safe(self.hint, lines=True)}")
        sys.stderr.write("\n".join(lines) + "\n")


def problem_of(error: BaseException, log_file: Path | None) -> Problem:
    """Say what `error` means for the user; what nobody foresaw goes to the log in full.

    `log_file` is where this call logs; None if it does not.
    """
    match error:
        case BsdError():
            hint = error.hint or _HINTS.get(error.exit_code)
            return Problem(error.message, error.exit_code, hint, error.errors)
        case Stopped():
            text = "stopped; what was in flight, if anything, the next call finishes or undoes"
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
    if isinstance(error, click.BadParameter) and (plain := _of_parameter(error)):
        return plain
    # The message of an unknown name without the suggestion: that belongs into the `Try:` line.
    known = isinstance(error, click.NoSuchCommand | click.NoSuchOption)
    text = error.message if known else error.format_message()
    return (text[:1].lower() + text[1:]).rstrip(".")


# What click says before it says what was expected, the value as it was typed first.
_REFUSED = re.compile(r"(?P<value>.+) is not (?:a valid|in the range|one of) ", re.DOTALL)


def _of_parameter(error: click.BadParameter) -> str | None:
    """What an argument or option should have been, where its type tells; else None."""
    parameter, refused = error.param, _REFUSED.match(error.message)
    if parameter is None or refused is None:
        return None
    match parameter.type:
        case click.IntRange() as kind:
            expected = f"a whole number{_limits(kind.min, kind.max)}"
        case click.FloatRange() as kind:
            expected = f"a number{_limits(kind.min, kind.max)}"
        case click.Choice(choices=[*before, last]):
            expected = f"{', '.join(map(str, before))} or {last}"
        case kind if kind is click.INT:
            expected = "a whole number"
        case kind if kind is click.FLOAT:
            expected = "a number"
        case _:
            return None
    named = (
        parameter.opts[0]
        if parameter.param_type_name == "option"
        else parameter.make_metavar(error.ctx or click.Context(click.Command("bsd"))).strip("[]")
    )
    return f"{named} must be {expected}, not {refused['value']}"


def _limits(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return "" if least is None else f", {least} or more"
    return f" from {least} to {most}"


def _nearest(error: click.ClickException) -> str | None:
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
    told = "".join(traceback.format_exception(error))
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _keep(told, log_file)
    hint = f"the details are in {place}; please report them" if place else "please report it"
    return Problem(f"internal error: {kind}", 1, hint)


def _keep(told: str, log_file: Path | None) -> Path | None:
    """Write a traceback to the log, or to a file of its own if this call has no log."""
    if log_file is not None:
        get_logger("cli").error("internal error", traceback=told)
        return log_file

    try:
        descriptor, name = tempfile.mkstemp(prefix="bsd-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(told)
    except OSError:  # nowhere to write it: the message itself must still get out
        return None
    return Path(name)
