"""The registry: all commands, in the order and the sections of the help page.

It names modules without importing them, so that `bsd --help` and the tab key stay fast. A new
command is one line here, and a click command in the module that the line names.
"""

from __future__ import annotations

from typing import NamedTuple


class RegisteredCommand(NamedTuple):
    """One command of the command line."""

    where: str  # `module:attribute`, the module below `bsd.cli`
    help: str  # the first line of the command's own help
    locks: bool = False  # it may lock a session (`bsd.__main__.ensure_host_token`)


_C = RegisteredCommand

SECTIONS: dict[str, dict[str, RegisteredCommand]] = {
    "Run": {
        "init": _C(
            "init:init_command",
            "Find the agents on this machine, and manage their sessions.",
            locks=True,
        ),
        "run": _C("run:run", "Watch, extract and clean up, until stopped.", locks=True),
        "status": _C("status:status", "Show the state of the running daemon."),
        "top": _C(
            "top:top_command", "Watch the daemon at work: sessions in use, queue, last changes."
        ),
        "jobs": _C("jobs:jobs", "List the scheduled jobs, or run one now."),
        "logs": _C("logs:logs", "Show the log, and follow it."),
    },
    "Look": {
        "sessions": _C(
            "sessions:sessions_command", "List all sessions, their sizes and extracted values."
        ),
        "search": _C(
            "search:search_command", "Find entries by words, or sessions by the files they used."
        ),
        "show": _C(
            "entries:show_command", "Show the entries of a session, or one of them in full."
        ),
        "summary": _C("sessions:summary_command", "Summarize a session."),
        "replay": _C("replay:replay_command", "Play recorded sessions back under other settings."),
        "export": _C(
            "export:export_command", "Write a session into one file, to read or to share."
        ),
        "history": _C("history:history_command", "List the changes to a session, undone ones too."),
        "prices": _C("prices:prices_command", "Show what models cost, and since when."),
        "context": _C(
            "entries:context_command", "List the entries of a session as an agent sees them."
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
            "extract:restore_all_command", "Put all values back into their sessions.", locks=True
        ),
        "set-extractable": _C(
            "entries:set_extractable_command", "Pin an entry, or extract it early.", locks=True
        ),
        "edit": _C("edit:edit_command", "Change values of one entry, in your editor.", locks=True),
        "replace": _C("edit:replace_command", "Replace a range of text.", locks=True),
        "discard": _C("edit:discard_command", "Discard the text of an entry.", locks=True),
        "distill": _C(
            "edit:distill_command", "Replace the text of an entry by a summary.", locks=True
        ),
        "undo": _C("undo:undo_command", "Undo changes to sessions.", locks=True),
    },
    "Delete": {
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
    "Maintain": {
        "verify": _C(
            "checks:verify_command",
            "Check that every extracted value is stored intact.",
            locks=True,
        ),
        "secrets": _C(
            "secrets:secrets_group",
            "Find keys and passwords in sessions and archive, and replace them.",
            locks=True,
        ),
        "retention": _C(
            "retention:retention_command",
            "Archive or delete values that have expired, or list them.",
            locks=True,
        ),
        "agents": _C("agents:agents", "List the agents on this machine; turn one on or off."),
        "sources": _C("config:sources", "List other programs' directories, and their roots."),
        "fleet": _C("fleet:fleet_group", "Show what this machine shares with others."),
        "doctor": _C("checks:doctor_command", "Check this machine and this directory for trouble."),
        "service": _C("service:service", "Start bsd at login, as a service of this user."),
        "leave": _C(
            "leave:leave_command",
            "Leave bsd: put everything back, turn agents off, remove the service.",
            locks=True,
        ),
        "exclude": _C(
            "leaving_out:exclude_command", "List, add or remove sessions that bsd ignores."
        ),
        "pause": _C(
            "leaving_out:pause_command",
            "List, begin or end pauses, in which bsd edits no session.",
        ),
        "config": _C("config:config", "Show or change the settings that take effect at once."),
        "demo": _C("demo:demo", "Try bsd on made-up sessions in a temporary place.", locks=True),
    },
    "For agents": {
        "memory": _C(
            "memory:memory_group", "Keep facts that agents know; they fade unless recalled."
        ),
        "workspace": _C(
            "workspace:workspace_group", "Run programs in directories that expire when unused."
        ),
        "restore_remote": _C(
            "agent_tools:restore_remote_command",
            "Restore an entry by the id in its placeholder.",
            locks=True,
        ),
        "purge_control": _C(
            "agent_tools:purge_control_command",
            "Run one of the agents' tools: get_context, restore, set_extractable.",
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
    """Return True if a command line names a command that takes session locks.

    A word that only looks like such a command (a text, a directory) counts too; the only cost is
    one restart of the interpreter.
    """
    return any(COMMANDS[word].locks for word in argv if word in COMMANDS)
