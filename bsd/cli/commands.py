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
        "init": _C(
            "init:init_command",
            "Find the agents on this machine, and look after their sessions.",
            locks=True,
        ),
        "run": _C("run:run", "Watch, extract and clean up, until told to stop.", locks=True),
        "status": _C("status:status", "Ask the running daemon how it is."),
        "jobs": _C("jobs:jobs", "List the scheduled jobs, or run one now."),
        "logs": _C("logs:logs", "Show the log, and go on showing what is added."),
    },
    "Look": {
        "sessions": _C(
            "sessions:sessions_command", "List all sessions, their size and what is out of them."
        ),
        "search": _C(
            "sessions:search_command", "Find entries by words, in the index or in everything."
        ),
        "show": _C(
            "entries:show_command", "Show the entries of a session, or one of them in full."
        ),
        "summary": _C("sessions:summary_command", "Say what a session was about."),
        "history": _C(
            "history:history_command", "Show what was done to a session, and what is undone."
        ),
        "context": _C(
            "entries:context_command", "Show what an agent sees of a session: entries and hashes."
        ),
    },
    "Change": {
        "extract": _C(
            "extract:extract_command", "Move large old values into the store.", locks=True
        ),
        "restore": _C(
            "entries:restore_command", "Put one entry's values back, exact to the byte.", locks=True
        ),
        "restore-all": _C(
            "extract:restore_all_command", "Put everything back into its session.", locks=True
        ),
        "set-extractable": _C(
            "entries:set_extractable_command", "Pin an entry, or let it go early.", locks=True
        ),
        "edit": _C("edit:edit_command", "Change values of one entry, in your editor.", locks=True),
        "replace": _C("edit:replace_command", "Put a text in the place of a range.", locks=True),
        "discard": _C("edit:discard_command", "Throw an entry's text away.", locks=True),
        "distill": _C(
            "edit:distill_command", "Put a summary in the place of an entry.", locks=True
        ),
        "undo": _C("undo:undo_command", "Take back what was done to sessions.", locks=True),
    },
    "Throw away": {
        "delete": _C(
            "trash:delete_command", "Move a session and its children to the trash.", locks=True
        ),
        "trash": _C(
            "trash:trash_group", "List the trash, restore from it, or empty it.", locks=True
        ),
        "archive": _C(
            "archive:archive_group",
            "Bring back sessions that their program has deleted.",
            locks=True,
        ),
    },
    "Care": {
        "verify": _C(
            "checks:verify_command", "Check that all that was taken out is there.", locks=True
        ),
        "retention": _C(
            "retention:retention_command",
            "Archive what was kept long enough, or say what goes.",
            locks=True,
        ),
        "agents": _C("agents:agents", "List the agents on this machine; turn one on or off."),
        "sources": _C("config:sources", "List other programs' directories, and who serves them."),
        "doctor": _C("checks:doctor_command", "Check this machine and this directory for trouble."),
        "service": _C("service:service", "Start bsd at login, as a service of this user."),
        "exclude": _C(
            "leaving_out:exclude_command", "List, add or remove what bsd never looks at."
        ),
        "pause": _C(
            "leaving_out:pause_command",
            "List, begin or end pauses: what bsd looks at, but does not edit.",
        ),
        "config": _C("config:config", "Show or change the settings that work at once."),
        "demo": _C("demo:demo", "Try it all on made-up sessions in a temporary place.", locks=True),
    },
    "For agents": {
        "memory": _C(
            "memory:memory_group", "Keep facts that agents know; they fade unless recalled."
        ),
        "workspace": _C(
            "workspace:workspace_group", "Run programs in directories that go when unused."
        ),
        "restore_remote": _C(
            "agent_tools:restore_remote_command",
            "Restore an entry by the id in its placeholder.",
            locks=True,
        ),
        "purge_control": _C(
            "agent_tools:purge_control_command",
            "get_context, restore, set_extractable.",
            locks=True,
        ),
        "mcp": _C(
            "agent_tools:mcp_command",
            "Serve the agent's tools over MCP, on stdin and stdout.",
            locks=True,
        ),
    },
}
COMMANDS = {name: known for section in SECTIONS.values() for name, known in section.items()}


def takes_lock(argv: list[str]) -> bool:
    """True if a command line names a command that takes session locks.

    A word that only looks like such a command (a text, a directory) counts too; that costs one
    restart of the interpreter and nothing else.
    """
    return any(COMMANDS[word].locks for word in argv if word in COMMANDS)
