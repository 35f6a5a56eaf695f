"""The registry: all commands, in the order and the sections of the help page.

It names modules without importing them, so that `bsd --help` and the tab key stay quick. A new
command is one line here, and a click command in the module that the line names.
"""

from __future__ import annotations

from typing import NamedTuple


class RegisteredCommand(NamedTuple):
    """One command of the command line."""

    where: str  # `module:attribute`, the module below `bsd.cli`
    help: str  # the first line of the command's own help
    locks: bool = False  # it may take the lock of a session (`bsd.__main__.ensure_host_token`)


_C = RegisteredCommand

SECTIONS: dict[str, dict[str, RegisteredCommand]] = {
    "Run": {
        "run": _C("run:run", "Watch, extract and clean up, until told to stop.", locks=True),
        "status": _C("status:status", "Ask the running daemon how it is."),
        "jobs": _C("jobs:jobs", "List the scheduled jobs, or run one now."),
        "logs": _C("logs:logs", "Show the log, and go on showing what is added."),
    },
    "Look": {
        "sessions": _C("verbs:sessions", "List all sessions, their size and what is out of them."),
        "search": _C("verbs:search", "Find entries by words, in the index or in everything."),
        "show": _C("verbs:show", "Show the entries of a session, or one of them in full."),
        "summary": _C("verbs:summary", "Say what a session was about."),
        "history": _C("verbs:history", "Show what was done to a session, and what is undone."),
        "context": _C(
            "verbs:context", "Show what an agent sees of a session: entries and hashes."
        ),
    },
    "Change": {
        "extract": _C("extract:extract", "Move large old values into the store.", locks=True),
        "restore": _C(
            "verbs:restore", "Put one entry's values back, exact to the byte.", locks=True
        ),
        "restore-all": _C(
            "extract:restore_all", "Put everything back into its session.", locks=True
        ),
        "set-extractable": _C(
            "verbs:set-extractable", "Pin an entry, or let it go early.", locks=True
        ),
        "edit": _C("edit:edit", "Change values of one entry, in your editor.", locks=True),
        "replace": _C("edit:replace", "Put a text in the place of a range.", locks=True),
        "discard": _C("edit:discard", "Throw an entry's text away.", locks=True),
        "distill": _C("edit:distill", "Put a summary in the place of an entry.", locks=True),
        "undo": _C("verbs:undo", "Take back what was done to a session.", locks=True),
    },
    "Throw away": {
        "delete": _C(
            "trash:delete", "Move a session and its children to the trash.", locks=True
        ),
        "trash": _C(
            "trash:trash", "List the trash, restore from it, or empty it.", locks=True
        ),
        "archive": _C(
            "archive:archive", "Bring back sessions that their program has deleted.", locks=True
        ),
    },
    "Care": {
        "verify": _C("verbs:verify", "Check that all that was taken out is there.", locks=True),
        "retention": _C(
            "trash:retention", "Archive what was kept long enough, or say what goes.", locks=True
        ),
        "sources": _C(
            "config:sources", "List other programs' directories, and who serves them."
        ),
        "doctor": _C("verbs:doctor", "Check this machine and this directory for trouble."),
        "service": _C("service:service", "Start bsd at login, as a service of this user."),
        "config": _C("config:config", "Show or change the settings that work at once."),
        "demo": _C(
            "demo:demo", "Try it all on made-up sessions in a temporary place.", locks=True
        ),
    },
    "For agents": {
        "memory": _C("memory:memory", "Keep facts that agents know; they fade unless recalled."),
        "workspace": _C("workspace:workspace", "Run programs in directories that go when unused."),
        "restore_remote": _C(
            "tools:restore_remote", "Restore an entry by the id in its placeholder.", locks=True
        ),
        "purge_control": _C(
            "tools:purge_control", "get_context, restore, set_extractable.", locks=True
        ),
        "mcp": _C(
            "tools:mcp", "Serve the agent's tools over MCP, on stdin and stdout.", locks=True
        ),
    },
}  # fmt: skip
COMMANDS = {name: known for section in SECTIONS.values() for name, known in section.items()}


def takes_lock(argv: list[str]) -> bool:
    """True if a command line names a command that takes session locks.

    A word that only looks like such a command (a text, a directory) counts too; that costs one
    restart of the interpreter and nothing else.
    """
    return any(COMMANDS[word].locks for word in argv if word in COMMANDS)
