"""Which commands there are, said without importing them: help and start-up stay light."""

from __future__ import annotations

import os
import sys

from bsd.core.verb_names import NAMES, split_command


class Command:
    """One command: where it is built, and what it says of itself in one line.

    No NamedTuple: typing would take longer to load than the help page to print.
    """

    def __init__(
        self,
        name: str,
        module: str,
        help: str,
        locks: bool | str = False,
        unless: str | None = None,
        verb: str | None = None,
    ) -> None:
        self.name = name
        self.module = module  # in this room; the click command is its attribute `name`, - as _
        self.help = help
        self.verb = verb  # whose command it is
        self.locks = locks  # takes the lock of a session; a word: if that is among its arguments …
        self.unless = unless  # … but not if this one is


_SECTIONS: dict[str, tuple[Command, ...]] = {
    "Run": (
        Command("run", "daemon", "Watch, extract and clean up, until told to stop.", True),
        Command("status", "daemon", "Ask the running daemon how it is."),
        Command("jobs", "daemon", "List the scheduled jobs, or run one now."),
        Command("logs", "logs", "Show the log, and go on showing what is added."),
    ),
    "Look": (),
    "Change": (
        Command("extract", "extract", "Move large old values into the store.", True, "--dry-run"),
        Command("restore-all", "extract", "Put everything back into its session.", True),
        Command("edit", "edit", "Change values of one entry, in your editor.", True),
        Command("replace", "edit", "Put a text in the place of a range.", True, "--dry-run"),
        Command("discard", "edit", "Throw an entry's text away.", True, "--dry-run"),
        Command("distill", "edit", "Put a summary in the place of an entry.", True, "--dry-run"),
    ),
    "Throw away": (
        Command("delete", "trash", "Move a session and its children to the trash.", True),
        Command("trash", "trash", "List the trash, restore from it, or empty it.", True, "list"),
        Command(
            "archive",
            "archive",
            "Bring back sessions that their program has deleted.",
            True,
            "list",
        ),
    ),
    "Care": (
        Command(
            "retention",
            "trash",
            "Archive what was kept long enough, or say what goes.",
            locks=True,
            unless="--dry-run",
        ),
        Command("sources", "config", "List other programs' directories, and who serves them."),
        Command("service", "service", "Start bsd at login, as a service of this user."),
        Command("config", "config", "Show or change the settings that work at once."),
        Command("demo", "demo", "Try it all on made-up sessions in a temporary place.", True),
    ),
    "For agents": (
        Command("memory", "memory", "Keep facts that agents know; they fade unless recalled."),
        Command("workspace", "workspace", "Run programs in directories that go when unused."),
        Command("restore_remote", "tools", "Restore an entry by the id in its placeholder.", True),
        Command(
            "purge_control", "tools", "get_context, restore, set_extractable.", True, "get_context"
        ),
        Command("mcp", "tools", "Serve the agent's tools over MCP, on stdin and stdout.", True),
    ),
}


def _with_verbs(title: str, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """These commands, and those of verbs, each behind the one that it names."""
    found = list(commands)
    for name in NAMES.values():
        before = [title, *(one.name for one in found)]
        if name.command and name.after in before:
            verb = Command(name.command, "verbs", name.help, name.locks, verb=name.verb)
            found.insert(before.index(name.after), verb)
    return tuple(found)


SECTIONS = {title: _with_verbs(title, commands) for title, commands in _SECTIONS.items()}
COMMANDS = {command.name: command for section in SECTIONS.values() for command in section}

_HEAD = """\
Usage: bsd [OPTIONS] COMMAND [ARGS]...

  Keeps AI-agent session files lean by moving large old values into a store.
  They stay there for 24 hours, unless you set it, and then in an archive.

  bsd extract --dry-run    shows what would leave your sessions; changes nothing
  bsd extract              moves it into the store, a placeholder stays
  bsd restore-all          puts back every value that is kept, exact to the byte

Options:
  --root DIR     the root [OPENCLAW_ROOT; ~/.openclaw or ~/.local/share/bsd]
  --config FILE  the settings file [$XDG_CONFIG_HOME/bsd/bsd.toml]
  --json         print one JSON document instead of tables
  --version      print the version
  -h, --help     print this; `bsd COMMAND --help` has examples
"""
PIPE_CLOSED = 141  # 128 + SIGPIPE


def help_page() -> str:
    """The page that `bsd --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    page = _HEAD
    for title, commands in SECTIONS.items():
        page += f"\n{title}:\n"
        page += "".join(f"  {command.name:<{width}}{command.help}\n" for command in commands)
    return page


def print_help() -> int:
    """Print that page; returns the exit code."""
    try:
        sys.stdout.write(help_page())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python's flush at exit fails as well
        return PIPE_CLOSED
    return 0


def takes_lock(argv: list[str]) -> bool:
    """Whether this call takes the lock of a session, so that its argv must say so (SPEC §2.6)."""
    _, name, arguments = split_command(argv)
    command = COMMANDS.get(name or "")
    if command is None or not command.locks or "--help" in arguments or "-h" in arguments:
        return False
    if isinstance(command.locks, str):
        return command.locks in arguments
    return command.unless not in arguments
