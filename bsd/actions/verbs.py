"""What the interfaces of today are told of each action: arguments, route, tools, words.

Goes with `bsd.actions.verb`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from bsd.actions.archive import (
    MOST_GONE,
    CopiesKept,
    FoundGone,
    GoneEntries,
    GoneList,
    bring_back,
    copy_sessions,
    forget,
    list_archive,
    search_archive,
    show_archived,
)
from bsd.actions.checks import Examined, diagnose, diagnose_without_root, verify
from bsd.actions.context import ActionContext
from bsd.actions.context_tool import change_context, get_context, replace_targets
from bsd.actions.edit import (
    EDIT_SCHEMA,
    Meta,
    edit_entry,
    get_meta,
    read_edit,
    set_extractable,
    show_editable,
)
from bsd.actions.extract import check_settings, extract
from bsd.actions.history import HistoryList, list_history, undo
from bsd.actions.list_entries import (
    FIRST_PAGE,
    MOST_ENTRIES,
    Entries,
    SessionDetail,
    list_entries,
    show_session,
)
from bsd.actions.list_sessions import (
    LONGEST_WORDS,
    MOST_LISTED,
    AllSessions,
    Sessions,
    list_all_sessions,
    list_sessions,
)
from bsd.actions.read_extracted import (
    InPieces,
    ReadHeld,
    ReadOut,
    read_extracted,
    read_held,
    show_extracted,
)
from bsd.actions.restore import restore, restore_all
from bsd.actions.retention import run_retention
from bsd.actions.search import (
    ExtractedHits,
    FoundInAll,
    FoundInIndex,
    FoundOnPage,
    search,
    search_all,
    search_extracted,
    search_page,
)
from bsd.actions.show import ShownEntries, show_entries, show_value
from bsd.actions.summary import Summary, summarize_session
from bsd.actions.trash import (
    Emptied,
    Removed,
    TrashList,
    delete_from_trash,
    delete_session,
    empty_trash,
    list_trash,
    restore_from_trash,
)
from bsd.actions.verb import Body, Tool, Verb, argument, route
from bsd.core.errors import BsdError, Invalid
from bsd.core.layout import SessionName
from bsd.core.pruning_fields import PER_CALL
from bsd.maintenance.bring_back import BroughtBack
from bsd.maintenance.forgetting import Forgotten
from bsd.maintenance.retention import Retention
from bsd.maintenance.trashed import Deleted, Returned
from bsd.maintenance.verify import Verification
from bsd.planning.edit import EditableEntry, Edited, Extractable, ExtractableSet, Wish
from bsd.planning.restore import Restored
from bsd.planning.result import SessionResult
from bsd.planning.targets import ACTIONS, ContextChanged, read_targets
from bsd.planning.targets import REPLACE as BY_RANGE
from bsd.planning.undo import Undone
from bsd.planning.view import Context
from bsd.transcripts.agents.page_size import OTHERS, PageSize

_LAST_LINE = 10**9  # no session has more
_LONGEST_CURSOR = 2000  # characters

ENTRY = argument(
    "The id in the placeholder [[extracted-ID]].",
    metavar="ENTRY",
    positional=True,
    least=1,
    names={"restore": "entry_id"},  # in the tool of this name
)
KEYS = argument(
    "Only these values, by path or by name; leave it out for all of them.",
    metavar="KEY,…",
    least=1,
)
OFFSET = argument(
    "Where a long text goes on, as `next` says.", metavar="N", least=0, most=10**12 - 1
)
PAGE_SIZE = argument(by_door=True)
ID = argument("What `bsd trash list` shows.", metavar="ID", positional=True)


def _members(asked: Any) -> dict[str, Any]:
    return {one.name: getattr(asked, one.name) for one in fields(asked)}


# --- extract, restore, history ---


@dataclass(frozen=True, slots=True)
class Extract:
    """By hand: what somebody has taken back by undo leaves as well."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would be done; change nothing.", query=True),
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict, metadata=argument("What is set otherwise for this call.")
    )


def _read_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    check_settings(settings)
    return {"settings": settings}


EXTRACT = Verb(
    name="extract",
    arguments=Extract,
    answer=SessionResult,
    act=lambda context, name, asked: context.run(
        extract, name, dry_run=asked.dry_run, settings=asked.settings
    ),
    changes=True,
    route=route(
        "POST …/extract",
        "extract",
        "Extract what is due; the body may change settings for this call.",
        body=Body(_read_settings, settings=PER_CALL, required=False),
    ),
)


@dataclass(frozen=True, slots=True)
class Restore:
    """Without `keys` all that is away comes back."""

    entry: str = field(metadata=ENTRY)
    keys: tuple[str, ...] | None = field(default=None, metadata=KEYS)


RESTORE = Verb(
    name="restore",
    arguments=Restore,
    answer=Restored,
    act=lambda context, name, asked: context.run(restore, name, asked.entry, asked.keys),
    changes=True,
    route=route("POST …/entries/{entry}/restore", "restore", "Put an entry's values back."),
    about="""
    ENTRY is the id in the placeholder [[extracted-ENTRY]]. A key is a value's path (`bsd show`
    lists them) or one segment of it; without --keys all values come back. A restored entry is not
    extracted again for keep_after_restore_seconds.
    """,
    examples=(
        "bsd restore main/4f2a 1c556fa0",
        "bsd restore main/4f2a 1c556fa0 --keys text,details",
    ),
)


@dataclass(frozen=True, slots=True)
class RestoreAll:
    """Who is `leaving` bsd keeps no `_restored` that it has set, and needs no protection by it."""

    leaving: bool = False


RESTORE_ALL = Verb(
    name="restore_all",
    arguments=RestoreAll,
    answer=SessionResult,
    act=lambda context, name, asked: context.run(restore_all, name, uninstalling=asked.leaving),
    changes=True,
)


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Without `limit` all that is kept."""

    limit: int | None = field(
        default=None,
        metadata=argument("No more than so many, the newest.", metavar="N", least=1, usual=50),
    )


HISTORY = Verb(
    name="history",
    arguments=ListHistory,
    answer=HistoryList,
    act=lambda context, name, asked: context.query(list_history, name, asked.limit),
    route=route("GET …/history", "history", "The operations that can be undone, the newest first."),
    about="""
    The newest first. `bsd undo` takes the number in the first column. History is kept for as long
    as the setting `trash_retention` says.
    """,
    examples=(
        "bsd history main/4f2a",
        "bsd history main/4f2a --limit 200",
    ),
)


@dataclass(frozen=True, slots=True)
class Undo:
    """Without `op` the newest operation that is not undone."""

    op: int | None = field(
        default=None,
        metadata=argument("A number from the history.", metavar="[OP]", positional=True, least=1),
    )


UNDO = Verb(
    name="undo",
    arguments=Undo,
    answer=Undone,
    act=lambda context, name, asked: context.run(undo, name, asked.op),
    changes=True,
    route=route("POST …/undo", "undo", "Take an operation back: the newest, or one by its number."),
    about="""
    Every line that the operation changed becomes what it was, exact to the byte. Without OP the
    newest operation that is not undone; OP is a number from `bsd history`. An older one can be
    undone if nothing changed the same entries since. Undoing an undo does the operation again.
    What an undone extraction brought back stays until you extract the session by hand. What a
    restore brought back is taken out again when you undo the restore: the command asks first.
    """,
    examples=(
        "bsd undo main/4f2a",
        "bsd undo main/4f2a 12",
    ),
)


# --- edit ---


@dataclass(frozen=True, slots=True)
class EditEntry:
    """`seen` is the hash of the line that the wish was made on; EntryChanged if it is another."""

    entry: str = field(metadata=ENTRY)
    wish: Wish = field(metadata=argument("From the entry as it is to the entry as it shall be."))
    seen: str | None = None


def _read_edit(body: bytes) -> Mapping[str, Any]:
    wish, seen = read_edit(body)
    return {"wish": wish, "seen": seen}


EDIT = Verb(
    name="edit",
    arguments=EditEntry,
    answer=Edited,
    act=lambda context, name, asked: context.run(
        edit_entry, name, asked.entry, asked.wish, asked.seen
    ),
    changes=True,
    route=route(
        "PUT …/entries/{entry}",
        "edit",
        "Change values of an entry; all other bytes stay.",
        body=Body(_read_edit, EDIT_SCHEMA),
    ),
)


@dataclass(frozen=True, slots=True)
class ShowEditable:
    """Of one entry, the header included."""

    entry: str = field(metadata=ENTRY)


SHOW_EDITABLE = Verb(
    name="show_editable",
    arguments=ShowEditable,
    answer=EditableEntry,
    act=lambda context, name, asked: context.query(show_editable, name, asked.entry),
)


@dataclass(frozen=True, slots=True)
class GetMeta:
    """Of one entry, the header included."""

    entry: str = field(metadata=argument(metavar="ENTRY", positional=True))


GET_META = Verb(
    name="get_meta",
    arguments=GetMeta,
    answer=Meta,
    act=lambda context, name, asked: context.query(get_meta, name, asked.entry),
    route=route("GET …/entries/{entry}/meta", "meta", "What is noted on an entry."),
)


@dataclass(frozen=True, slots=True)
class SetExtractable:
    """true, false, for how many messages to keep the entry, or null for no word on it."""

    entry: str = field(metadata=ENTRY)
    value: Extractable = field(
        metadata=argument(
            "false keeps the entry in sight, true lets it go, a number keeps it for so many "
            "messages, null takes back what was said.",
            metavar="true|false|N|unset",
            positional=True,
            least=0,
            most=10**9,
            expected="true, false, a number of messages or null",
            names={"http": "_extractable"},
        )
    )


SET_EXTRACTABLE = Verb(
    name="set_extractable",
    arguments=SetExtractable,
    answer=ExtractableSet,
    act=lambda context, name, asked: context.run(set_extractable, name, asked.entry, asked.value),
    changes=True,
    route=route(
        "PUT …/entries/{entry}/meta",
        "set_meta",
        "Say whether an entry may be extracted.",
        hint="No valid fields to update. Allowed: _extractable",
    ),
    about="""
    VALUE is false (never extract this entry), true (extract it, whatever its type, size or
    position), a number (keep it for so many messages instead of keep_recent), or unset. Any of
    them gives back to the daemon what an undo had kept inline.
    """,
    examples=(
        "bsd set-extractable main/4f2a 1c556fa0 false",
        "bsd set-extractable main/4f2a 1c556fa0 20",
    ),
)


@dataclass(frozen=True, slots=True)
class GetContext:
    """Nothing but the session."""


GET_CONTEXT = Verb(
    name="get_context",
    arguments=GetContext,
    answer=Context,
    act=lambda context, name, _: context.query(get_context, name),
    reads=True,
    route=route(
        "GET …/context",
        "context",
        "What an agent may know of its session: sizes, what is away, what could be.",
    ),
    about="""
    Lists every entry with the six-digit hash of its content, its size, and whether it can be or
    has been extracted.
    """,
    examples=(
        "bsd context main/4f2a",
        "bsd context main/4f2a --json | jq -r '.extracted_ids[]'",
    ),
)


_TARGETS: dict[str, Any] = {
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "description": "for replace",
                "properties": {
                    "start": {"type": "string", "description": "Exact text that begins the piece"},
                    "end": {"type": "string", "description": "Exact text that ends the piece"},
                    "replacement": {"type": "string", "description": "What stands there instead"},
                },
                "required": ["start", "end", "replacement"],
            },
            {
                "type": "array",
                "description": "for discard [hash], for distill [hash, summary]",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
            },
        ]
    },
}


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Seed 003's context tool."""

    action: str = field(metadata=argument("What to do.", choices=ACTIONS))
    targets: Sequence[Any] = field(
        metadata=argument("What to do it to; all of it is done or nothing.", schema=_TARGETS)
    )
    include_user: bool = field(
        default=False,
        metadata=argument("Also look at what the user wrote, which is left alone else."),
    )
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Read the targets, in any of the seed's forms; raises Refused for what is none."""
        object.__setattr__(self, "targets", read_targets(self.action, self.targets))


def _change_context(
    context: ActionContext, name: SessionName, asked: ChangeContext
) -> ContextChanged:
    return context.run(
        change_context,
        name,
        asked.action,
        [one.as_json() for one in asked.targets],
        include_user=asked.include_user,
        dry_run=asked.dry_run,
    )


CHANGE_CONTEXT = Verb(
    name="context",
    arguments=ChangeContext,
    answer=ContextChanged,
    act=_change_context,
    changes=True,
    route=route(
        "POST …/context",
        "change_context",
        "Replace ranges, discard entries or put summaries in their place; an undo takes it back."
        "\n\nAll that is wrong is told at once, by target.",
    ),
    tools=(
        Tool(
            "context",
            "Replace, discard or distill content",
            "Make your context smaller where you know that you need less than is there. replace "
            "puts `replacement` in place of everything from the text `start` to the next text "
            "`end`, both included: literal, at least 30 characters, and exactly one match in the "
            "session. discard [hash] empties an entry, distill [hash, summary] leaves your summary "
            "there; get_context lists the hashes. All targets of a call are done or none, and a "
            "person can undo it. Use it for logs, traces and listings that are dealt with, never "
            "for what you may have to quote.",
            destroys=True,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Replace:
    """One replacement, or several under `targets`: all of them or none."""

    start: str | None = None
    end: str | None = None
    replacement: str | None = None
    targets: Sequence[Any] | None = None
    include_user: bool = field(default=False, metadata=argument("Also change what the user wrote"))
    dry_run: bool = field(
        default=False, metadata=argument("Say what would change; change nothing.", query=True)
    )

    def __post_init__(self) -> None:
        """Refuse what is no target before a session is opened for it; raises Refused."""
        self.change()

    def change(self) -> ChangeContext:
        """What this is in the terms of the context tool."""
        targets = replace_targets(self.start, self.end, self.replacement, self.targets)
        return ChangeContext(BY_RANGE, targets, self.include_user, self.dry_run)


REPLACE = Verb(
    name="context",
    arguments=Replace,
    answer=ContextChanged,
    act=lambda context, name, asked: _change_context(context, name, asked.change()),
    changes=True,
    route=route(
        "POST …/replace",
        "replace",
        "Put another text in the place of what stands between two markers (seed 003).",
        needs_body=True,
    ),
)


# --- sessions and entries ---


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Which sessions; None is all."""

    agent: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))
    status: str | None = field(
        default=None,
        metadata=argument("As in the list; or stale or active, by age", most=LONGEST_WORDS),
    )
    words: str | None = field(
        default=None,
        metadata=argument(
            "Words in the name, the title, the label, a model's name or the text, extracted text "
            "included",
            most=LONGEST_WORDS,
            names={"http": "q"},
        ),
    )
    limit: int = field(default=100, metadata=argument(least=1, most=MOST_LISTED))
    cursor: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))


LIST_SESSIONS = Verb(
    name="list_sessions",
    arguments=ListSessions,
    answer=Sessions,
    ask=lambda context, asked: list_sessions(context, **_members(asked)),
    route=route(
        "GET /api/sessions",
        "sessions",
        "Sessions, the newest first."
        "\n\nOne that changes while somebody pages comes (again) at the end: none is left out.",
    ),
)


@dataclass(frozen=True, slots=True)
class EverySession:
    """Which sessions, without pages; None is all."""

    agent: str | None = field(
        default=None, metadata=argument("Only the sessions of this agent.", metavar="AGENT")
    )
    limit: int | None = field(default=None, metadata=argument("No more than so many.", least=1))
    words: str | None = field(
        default=None,
        metadata=argument(
            "Only those with these words in title, name or text.",
            metavar="WORDS",
            names={"cli": "-q --query"},
        ),
    )
    figures: bool = True  # of those that are as the last search counted them


ALL_SESSIONS = Verb(
    name="all_sessions",
    arguments=EverySession,
    answer=AllSessions,
    ask=lambda context, asked: list_all_sessions(context, **_members(asked)),
    about="""
    Newest first within each agent, by their newest entries. TITLE is what `sessions.json` or the
    program calls a session, else what was first asked in it. -q finds words in it, in the name, and
    in text that `bsd search` or the daemon has read. SIZE is the session file's, OUT is what
    is out of it now, and lies in store or archive. Agents whose sessions bsd leaves alone are named
    below the table.
    With --json, sessions that `bsd search` has read have figures, too: messages, tokens and more.
    """,
    examples=(
        "bsd sessions",
        "bsd sessions --agent main --limit 10",
        'bsd sessions -q "retention cron"',
        "bsd sessions --json | jq -r '.sessions[] | select(.size > 10000000) | .session'",
    ),
)


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Which entries: the first from line `start` on, or the last before line `before`."""

    start: int = field(
        default=0, metadata=argument(least=0, most=_LAST_LINE, names={"http": "from"})
    )
    before: int | None = field(
        default=None,
        metadata=argument("The last ones before this line, not `from`", least=0, most=_LAST_LINE),
    )
    limit: int = field(default=FIRST_PAGE, metadata=argument(least=1, most=MOST_ENTRIES))
    types: str = field(
        default="",
        metadata=argument("Only these types: a,b", most=1000, names={"http": "type"}),
    )
    extracted: bool | None = field(
        default=None, metadata=argument("Only those that are (or are not) extracted")
    )


LIST_ENTRIES = Verb(
    name="list_entries",
    arguments=ListEntries,
    answer=Entries,
    act=lambda context, name, asked: context.query(list_entries, name, **_members(asked)),
    route=route(
        "GET …/entries", "entries", "Entries from a line on, or the last ones before a line."
    ),
)


@dataclass(frozen=True, slots=True)
class ShowSession:
    """With a `limit` of 0 the session need not be read."""

    limit: int = field(default=FIRST_PAGE, metadata=argument("Entries", least=0, most=MOST_ENTRIES))


SHOW_SESSION = Verb(
    name="show_session",
    arguments=ShowSession,
    answer=SessionDetail,
    act=lambda context, name, asked: context.query(show_session, name, limit=asked.limit),
    route=route(
        "GET …",
        "session",
        "One session with the first page of its entries; with none it need not be read.",
    ),
)


@dataclass(frozen=True, slots=True)
class Show:
    """All entries from a line on, or one entry; or one value of that."""

    entry: str | None = field(default=None, metadata=argument("Only this entry.", metavar="ENTRY"))
    start: int = field(
        default=0, metadata=argument("First line number.", least=0, names={"cli": "from"})
    )
    limit: int | None = field(
        default=None, metadata=argument("No more than so many entries.", least=1)
    )
    full: bool = field(
        default=False, metadata=argument("Whole texts, extracted ones from the store.")
    )
    key: str | None = field(
        default=None,
        metadata=argument("Only this value of ENTRY: a path, or a segment of it.", metavar="KEY"),
    )


def _show(context: ActionContext, name: SessionName, asked: Show) -> Any:
    if asked.key is not None:
        if asked.entry is None:
            hint = f"bsd show {name} --entry ID --key {asked.key}"
            raise Invalid("--key needs --entry", hint=hint)
        return context.query(show_value, name, asked.entry, asked.key)
    return context.query(
        show_entries,
        name,
        entry=asked.entry,
        start=asked.start,
        limit=asked.limit,
        full=asked.full,
    )


SHOW = Verb(
    name="show",
    arguments=Show,
    answer=ShownEntries,
    act=_show,
    about="""
    📎 marks an entry that values were taken out of. --full prints whole lines, and what was taken
    out of them from the store; --key prints the text of one value and nothing else, to read or to
    pipe. Nothing is put back. ENTRY is an id or a line number; #N is always the line number,
    counted from 0.
    """,
    examples=(
        "bsd show main/4f2a --from 100 --limit 20",
        "bsd show main/4f2a --entry 1c556fa0",
        "bsd show main/4f2a --entry '#45' --full --json",
        "bsd show main/4f2a --entry 1c556fa0 --key output | less",
    ),
)


@dataclass(frozen=True, slots=True)
class Summarize:
    """Nothing but the session."""


SUMMARY = Verb(
    name="summary",
    arguments=Summarize,
    answer=Summary,
    act=lambda context, name, _: context.query(summarize_session, name),
    route=route(
        "GET …/summary",
        "summary",
        "What was asked for and done, by plain rules on the words; no model is asked.",
    ),
    about="""
    What was asked for and done, by plain rules on the words of the session and of what was taken
    out of it. No model is asked, and nothing is changed.
    """,
    examples=(
        "bsd summary main/4f2a",
        "bsd summary main/4f2a --json | jq .summary.user_requests",
    ),
)


# --- search ---


@dataclass(frozen=True, slots=True)
class SearchWords:
    """Words that must all be there."""

    words: str = field(
        metadata=argument('Words, "several words", begin*', most=LONGEST_WORDS, names={"http": "q"})
    )
    agent: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))
    limit: int = field(default=20, metadata=argument(least=1, most=200))


@dataclass(frozen=True, slots=True)
class SearchPage(SearchWords):
    """Words that must all be there; in the index, or in everything, page by page."""

    all: bool = field(
        default=False,
        metadata=argument(
            "Without the index, through all text of sessions, stores and archives: for a moment, "
            "and on from `cursor` with the next call"
        ),
    )
    cursor: str | None = field(default=None, metadata=argument(most=_LONGEST_CURSOR))


SEARCH = Verb(
    name="search",
    arguments=SearchPage,
    answer=FoundInIndex,
    ask=lambda context, asked: search(context, **_members(asked)),
    route=route(
        "GET /api/search",
        "search",
        "Entries that hold all the words, the best first: those of users and assistants, or all.",
        tag="sessions",
    ),
)


SEARCH_PAGE = Verb(
    name="search_page",
    arguments=SearchPage,
    answer=FoundOnPage,
    ask=lambda context, asked: context.query(
        search_page, asked.words, agent=asked.agent, limit=asked.limit, cursor=asked.cursor
    ),
    reads=True,
)


@dataclass(frozen=True, slots=True)
class SearchAll:
    """Words that must all be there; the index is brought up to date before."""

    words: str = field(metadata=argument(metavar="WORDS...", positional=True))
    all: bool = field(
        default=False,
        metadata=argument(
            "Search all text of sessions, stores and archives, tools' results included. "
            "It uses no index; Ctrl-C ends it with what was found so far."
        ),
    )
    agent: str | None = field(
        default=None, metadata=argument("Only the sessions of this agent.", metavar="AGENT")
    )
    limit: int = field(default=20, metadata=argument("No more than so many entries.", least=1))


SEARCH_ALL = Verb(
    name="search_all",
    arguments=SearchAll,
    answer=FoundInAll,
    ask=lambda context, asked: search_all(context, **_members(asked)),
    about="""
    Entries that hold all the words, the best first: what users and assistants say, names of tools
    and paths that they were given, also where that was taken out of its session. Before them come
    other sessions, whose titles hold the words.
    Words in double quotes stand together; `begin*` is any word that begins so. The index is brought
    up to date before, so the first search takes a while. With `--all` all text is searched, the
    newest sessions first, without the index.
    """,
    examples=(
        "bsd search retention cron",
        "bsd search --all ECONNREFUSED",
        "bsd search '\"connection refused\"' --agent main --limit 5",
        "bsd search 'Migrat*' --json | jq -r '.results[].session'",
    ),
)


@dataclass(frozen=True, slots=True)
class SearchExtracted:
    """Words, in what is away of one session."""

    query: str = field(
        metadata=argument(
            'Words that must all be there; "some words" stand together, begin* is any word that '
            "begins so.",
            least=1,
            most=1000,
        )
    )
    limit: int = field(
        default=10, metadata=argument("No more than so many entries.", least=1, most=100)
    )
    offset: int = field(default=0, metadata=argument("As `next` says.", least=0, most=1000))


SEARCH_EXTRACTED = Verb(
    name="search_extracted",
    arguments=SearchExtracted,
    answer=ExtractedHits,
    act=lambda context, name, asked: context.query(
        search_extracted, name, asked.query, limit=asked.limit, offset=asked.offset
    ),
    reads=True,
    tools=(
        Tool(
            "search_extracted",
            "Search what was extracted",
            "Find words in what was moved out of a session, without putting it back: the entries "
            "that hold them all, each with its id and the text around them. Often that "
            "is all you need; if not, read_extracted gives the whole text.",
            lists=True,
        ),
    ),
)


# --- extracted values ---


@dataclass(frozen=True, slots=True)
class ReadExtracted:
    """Without `keys` all that is away and that the model was sent."""

    entry: str = field(metadata=ENTRY)
    keys: tuple[str, ...] | None = field(default=None, metadata=KEYS)
    offset: int = field(default=0, metadata=OFFSET)
    size: PageSize = field(default=OTHERS, metadata=PAGE_SIZE)


READ_EXTRACTED = Verb(
    name="read_extracted",
    arguments=ReadExtracted,
    answer=ReadOut,
    act=lambda context, name, asked: context.query(
        read_extracted, name, asked.entry, asked.keys, offset=asked.offset, size=asked.size
    ),
    tools=(
        Tool(
            "read_extracted",
            "Read an extracted entry",
            "Read the text that a placeholder [[extracted-ID]] stands for; nothing is changed. "
            "Long texts come in pages: `next` of the answer says with which arguments to read on. "
            "Pictures are shown.",
            pictures=True,
        ),
    ),
)


READ_HELD = Verb(
    name="read_held",
    arguments=ReadExtracted,
    answer=ReadHeld,
    act=lambda context, name, asked: context.query(
        read_held, name, asked.entry, asked.keys, offset=asked.offset, size=asked.size
    ),
)


@dataclass(frozen=True, slots=True)
class ShowExtracted:
    """Of one entry."""

    entry: str = field(metadata=ENTRY)


SHOW_EXTRACTED = Verb(
    name="show_extracted",
    arguments=ShowExtracted,
    answer=InPieces,
    act=lambda context, name, asked: context.query(show_extracted, name, asked.entry),
)


# --- trash, retention ---


@dataclass(frozen=True, slots=True)
class Delete:
    """A session, with its children."""

    permanent: bool = field(
        default=False,
        metadata=argument("Delete it for good, past the trash.", query=True),
    )


@dataclass(frozen=True, slots=True)
class ListTrash:
    """Nothing but the trash."""


@dataclass(frozen=True, slots=True)
class RestoreFromTrash:
    """One session in the trash; its children come with it."""

    id: str = field(metadata=ID)


@dataclass(frozen=True, slots=True)
class DeleteFromTrash:
    """One session in the trash, alone."""

    id: str = field(metadata=ID)


@dataclass(frozen=True, slots=True)
class EmptyTrash:
    """All that is in the trash."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """One run over everything that is kept for a time."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would go, and when; change nothing.", query=True),
    )
    forget: bool = field(
        default=False,
        metadata=argument("Delete extracted content for good instead of archiving it.", query=True),
    )
    trust_clock: bool = field(
        default=False,
        metadata=argument("The clock is right, though it was put forward.", people_only=True),
    )


DELETE = Verb(
    name="delete",
    arguments=Delete,
    answer=Deleted,
    act=lambda context, name, asked: context.run(delete_session, name, permanent=asked.permanent),
    changes=True,
    route=route(
        "DELETE …", "delete", "Move a session and its children to the trash, or `permanent`ly away."
    ),
    about="""
    With the session go what was taken out of it, its history, its entries in sessions.json, and
    its child sessions of all generations. All of it comes back with `bsd trash restore`, for as
    long as the setting `trash_retention` says. A session in use is refused.
    """,
    examples=(
        "bsd delete main/4f2a",
        "bsd delete main/4f2a --permanent --yes",
    ),
)


TRASH_LIST = Verb(
    name="trash_list",
    arguments=ListTrash,
    answer=TrashList,
    ask=lambda context, _: list_trash(context),
    route=route(
        "GET /api/trash", "trash", "What can be brought back, and until when; the oldest first."
    ),
)


TRASH_RESTORE = Verb(
    name="restore_from_trash",
    arguments=RestoreFromTrash,
    answer=Returned,
    ask=lambda context, asked: context.run(restore_from_trash, asked.id),
    changes=True,
    route=route(
        "POST /api/trash/{id}/restore",
        "restore",
        "Bring a session back, with the children that went with it.",
    ),
)


TRASH_DELETE = Verb(
    name="delete_from_trash",
    arguments=DeleteFromTrash,
    answer=Removed,
    ask=lambda context, asked: context.run(delete_from_trash, asked.id),
    changes=True,
    route=route("DELETE /api/trash/{id}", "remove", "Delete one session in the trash for good."),
)


TRASH_EMPTY = Verb(
    name="empty_trash",
    arguments=EmptyTrash,
    answer=Emptied,
    ask=lambda context, _: context.run(empty_trash),
    changes=True,
    route=route("DELETE /api/trash", "empty", "Delete all that is in the trash for good."),
)


RETENTION = Verb(
    name="retention",
    arguments=CleanUp,
    answer=Retention,
    ask=lambda context, asked: context.run(
        run_retention,
        dry_run=asked.dry_run,
        forget=asked.forget,
        trust_clock=asked.trust_clock,
    ),
    changes=True,
    route=route(
        "POST /api/retention/run",
        "run_retention",
        "Archive or delete what was kept long enough, or say what would go.",
        tag="trash",
    ),
)


# --- archive ---


@dataclass(frozen=True, slots=True)
class ListGone:
    """Which sessions; None is those of all agents."""

    agent: str | None = field(default=None, metadata=argument(most=LONGEST_WORDS))
    limit: int = field(default=100, metadata=argument(least=1, most=MOST_GONE))


@dataclass(frozen=True, slots=True)
class SearchGone(SearchWords):
    """Words that must all be there."""

    read: bool = field(
        default=False, metadata=argument("Read first what the index lacks.", people_only=True)
    )


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session that is kept, by its name or its id in the archive."""

    agent: str
    session: str

    @property
    def text(self) -> str:
        """How a person names it."""
        return f"{self.agent}/{self.session}"


@dataclass(frozen=True, slots=True)
class ShowGone(KeptSession):
    """A session that is gone, by its name or its id in the archive; from which line on."""

    start: int = field(
        default=0, metadata=argument(least=0, most=_LAST_LINE, names={"http": "from"})
    )
    limit: int = field(default=FIRST_PAGE, metadata=argument(least=1, most=MOST_ENTRIES))


@dataclass(frozen=True, slots=True)
class BringBackGone(KeptSession):
    """A session that is gone, by its name or its id in the archive."""

    renamed: str | None = field(
        default=None,
        metadata=argument(
            "Bring it back under this name.",
            metavar="AGENT/SESSION",
            most=LONGEST_WORDS,
            names={"http": "as", "cli": "as"},
        ),
    )


@dataclass(frozen=True, slots=True)
class ForgetKept(KeptSession):
    """A session, gone or not, and which of its entries; None is all that is kept of it."""

    only: str | None = field(
        default=None,
        metadata=argument(
            "Only what is kept of this entry.",
            most=LONGEST_WORDS,
            query=True,
            names={"http": "entry"},
        ),
    )


@dataclass(frozen=True, slots=True)
class KeepCopies:
    """Which sessions are copied, with those that are parts of them; none: all of all agents."""

    sessions: tuple[str, ...] = field(
        default=(), metadata=argument(metavar="[AGENT/SESSION]...", positional=True)
    )
    dry_run: bool = field(
        default=False, metadata=argument("Say which would be copied; change nothing.")
    )


ARCHIVE_LIST = Verb(
    name="archive_list",
    arguments=ListGone,
    answer=GoneList,
    ask=lambda context, asked: list_archive(context, agent=asked.agent, limit=asked.limit),
    route=route(
        "GET /api/archive",
        "archive",
        "Sessions that their program has deleted, and what all copies of sessions take.",
    ),
)


ARCHIVE_KEEP = Verb(
    name="archive_keep",
    arguments=KeepCopies,
    answer=CopiesKept,
    ask=lambda context, asked: context.run(copy_sessions, asked.sessions, dry_run=asked.dry_run),
    changes=True,
)


ARCHIVE_SEARCH = Verb(
    name="archive_search",
    arguments=SearchGone,
    answer=FoundGone,
    ask=lambda context, asked: context.query(
        search_archive, asked.words, agent=asked.agent, limit=asked.limit, read=asked.read
    ),
    reads=True,
    route=route(
        "GET /api/archive/search",
        "archive_search",
        "Entries of sessions that are gone, as far as the index of words knows them.",
    ),
)


ARCHIVE_SHOW = Verb(
    name="archive_show",
    arguments=ShowGone,
    answer=GoneEntries,
    ask=lambda context, asked: context.query(
        show_archived, asked.text, start=asked.start, limit=asked.limit
    ),
    reads=True,
    route=route(
        "GET /api/archive/{agent}/{session}",
        "archive_show",
        "A session that is gone, and a page of its entries.",
    ),
)


ARCHIVE_BRING_BACK = Verb(
    name="archive_bring_back",
    arguments=BringBackGone,
    answer=BroughtBack,
    ask=lambda context, asked: context.run(bring_back, asked.text, renamed=asked.renamed),
    changes=True,
    route=route(
        "POST /api/archive/{agent}/{session}/bring-back",
        "archive_bring_back",
        "Put a session that is gone where its program finds it, with all that belongs to it.",
    ),
)


ARCHIVE_FORGET = Verb(
    name="archive_forget",
    arguments=ForgetKept,
    answer=Forgotten,
    ask=lambda context, asked: context.run(forget, asked.text, entry=asked.only),
    changes=True,
    route=route(
        "DELETE /api/archive/{agent}/{session}",
        "archive_forget",
        "Delete for good all that is kept of a session, or of one of its entries.",
    ),
)


# --- checks ---


@dataclass(frozen=True, slots=True)
class Verify:
    """Of all sessions, and all that was taken out of them."""

    repair: bool = field(default=False, metadata=argument("Mend what can be mended."))


VERIFY = Verb(
    name="verify",
    arguments=Verify,
    answer=Verification,
    ask=lambda context, asked: context.run(verify, repair=asked.repair),
    changes=True,
    about="""
    Every placeholder has a file whose hash is right, every file is indexed, nothing is in flight.
    --repair mends what can be mended and lists the rest. Exit code 1 if something is left.
    """,
    examples=("bsd verify", "bsd verify --repair"),
)


@dataclass(frozen=True, slots=True)
class Examine:
    """This machine, and one root. What root has to `repair` is refused, where it was not done."""

    repair: bool = field(
        default=False, metadata=argument("As root: give its owner what root made there.")
    )


def _diagnose(context: ActionContext, asked: Examine) -> Examined:
    try:
        _ = context.layout
    except BsdError as problem:
        return diagnose_without_root(problem)
    return diagnose(context, repair=asked.repair)


DOCTOR = Verb(
    name="doctor",
    arguments=Examine,
    answer=Examined,
    ask=_diagnose,
    about="""
    Looks at owner and permissions, settings, what the file system guarantees, free space, inotify
    limits, locks, agents that moved to SQLite, and the store. Changes nothing, unless --repair is
    given by root: then what root has made in another user's root is that user's. Exit code 1 if a
    check fails; warnings do not count.
    """,
    examples=(
        "bsd doctor",
        "sudo bsd --root /home/ada/.openclaw doctor --repair",
        "bsd doctor --json | jq '.checks[] | select(.level != \"ok\")'",
    ),
)
