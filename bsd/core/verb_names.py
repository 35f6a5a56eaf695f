"""Which verbs there are, and what people and agents call them, said without importing them.

A new verb has its line here, and its module in `bsd.actions`. Help and start-up stay light so, and
planners know the tools that doors make of verbs. Beside it stands how a command line is parted.
"""

from __future__ import annotations


class Name:
    """One verb: the module that defines it, and what the command line's help says of it.

    No dataclass: that would take longer to load than the help page to print.
    """

    def __init__(
        self,
        verb: str,
        *,
        command: str | None = None,
        after: str = "",
        help: str = "",
        locks: bool | str = False,
        module: str | None = None,
        tools: tuple[str, ...] = (),
    ) -> None:
        self.verb = verb
        self.module = module or "verbs"  # in `bsd.actions`, with the verb as a constant
        self.command = command  # None: not for people
        self.after = after  # the command that it follows on the help page, or the title it is below
        self.help = help
        self.locks = locks  # it takes the lock of a session; a word: with that among its arguments
        self.tools = tools  # what agents call it


NAMES = {
    one.verb: one
    for one in (
        Name(
            "restore",
            command="restore",
            after="extract",
            help="Put one entry's values back, exact to the byte.",
            locks=True,
            tools=("purge_control", "restore_remote", "restore"),
        ),
        Name(
            "set_extractable",
            command="set-extractable",
            after="restore-all",
            help="Pin an entry, or let it go early.",
            locks=True,
            tools=("purge_control",),
        ),
        Name(
            "undo",
            command="undo",
            after="distill",
            help="Take back what was done to a session.",
            locks=True,
        ),
        Name(
            "all_sessions",
            command="sessions",
            after="Look",
            help="List all sessions, their size and what is out of them.",
        ),
        Name(
            "search_all",
            command="search",
            after="sessions",
            help="Find entries by words, in the index or in everything.",
        ),
        Name(
            "show",
            command="show",
            after="search",
            help="Show the entries of a session, or one of them in full.",
        ),
        Name(
            "summary",
            command="summary",
            after="show",
            help="Say what a session was about.",
        ),
        Name(
            "history",
            command="history",
            after="summary",
            help="Show what was done to a session, and what is undone.",
        ),
        Name(
            "get_context",
            command="context",
            after="history",
            help="Show what an agent sees of a session: entries and hashes.",
            tools=("purge_control",),
        ),
        Name(
            "verify",
            command="verify",
            after="Care",
            help="Check that all that was taken out is there.",
            locks="--repair",
        ),
        Name(
            "doctor",
            command="doctor",
            after="sources",
            help="Check this machine and this directory for trouble.",
        ),
        Name("list_sessions"),
        Name("show_session"),
        Name("list_entries"),
        Name("get_meta"),
        Name("search"),
        Name("search_page"),
        Name("extract"),
        Name("restore_all"),
        Name("edit"),
        Name("show_editable"),
        Name("show_extracted"),
        Name("read_held"),
        Name("replace"),
        Name("delete"),
        Name("trash_list"),
        Name("trash_restore"),
        Name("trash_delete"),
        Name("trash_empty"),
        Name("archive_list"),
        Name("archive_keep"),
        Name("archive_search"),
        Name("archive_show"),
        Name("archive_bring_back"),
        Name("archive_forget"),
        Name("retention"),
        Name("read_extracted", tools=("read_extracted",)),
        Name("change_context", tools=("context",)),
        Name("search_extracted", tools=("search_extracted",)),
    )
}
# The tools that agents have for sessions, in the order in which they are told of them.
TOOLS = tuple(dict.fromkeys(tool for one in NAMES.values() for tool in one.tools))


# --- how a command line is parted: for start-up, and for calls that stand in a transcript ---


# Global options that are followed by a value.
_VALUED = ("--root", "--config", "--host")


def split_command(argv: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Part a command line into global options, the command's name and its own arguments."""
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _VALUED else 1
    name = argv[position] if position < len(argv) else None
    return argv[:position], name, argv[position + 1 :]
