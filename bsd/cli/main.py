"""The command line as a whole: finds the command, runs it, and reports errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem, add_completion_class, shell_complete

from bsd import __version__
from bsd.cli.bash import Bash
from bsd.cli.call import Call, global_option
from bsd.cli.commands import COMMANDS, SECTIONS
from bsd.cli.output import print_json
from bsd.cli.problem import problem_of
from bsd.cli.stopping import Stopped
from bsd.cli.welcome import show_overview, welcome

COMPLETE = "_BSD_COMPLETE"  # click's variable, in which a shell requests completions
_PIPE_CLOSED = 128 + signal.SIGPIPE

_HELP = """
Keeps AI-agent session files lean by moving large old values into a store.
They stay there for 24 hours by default, and then in an archive.

\b
bsd                      shows session sizes, and how much can be extracted
bsd init                 finds your agents, and manages their sessions
bsd extract --dry-run    shows how much would be extracted; changes nothing
bsd extract              moves old values into the store, leaves placeholders
bsd restore-all          puts every stored value back, exact to the byte
"""


class _Bsd(click.Group):
    """All commands of the registry. A command's module is imported when the command is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (known := COMMANDS.get(cmd_name)) is None:
            return None
        module, _, attribute = known.where.partition(":")
        command: click.Command = getattr(import_module(f"bsd.cli.{module}"), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section; click would import every command for its help."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), known.help) for name, known in commands.items()]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Offer the names of commands, without importing them either."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def _ignore(_context: click.Context, _parameter: click.Parameter, _value: str) -> None:
    """Do nothing: only the gateway reads `--host openclaw` (`bsd.__main__`)."""


@click.pass_context
def _without_command(context: click.Context) -> int:
    """Show the overview if no command is named; click calls this before each command."""
    return show_overview(context.ensure_object(Call)) if context.invoked_subcommand is None else 0


bsd = _Bsd(
    name="bsd",
    help=_HELP,
    callback=_without_command,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        global_option(
            "--root",
            metavar="DIR",
            help="the root [OPENCLAW_ROOT; ~/.openclaw or ~/.local/share/bsd]",
        ),
        global_option(
            "--config",
            metavar="FILE",
            help="the settings file [$XDG_CONFIG_HOME/bsd/bsd.toml]",
        ),
        global_option(
            "--json", is_flag=True, help="print one JSON document instead of tables"
        ),
        click.Option(["--host"], hidden=True, expose_value=False, callback=_ignore),
    ],
)  # fmt: skip
click.version_option(__version__, message="bsd %(version)s", help="print the version")(bsd)
click.help_option("-h", "--help", help="print this; `bsd COMMAND --help` has examples")(bsd)
add_completion_class(Bash)


def run(argv: Sequence[str]) -> int:
    """Run a command line; returns the exit code. Every error becomes a message."""
    for stream in (sys.stdout, sys.stderr):  # the encoding may lack characters
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    call = Call()
    try:
        code = _run(list(argv), call) if argv else _run_alone(call)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has closed its end
        _silence_stdout()
        return _PIPE_CLOSED
    except OSError as error:  # stdout itself fails, as on a full disk
        _silence_stdout()
        call.json = False
        return _report(error, call)
    return code


def _run_alone(call: Call) -> int:
    """Run `bsd` without arguments: as long as nothing is set up, it prints how to begin."""
    if COMPLETE not in os.environ and (text := welcome(os.environ)) is not None:
        sys.stdout.write(text)
        return 0
    return _run([], call)


def _run(argv: list[str], call: Call) -> int:
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(bsd, {"obj": call}, "bsd", COMPLETE, instruction)
    try:
        with bsd.make_context("bsd", argv, obj=call) as context:
            code = bsd.invoke(context)
        return call.stop_code or (code if isinstance(code, int) else 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, EOFError, click.Abort):
        sys.stderr.write("\nstopped\n")
        return 128 + signal.SIGINT
    except (Exception, Stopped) as error:  # noqa: BLE001 - no traceback reaches a user
        call.json = call.json or "--json" in argv  # it may come after the wrong argument
        return _report(error, call)


def _report(error: BaseException, call: Call) -> int:
    """Print the error; returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not call.json:
        sys.stderr.write(f"{error.format_message()}\n")  # a group without a command shows its help
        return error.exit_code
    problem = problem_of(error, call.log_file, call.command)
    if call.json:
        print_json(problem.as_json())
    problem.show()
    return problem.exit_code


def _silence_stdout() -> None:
    """Send further output to /dev/null, so that Python's flush at exit does not fail again."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):  # it is not a real file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
