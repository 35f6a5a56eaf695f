"""The command line as a whole: finds the command, runs it, and tells how it ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from bsd import __version__
from bsd.cli.call import Call, Stopped, global_options
from bsd.cli.commands import COMMANDS, PIPE_CLOSED, help_page
from bsd.cli.output import print_json

_COMPLETE = "_BSD_COMPLETE"  # set by the shell when somebody presses the tab key


class _Bsd(click.Group):
    """All commands, each imported when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = COMMANDS.get(cmd_name)
        if known is None:
            return None
        module = import_module(f"bsd.cli.{known.module}")
        if known.verb is not None:
            found: click.Command = module.verb_command(known.verb)
        else:
            found = getattr(module, cmd_name.replace("-", "_"))
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """What the tab key offers; click would load each command to ask for its help."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_help(self, _ctx: click.Context) -> str:
        return help_page().rstrip("\n")


def _ignore(_context: click.Context, _parameter: click.Parameter, _value: str) -> None:
    """`--host openclaw` only stands in argv, for the gateway to read (SPEC §2.6)."""


bsd = _Bsd(
    name="bsd",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        *global_options(hidden=False),
        click.Option(["--host"], hidden=True, expose_value=False, callback=_ignore),
    ],
)
click.version_option(__version__, message="bsd %(version)s")(bsd)


def run(argv: Sequence[str]) -> int:
    """Do what `argv` says and return the exit code; every error becomes a message here."""
    for stream in (sys.stdout, sys.stderr):  # a name may hold what the terminal's encoding lacks
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    call = Call()
    try:
        code = _run(list(argv), call)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has had enough
        _silence_stdout()
        return PIPE_CLOSED
    except OSError as error:
        _silence_stdout()
        return _report(error, None)
    return code


def _run(argv: list[str], call: Call) -> int:
    if instruction := os.environ.get(_COMPLETE):
        return answer_shell(bsd, call, _COMPLETE, instruction)
    try:
        with bsd.make_context("bsd", argv, obj=call) as context:
            result = bsd.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        raise
    except click.exceptions.NoArgsIsHelpError as asked:  # a group without a command
        return _show_commands(asked, json=call.json or "--json" in argv)
    except Stopped as stopped:  # before there was an answer to print
        return _report(stopped, None, argv, json="--json" in argv)
    except (KeyboardInterrupt, EOFError, click.Abort):
        sys.stderr.write("\nstopped\n")
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 -- the edge of the program: no traceback ever reaches a user
        return _report(error, call.log_file, argv, json=call.json or "--json" in argv)
    return result if isinstance(result, int) else 0


def _show_commands(asked: click.exceptions.NoArgsIsHelpError, *, json: bool) -> int:
    """Show the help of a group; programs are told what is missing."""
    if json:
        return _report(asked, None, json=True)
    sys.stderr.write(f"{asked.format_message()}\n")
    return asked.exit_code


def _report(
    error: BaseException, log_file: Path | None, argv: Sequence[str] = (), *, json: bool = False
) -> int:
    """Tell what went wrong; returns the exit code."""
    # What goes well does without: it takes a tenth of a short command to load.
    from bsd.cli.problem import problem_of

    problem = problem_of(error, log_file).with_hint(list(argv))
    if json:
        print_json(problem.as_json())
    problem.show()
    return problem.exit_code


def _silence_stdout() -> None:
    """Make sure that Python's own flush at exit does not fail once more."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):  # no real file stands behind it
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)


# --- bash, and what a shell asks ---

_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """For bash, which breaks words at colons: names of sessions hold some."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """What stands before the cursor: the whole words, and the one that is being typed."""
        line = os.environ["COMP_WORDS"]
        typed = split_arg_string(line)
        incomplete = typed.pop() if typed and not line[-1:].isspace() else ""
        return typed[1:], incomplete

    def complete(self) -> str:
        """One line for each candidate, less what bash takes for words before it."""
        arguments, incomplete = self.get_completion_args()
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        cut = max((incomplete.rfind(sign) + 1 for sign in breaks if sign.strip()), default=0)
        items: list[Any] = self.get_completions(arguments, incomplete)
        for item in items:
            if str(item.value).startswith(incomplete[:cut]):
                item.value = item.value[cut:]
        return "\n".join(map(self.format_completion, items))


def answer_shell(command: click.Command, call: Call, variable: str, instruction: str) -> int:
    """Do what a shell asks in this variable; returns the exit code."""
    add_completion_class(Bash)
    return shell_complete(command, {"obj": call}, "bsd", variable, instruction)
