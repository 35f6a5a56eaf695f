"""Full-text search: asks the index, and brings it up to date (`indexing`) where a caller waits.

The index says in which lines words are; their text is read from session, store or archive. It also
says which files the calls of each session name. The
filter of lists (`SessionFilter`) finds sessions by words in their names, titles and text. Text that
is not in the index is found by `scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Literal

import structlog

from bsd.core.errors import BsdError, Busy, Invalid, NotFound
from bsd.core.files import write_private
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions, is_deleted, open_or_snapshot
from bsd.maintenance.indexing import Due, LineReader, LineText, find_due, has_changed, read_session
from bsd.maintenance.wanted_sessions import WantedSessions, wanted_by_index
from bsd.sessions.session import format_of
from bsd.store.contents import contents_of
from bsd.store.file_uses import UsedFile
from bsd.store.search import (
    Known,
    KnownTitle,
    SearchHit,
    SearchIndex,
    ask,
    digest_of,
    use,
)
from bsd.store.search_deletion import drop_for_good
from bsd.store.search_filter import NO_FILTER, SearchFilter
from bsd.store.search_rows import FoundRow
from bsd.store.search_words import Matcher, Snippet, indexable, match_expression, terms_of
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.touched import PathPattern
from bsd.transcripts.reader import InBlocks, Line

_log = structlog.stdlib.get_logger(module="search")
_retention_log = structlog.stdlib.get_logger(module="retention")

Progress = Callable[[int, int], None]  # bytes read, of so many
Failed = Callable[[SessionName, BsdError], None]  # called for each session that cannot be read
# Some of the lines that the index names may be gone by now, or be lines of one entry.
_SPARE = 20
# The index does not know which text was taken out: so many lines are looked at for live ones.
_MOST_LOOKED_AT = 500
# Words that are in no title are looked for in the text in at most so many combinations.
_MOST_QUESTIONS = 8
NO_INDEX = "the search index is switched off (search_index is false)"


# --- entries ---


def search(  # noqa: PLR0913 - wishes, each by its name
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    progress: Progress | None = None,
    failed: Failed | None = None,
    has_words: bool = True,
    wanted: SearchFilter = NO_FILTER,
) -> list[SearchHit]:
    """Return entries that hold all the words, the best first; the index is updated before.

    A session that cannot be read stops no other.

    Args:
        has_words: the setting `search_index`. If it is False, nothing is found, and the index
            loses its words.
        wanted: conditions that entries have to meet.

    Raises:
        Invalid: there is no word in `words`.
        Unavailable: SQLite has no FTS5, the disk is full.
        Busy: another process uses the index.
    """
    match_expression(words)  # before the work, not after it

    def work(index: SearchIndex) -> list[FoundRow]:
        index.follow_setting(has_words)
        if not has_words:
            return []
        _bring_up_to_date(layout, index, agent, progress, failed)
        return _rows_wanted(layout, index, words, agent, limit, wanted)

    return hits_of(layout, use(layout.search_db, work), words, limit, live=wanted.is_live)


def bring_up_to_date(
    layout: Layout,
    *,
    agent: str | None = None,
    progress: Progress | None = None,
    failed: Failed | None = None,
    has_words: bool = True,
) -> None:
    """Read into the index what is new; raises as `search`, which describes the arguments."""

    def work(index: SearchIndex) -> None:
        index.follow_setting(has_words)
        if has_words:
            _bring_up_to_date(layout, index, agent, progress, failed)

    use(layout.search_db, work)


def _bring_up_to_date(
    layout: Layout,
    index: SearchIndex,
    agent: str | None,
    progress: Progress | None,
    failed: Failed | None,
) -> None:
    due, gone, _ = find_due(layout, index, agent)
    if gone:
        with index.change():
            dropped = sum(map(index.forget, gone))
        if dropped:
            index.sweep()
    _read_all(layout, index, due, progress, failed)
    if index.is_due_to_be_swept():
        index.sweep()


def search_as_it_is(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    wanted: SearchFilter = NO_FILTER,
) -> list[SearchHit]:
    """As `search`, in the index as it is; no session is read as a whole."""
    match_expression(words)
    none: list[FoundRow] = []

    def question(index: SearchIndex) -> list[FoundRow]:
        return _rows_wanted(layout, index, words, agent, limit, wanted)

    return hits_of(layout, ask(layout.search_db, question, none), words, limit, live=wanted.is_live)


def _rows_wanted(
    layout: Layout,
    index: SearchIndex,
    words: str,
    agent: str | None,
    limit: int,
    wanted: SearchFilter,
) -> list[FoundRow]:
    """Return the lines that meet the conditions; `hits_of` looks whether their text is live."""
    if wanted.needs_all:
        return []
    among = wanted_by_index(index, agent, wanted)
    apart = None
    if wanted.of_gone is not None:
        gone = _gone_sessions(layout, agent)
        if not wanted.of_gone:
            apart = gone
        else:
            among = set(gone) if among is None else among & set(gone)
    return index.search(
        words,
        agent=agent,
        limit=max(limit + _SPARE, _MOST_LOOKED_AT if wanted.is_live else 0),
        among=among,
        apart=apart,
        wanted=wanted,
    )


def _gone_sessions(layout: Layout, agent: str | None) -> list[SessionName]:
    return [copy.name for copy in deleted_sessions(layout, agent) if is_deleted(layout, copy.name)]


def files_named(
    layout: Layout,
    path: str,
    *,
    agent: str | None = None,
    update: bool = False,
    progress: Progress | None = None,
    failed: Failed | None = None,
    has_words: bool = True,
) -> list[UsedFile]:
    """Return the files that calls name and whose paths end with `path`, in no order.

    Args:
        path: whole components, without case; a `*` at its end stands for any rest of a name.
        update: bring the index up to date before.
        has_words: the setting `search_index`; if it is False, no file is known.

    Raises:
        Invalid: no file has this path.
        Unavailable: SQLite has no FTS5, the disk is full.
        Busy: another process uses the index.
    """
    pattern = PathPattern(path)
    if not pattern.name:
        raise Invalid("there is no path to search for", hint="bsd search --file src/auth.py")

    def work(index: SearchIndex) -> list[UsedFile]:
        if update:
            index.follow_setting(has_words)
            if has_words:
                _bring_up_to_date(layout, index, agent, progress, failed)
        return index.files_named(pattern, agent)

    none: list[UsedFile] = []
    found = use(layout.search_db, work) if update else ask(layout.search_db, work, none)
    exclusions = layout.exclusions()
    if not exclusions:
        return found
    parsed = [(SessionName.parse(each.session), each) for each in found]
    return [each for name, each in parsed if not exclusions.session(name.agent, name.session)]


def search_gone(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    read: bool = False,
    progress: Progress | None = None,
) -> list[SearchHit]:
    """Return entries of sessions that are gone, the best first; raises as `search`.

    Searches the index; with `read` the sessions that it does not know yet are read before.
    """
    match_expression(words)
    gone = _gone_sessions(layout, agent)

    def work(index: SearchIndex) -> list[FoundRow]:
        if read:
            due = find_due(layout, index, agent).due
            _read_all(layout, index, [each for each in due if each.name in gone], progress, None)
        return index.search(words, agent=agent, limit=limit + _SPARE, among=gone)

    none: list[FoundRow] = []
    found = use(layout.search_db, work) if read else ask(layout.search_db, work, none)
    return hits_of(layout, found, words, limit)


def _read_all(
    layout: Layout,
    index: SearchIndex,
    due: list[Due],
    progress: Progress | None,
    failed: Failed | None,
) -> None:
    total, done = sum(each.size for each in due), 0
    for each in due:
        try:
            read_session(layout, index, each.name)
        except (NotFound, Busy):
            continue  # deleted or shortened meanwhile: the next search sees it as it is then
        except BsdError as problem:
            _log.warning(
                "A session cannot be searched", session=str(each.name), problem=problem.message
            )
            if failed is not None:
                failed(each.name, problem)
        done += each.size
        if progress is not None:
            progress(done, total)


def hits_of(
    layout: Layout,
    rows: list[FoundRow],
    words: str,
    limit: int,
    *,
    live: bool = False,
) -> list[SearchHit]:
    """Return the entries of these lines, each once, in their order.

    A line that does not hold the words any more is left out. A session that cannot be read is
    named without its text.

    Args:
        live: only entries whose words are not taken out of their sessions.
    """
    hits: dict[tuple[SessionName, str | int], SearchHit] = {}
    exclusions = layout.exclusions()
    if exclusions:  # the index may still know them
        rows = [
            row for row in rows if not exclusions.session(row.session.agent, row.session.session)
        ]
    with closing(Matcher(words)) as matcher:
        for start in range(0, len(rows), limit):
            some = rows[start : start + limit]
            by_session: dict[SessionName, list[FoundRow]] = {}
            for row in some:
                by_session.setdefault(row.session, []).append(row)
            made = {
                row: hit
                for name, its in by_session.items()
                for row, hit in _hits_in(layout, name, its, matcher, live=live)
            }
            for row in some:
                if (hit := made.get(row)) is not None:
                    hits.setdefault((hit.session, hit.entry or hit.index), hit)
            if len(hits) >= limit:
                break
    return list(hits.values())[:limit]


def _hits_in(
    layout: Layout,
    name: SessionName,
    rows: list[FoundRow],
    matcher: Matcher,
    *,
    live: bool,
) -> Iterator[tuple[FoundRow, SearchHit]]:
    try:
        with open_or_snapshot(layout, name) as source:
            reader = LineReader(layout, name, format_of(source, program_of(layout, name.agent)))
            texts = dict(_texts_of(source, reader, rows))
    except NotFound:
        return
    except (BsdError, OSError) as problem:
        _log.debug("What was found cannot be read", session=str(name), problem=str(problem))
        for row in rows:
            nothing = Snippet("", ())
            about = (row.score, row.role, row.time)
            yield row, SearchHit(name, None, row.line, "transcript", nothing, *about)
        return
    for row, text in texts.items():
        snippet = matcher.snippet(text.text)
        if snippet is None:
            continue
        inline = text.inline == text.text or matcher.snippet(text.inline) is not None
        where: Literal["transcript", "extracted"] = "transcript" if inline else "extracted"
        if live and not inline:
            continue
        entry = None if text.entry is None else indexable(text.entry)
        about = (row.score, row.role, row.time)
        yield row, SearchHit(name, entry, text.line, where, snippet, *about)


def _texts_of(
    source: InBlocks, reader: LineReader, rows: list[FoundRow]
) -> Iterator[tuple[FoundRow, LineText]]:
    """Yield the lines, where they were or, if the session was rewritten, by their numbers."""
    moved = {}
    for row in rows:
        line = _line_at(source, row)
        text = None if line is None else reader.read(line)
        if text is not None and digest_of(text.text) == row.digest:
            yield row, text
        else:
            moved[row.line] = row
    if not moved:
        return
    last = max(moved)
    for line in source.lines():
        if line.index in moved and (text := reader.read(line)) is not None:
            yield moved[line.index], text
        if line.index >= last:
            return


def _line_at(source: InBlocks, row: FoundRow) -> Line | None:
    if row.offset >= source.identity.size:
        return None
    if row.offset and source.read(row.offset - 1, 1) != b"\n":
        return None
    return next(source.lines(row.offset, row.line), None)


# --- sessions ---


def by_title(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    but: Collection[SessionName] = (),
    wanted: SearchFilter = NO_FILTER,
) -> list[tuple[SessionName, str]]:
    """Return sessions whose titles hold all the words, with the titles; none is read as a whole.

    Sessions that are gone come last.

    Args:
        but: sessions that were found by their text: most titles are the first question asked.
        wanted: conditions; of a title only those count that are of its session, and a condition
            that no title meets (a role, text that was taken out) leaves none.
    """
    if wanted.role or wanted.session or wanted.needs_all:
        return []
    sessions = WantedSessions(layout, agent, wanted)
    terms = [term.strip('"*') for term in terms_of(words.casefold())]

    def fits(name: SessionName, title: str) -> bool:
        return name not in but and all(term in title.casefold() for term in terms)

    def titled() -> Iterator[tuple[SessionName, str]]:
        if not wanted.of_gone:
            for name, title in catalog.titled(
                layout, agent, since=wanted.since, until=wanted.until
            ):
                with suppress(OSError, BsdError):  # it has just gone
                    if fits(name, title) and sessions.has(name, layout.session_file(name).lstat()):
                        yield name, title
        if wanted.of_gone is not False:
            for name, title, directory in _titles_in_index(layout, terms, agent, wanted):
                is_wanted = fits(name, title) and sessions.has_gone(name, directory)
                if is_wanted and is_deleted(layout, name):
                    yield name, title

    return list(islice(titled(), limit))


def _titles_in_index(
    layout: Layout, terms: list[str], agent: str | None, wanted: SearchFilter
) -> Iterator[tuple[SessionName, str, str | None]]:
    """Yield titles that may hold these words, of sessions that are gone or not.

    With each, the directory in which its session began.
    """
    titles: dict[str, KnownTitle] = {}
    with suppress(BsdError, OSError):  # titles of other sessions are better than none
        titles = ask(layout.search_db, lambda index: index.titles_with(terms, agent), titles)
    exclusions = layout.exclusions()
    for text, known in titles.items():
        name = SessionName.parse(text)
        fits = wanted.is_time((known.newest_ms or known.mtime / 1e6) / 1000)
        if known.title and fits and not exclusions.session(name.agent, name.session):
            directory = known.directory and known.directory.decode(errors="replace")
            yield name, known.title.decode(errors="replace"), directory or None


def sessions_with(layout: Layout, words: str, agent: str | None = None) -> set[SessionName]:
    """Return the sessions with an entry that holds all words, or words that begin so.

    Searches the index; nothing is read or created. Raises Unavailable, Busy.
    """

    def question(index: SearchIndex) -> set[str]:
        try:
            return index.sessions_with(words, agent=agent)
        except Invalid:  # signs, or too many words
            return set()

    none: set[str] = set()
    # Those that are excluded, the list leaves out.
    return {SessionName.parse(name) for name in ask(layout.search_db, question, none)}


class SessionFilter:
    """The words by which a list of sessions is filtered; one that no name holds may be text.

    `problem` says why text was not looked at, if it was not.
    """

    def __init__(self, layout: Layout, words: str | None, agent: str | None) -> None:
        self.terms = terms_of((words or "").casefold())
        self.problem: str | None = None
        self._layout = layout
        self._agent = agent
        self._found: dict[tuple[str, ...], set[SessionName]] = {}
        self._models: dict[str, str] = {}
        if self.terms:
            with self._noting_trouble():
                self._models = ask(layout.search_db, lambda index: index.models(agent), {})

    def fits(self, name: SessionName, called: Iterable[str | None]) -> bool:
        """Return whether each word is in the session's text, name, models, or in `called`."""
        if not self.terms:
            return True
        names = " ".join(filter(None, called))
        known = f"{name} {names} {self._models.get(str(name), '')}".casefold()
        left = tuple(term for term in self.terms if term.strip('"') not in known)
        return not left or name in self._sessions_with(left)

    def _sessions_with(self, terms: tuple[str, ...]) -> set[SessionName]:
        if terms not in self._found and len(self._found) >= _MOST_QUESTIONS:
            terms = tuple(self.terms)
        if terms not in self._found:
            self._found[terms] = set()
            with self._noting_trouble():
                if not ask(self._layout.search_db, lambda index: index.has_words, nothing=True):
                    self.problem = NO_INDEX
                self._found[terms] = sessions_with(self._layout, " ".join(terms), self._agent)
        return self._found[terms]

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        # Sessions that are found by their names are better than no answer.
        try:
            yield
        except BsdError as trouble:
            self.problem = trouble.message


# --- deleted content leaves the index, even if the process that deletes is killed ---


@contextmanager
def letting_go(layout: Layout, deleted: Mapping[str, list[str]]) -> Iterator[None]:
    """Delete stored originals inside this context; then their text leaves the index.

    Files go first, then their words. In between a mark lies beside the settings: after a crash,
    `catch_up` has all sessions read again of which text was read from store or archive.

    Args:
        layout: of the root.
        deleted: gets the refs that are deleted, by the name of the store's directory.
    """
    marked = False
    if layout.search_db.exists():
        with suppress(OSError):  # deleting must not need room
            write_private(layout.letting_go, b"")
            marked = True
    forgotten = True
    try:
        yield
    finally:
        if gone := [name for name, refs in deleted.items() if refs]:
            forgotten = forget_stored(layout, gone)
        contents_of(layout).changed()
    if marked and forgotten:
        layout.letting_go.unlink(missing_ok=True)


def catch_up(layout: Layout) -> None:
    """Finish the forgetting of a killed process; a problem is logged, and left to the next run."""
    if not layout.letting_go.exists():
        return

    def drop(index: SearchIndex) -> None:
        with index.change():
            index.read_again()
        due = find_due(layout, index).due
        for known in index.known_among(str(each.name) for each in due).values():
            _read_or_forget(layout, index, known)

    try:
        forgotten = drop_for_good(layout.search_db, drop)
    except (BsdError, OSError) as problem:
        _retention_log.warning(
            "Deleted text may still be in the search index", problem=str(problem)
        )
        return
    if forgotten:
        layout.letting_go.unlink(missing_ok=True)


def forget_stored(layout: Layout, gone: Iterable[str]) -> bool:
    """Take the text of deleted originals out of the index, for good.

    Their sessions are read again, if text of them was read from store or archive, or if they are
    not as they were read: then it may have stood in their lines.

    Args:
        layout: of the root.
        gone: the names of directories of stores that have lost files.

    Returns:
        Whether there was no problem; a problem is logged.
    """

    def drop(index: SearchIndex) -> None:
        for store in gone:
            if (known := index.known_by_store(store)) is not None:
                if known.away:
                    with index.change():
                        index.read_again(known.name)
                _read_or_forget(layout, index, known)

    return drop_for_good(layout.search_db, drop)


def _read_or_forget(layout: Layout, index: SearchIndex, known: Known) -> None:
    """Read a session again; one that cannot be read is forgotten."""
    try:
        if known.away or has_changed(layout, known):
            read_session(layout, index, SessionName.parse(known.name))
    except (BsdError, OSError) as problem:
        _log.debug("Forgotten, as it cannot be read", session=known.name, problem=str(problem))
        with index.change():
            index.forget(known.name)
