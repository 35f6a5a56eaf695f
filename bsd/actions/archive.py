"""The archive: sessions that their program has deleted are listed, shown, found, brought back.

And what is kept of a session, or of one entry, is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.actions.list_entries import FIRST_PAGE, MOST_ENTRIES, EntryRow, entry_row
from bsd.actions.list_sessions import LONGEST_WORDS
from bsd.actions.search import FoundEntry, SearchWords, found_entries
from bsd.actions.verb import RootHands, Verb, argument, route
from bsd.core.config import OFF
from bsd.core.definition import INTERNAL, Answer, contract
from bsd.core.errors import (
    BsdError,
    Conflict,
    Invalid,
    LeftAlone,
    NotFound,
    os_problem,
)
from bsd.core.formatting import iso_utc, lifetime_seconds
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.bring_back import BringBack, BroughtBack
from bsd.maintenance.copy_scope import CopyOutcome, CopyScope, CopyStatus
from bsd.maintenance.forgetting import Forgetting, Forgotten
from bsd.maintenance.keeping import Keeping, find_gone, gone_sessions
from bsd.maintenance.leftovers import kept_beside
from bsd.maintenance.search import search_gone
from bsd.planning.view import views
from bsd.store.copies import CopiedTranscript, SessionCopy
from bsd.store.copies_use import CopiesUse, copies_use
from bsd.store.extracted import SessionStore
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.programs import program_of

_LAST_LINE = 10**9  # no session has more
MOST_GONE = 1000


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


@dataclass(frozen=True, kw_only=True)
class GoneSession(Answer):
    """A session that its program has deleted. Sizes are bytes, times ISO 8601."""

    id: str = field(metadata=contract("Its name, and what tells it from others of that name"))
    session: str
    agent: str
    title: str | None
    parent: str | None = field(metadata=contract("The session that it is a part of"))
    updated: str = field(metadata=contract("When its program last wrote to it"))
    kept_at: str
    gone_at: str | None = field(metadata=contract("When that was noticed; null: just now"))
    expires_at: str | None
    size: int = field(metadata=contract("Of its files, without what was taken out of them"))
    kept_bytes: int = field(metadata=contract("What the copy takes"))
    files: int
    put_aside: str | None = field(
        metadata=contract("The file as which its program has put it aside")
    )


@dataclass(frozen=True, kw_only=True)
class GoneList(Answer):
    """Sessions that can be brought back, those used last first; and what all copies take."""

    keep: str = field(metadata=contract("The setting archive_sessions"))
    sessions: tuple[GoneSession, ...]
    more: int = field(metadata=contract("How many there are beside these"))
    copies: CopiesUse = field(metadata=contract("Of all sessions, those in their places, too"))


@dataclass(frozen=True, kw_only=True)
class GoneEntries(Answer):
    """A session that is gone, and a page of its entries."""

    session: GoneSession
    entries: tuple[EntryRow, ...]
    next: int | None = field(metadata=contract("The `from` of the next page"))


@dataclass(frozen=True, slots=True)
class FoundGone(Answer):
    """Entries of sessions that are gone, with all the words."""

    query: str
    results: tuple[FoundEntry, ...]


@dataclass(frozen=True, slots=True)
class CopiedSession(Answer):
    """What became (with `dry_run`: would become) of a session. `size`: bytes of its transcript."""

    session: str
    status: CopyStatus
    size: int
    reason: str | None = field(default=None, metadata=contract(omit=True))
    hint: str | None = field(default=None, metadata=contract(omit=True))
    error: type[BsdError] | None = field(default=None, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class CopiesKept(Answer):
    """What became of each session, in the order in which their programs will delete them."""

    dry_run: bool
    sessions: tuple[CopiedSession, ...]
    copied: int
    bytes_read: int
    bytes_packed: int = field(metadata=contract("Of what was read, what no copy had yet"))


def gone_session(layout: Layout, copy: SessionCopy, keep: str) -> GoneSession:
    """What doors are told of a copy; `keep` is the setting `archive_sessions`."""
    lifetime = None if keep == OFF else lifetime_seconds(keep)
    expires = None
    if lifetime is not None and copy.gone_at is not None:
        expires = iso_utc(copy.gone_at + lifetime)
    aside = next(iter(kept_beside(layout, copy.name)), None)
    return GoneSession(
        id=copy.id,
        session=str(copy.name),
        agent=copy.name.agent,
        title=copy.title,
        parent=copy.parent,
        updated=iso_utc(copy.transcript.was.mtime_ns / 1e9),
        kept_at=iso_utc(copy.kept_at),
        gone_at=None if copy.gone_at is None else iso_utc(copy.gone_at),
        expires_at=expires,
        size=copy.size,
        kept_bytes=copy.packed,
        files=len(copy.files),
        put_aside=None if aside is None else str(aside),
    )


def _keep(hands: RootHands, asked: KeepCopies) -> CopiesKept:
    keep = hands.config.current.archive_sessions
    if keep.strip().casefold() == OFF:
        raise Conflict(
            "no copies are kept: the setting archive_sessions is off",
            hint="`bsd config set archive_sessions 180d`",
        )
    layout = hands.layout
    names = list(dict.fromkeys(map(SessionName.parse, asked.sessions)))
    budget = hands.trash(writes=not asked.dry_run).budget
    found: list[CopiedSession] = []

    def stopping() -> bool:
        hands.progressed(0)
        return False

    def told(outcome: CopyOutcome) -> None:
        found.append(_copied(outcome))

    scope = CopyScope(at_once=True, names=frozenset(names), dry_run=asked.dry_run)
    done = Keeping(layout, keep, budget, stopping=stopping, scope=scope, told=told).run()
    known = {one.session for one in found}
    found += [_not_found(layout, name) for name in names if str(name) not in known]
    copied = sum(one.status is CopyStatus.COPIED for one in found)
    return CopiesKept(asked.dry_run, tuple(found), copied, done.read, done.packed)


def _copied(outcome: CopyOutcome) -> CopiedSession:
    name, problem = str(outcome.session), outcome.problem
    if problem is None:
        return CopiedSession(name, outcome.status, outcome.size)
    why, hint, kind = problem.message, problem.hint, type(problem)
    return CopiedSession(name, outcome.status, outcome.size, why, hint, kind)


def _not_found(layout: Layout, name: SessionName) -> CopiedSession:
    """Why a session that was named is not among those of which copies are kept here."""
    try:
        layout.session_file(name).lstat()
        problem: BsdError = LeftAlone(
            f"no copy of {name} is kept here: another root serves its agent, or its sessions are"
            " in a database",
            hint="`bsd sources` says which root serves what",
        )
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"looking at {name}")
    failed = CopyStatus.FAILED
    return CopiedSession(str(name), failed, 0, problem.message, problem.hint, type(problem))


def _list(hands: RootHands, asked: ListGone) -> GoneList:
    layout, keep = hands.layout, hands.config.current.archive_sessions
    found = gone_sessions(layout, asked.agent)
    shown = tuple(gone_session(layout, copy, keep) for copy in found[: asked.limit])
    more = len(found) - len(shown)
    return GoneList(keep=keep, sessions=shown, more=more, copies=copies_use(layout))


def _show(hands: RootHands, asked: ShowGone) -> GoneEntries:
    layout = hands.layout
    copy = find_gone(layout, asked.text)
    told = gone_session(layout, copy, hands.config.current.archive_sessions)
    source = CopiedTranscript(copy)
    with source:
        found = program_of(layout, copy.name.agent).detect(line.raw for line in source.lines())
        fmt = found.reads if isinstance(found, NotOurs) else found
        if fmt is None:
            why = found.reason if isinstance(found, NotOurs) else "nobody knows its lines"
            raise LeftAlone(
                f"{copy.name} cannot be shown: {why}",
                hint=f"`bsd archive bring-back {copy.id}` brings it back as it was",
            )
        rows = list(views(source, fmt, start=asked.start, limit=asked.limit + 1))
    store = SessionStore(layout, copy.name)
    entries = tuple(entry_row(store, fmt, row) for row in rows[: asked.limit])
    after = rows[asked.limit].index if len(rows) > asked.limit else None
    return GoneEntries(session=told, entries=entries, next=after)


def _search(hands: RootHands, asked: SearchGone) -> FoundGone:
    hits = search_gone(
        hands.layout,
        asked.words,
        agent=asked.agent,
        limit=asked.limit,
        read=asked.read,
        progress=hands.progressed,
    )
    return FoundGone(asked.words, found_entries(hands.layout, hits))


def _bring_back(hands: RootHands, asked: BringBackGone) -> BroughtBack:
    layout = hands.layout
    copy = find_gone(layout, asked.text)
    renamed = SessionName.parse(asked.renamed) if asked.renamed else None
    budget = hands.trash(writes=True).budget
    return BringBack(layout, copy, renamed=renamed, actor=hands.actor, budget=budget).run()


def _forget(hands: RootHands, asked: ForgetKept) -> Forgotten:
    trash = hands.trash(writes=True)
    keep = hands.config.current.trash_retention
    forgetting = Forgetting(hands.layout, trash_keep=keep, actor=hands.actor, budget=trash.budget)
    name, copy = kept_session(hands.layout, asked.text)
    if asked.only is None:
        done = forgetting.session(name, copy)
    elif copy is not None:
        raise Invalid(
            "an entry is forgotten in all that is kept under a name", hint=f"name it {name}"
        )
    else:
        done = forgetting.entry(name, asked.only)
    hands.cleaned()
    return done


def kept_session(layout: Layout, text: str) -> tuple[SessionName, SessionCopy | None]:
    """Which session is meant: by its name, or one copy by its id; raises Invalid."""
    try:
        copy = find_gone(layout, text)
    except (NotFound, Conflict, Invalid):  # not gone, or several: then all that is kept of it
        return SessionName.parse(text), None
    return copy.name, copy if copy.id == text else None


ARCHIVE_LIST = Verb(
    name="archive_list",
    arguments=ListGone,
    answer=GoneList,
    ask=_list,
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
    ask=_keep,
    changes=True,
)
ARCHIVE_SEARCH = Verb(
    name="archive_search",
    arguments=SearchGone,
    answer=FoundGone,
    ask=_search,
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
    ask=_show,
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
    ask=_bring_back,
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
    ask=_forget,
    changes=True,
    route=route(
        "DELETE /api/archive/{agent}/{session}",
        "archive_forget",
        "Delete for good all that is kept of a session, or of one of its entries.",
    ),
)
