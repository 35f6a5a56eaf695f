"""Full-text search in the index, which is brought up to date (`indexing`) if the caller can wait.

The index tells which lines contain the words; the text of these lines is read from session, store
or archive. The index also tells which files the calls of each session name. `SessionFilter`, the
filter of lists, finds sessions by words in their names, titles and texts. Text that is not in the
index is found by `scan`.
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
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.agents.touched import PathPattern
from bsd.transcripts.reader import InBlocks, Line

_log = structlog.stdlib.get_logger(module="search")
_retention_log = structlog.stdlib.get_logger(module="retention")

Progress = Callable[[int, int], None]  # called with the bytes read so far and the total
Failed = Callable[[SessionName, BsdError], None]  # called for each session that cannot be read
# Extra rows: some lines in the index may no longer exist, or several may belong to an entry.
_SPARE = 20
# Limit of the lines read to find live text, because the index does not know what was extracted.
_MOST_LOOKED_AT = 500
# Limit of the combinations of words for which a list of sessions searches the text.
_MOST_QUESTIONS = 8
NO_INDEX = "the search index is switched off (search_index is false)"


# --- entries ---


def search(  # noqa: PLR0913 - options, each passed by name
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
    """Update the index, then return the entries that contain all words, the best first.

    Sessions that cannot be read are skipped.

    Args:
        has_words: the setting `search_index`. If it is False, the result is empty, and the words
            are removed from the index.
        wanted: conditions that entries must meet.

    Raises:
        Invalid: `words` contains no word.
        Unavailable: SQLite has no FTS5, or the disk is full.
        Busy: another process uses the index.
    """
    match_expression(words)  # raises Invalid before the index is updated

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
    """Read new and changed sessions into the index; arguments and errors as for `search`."""

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
    """Search the index in its present state; otherwise as `search`. Only found lines are read."""
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
    """Return the lines that meet the conditions; `hits_of` tests whether their text is live."""
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
    """Return the files that calls name and whose paths end with `path`, in no particular order.

    Args:
        path: whole components of a path, case-insensitive; a `*` at the end matches the rest of
            a name.
        update: bring the index up to date first.
        has_words: the setting `search_index`; if it is False, no files are known.

    Raises:
        Invalid: no file can have this path.
        Unavailable: SQLite has no FTS5, or the disk is full.
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
    """Return entries of deleted sessions, the best first; raises as `search`.

    `read`: first read deleted sessions that the index does not know yet.
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
            continue  # deleted or shortened meanwhile; the next search reads it again
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
    """Return the entries of these lines, each once, in the order of the lines.

    A line that no longer contains the words is left out. If a session cannot be read, its hits have
    no text.

    Args:
        live: only entries whose words are still inline in their sessions.
    """
    hits: dict[tuple[SessionName, str | int], SearchHit] = {}
    exclusions = layout.exclusions()
    if exclusions:  # the index may still have rows of excluded sessions
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
        _log.debug("Found lines cannot be read", session=str(name), problem=str(problem))
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
    """Yield the lines of these rows, found by offset or, after a rewrite, by line number."""
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
    if row.offset >= source.size:
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
    """Return the sessions whose titles contain all words, with the titles; deleted sessions last.

    Args:
        but: sessions to leave out, found by their text; most titles repeat the first prompt.
        wanted: conditions; with those that a title cannot meet (a role, extracted text), the
            result is empty.
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
                with suppress(OSError, BsdError):  # just deleted
                    if fits(name, title) and sessions.has(name, stat_transcript(layout, name)):
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
    """Yield titles that may contain these words, of existing and deleted sessions.

    Each comes with its session and the directory in which the session began.
    """
    titles: dict[str, KnownTitle] = {}
    with suppress(BsdError, OSError):  # the titles of existing sessions are still found
        titles = ask(layout.search_db, lambda index: index.titles_with(terms, agent), titles)
    exclusions = layout.exclusions()
    for text, known in titles.items():
        name = SessionName.parse(text)
        fits = wanted.is_time((known.newest_ms or known.mtime / 1e6) / 1000)
        if known.title and fits and not exclusions.session(name.agent, name.session):
            directory = known.directory and known.directory.decode(errors="replace")
            yield name, known.title.decode(errors="replace"), directory or None


def sessions_with(layout: Layout, words: str, agent: str | None = None) -> set[SessionName]:
    """Return the sessions with an entry that contains all words or words beginning with them.

    Searches the index in its present state and creates no index. Raises Unavailable, Busy.
    """

    def question(index: SearchIndex) -> set[str]:
        try:
            return index.sessions_with(words, agent=agent)
        except Invalid:  # only punctuation, or too many words
            return set()

    none: set[str] = set()
    # The caller's list leaves out excluded sessions.
    return {SessionName.parse(name) for name in ask(layout.search_db, question, none)}


class SessionFilter:
    """The words that filter a list of sessions, found in names or in the sessions' texts.

    `problem`: why texts were not searched; None if they were.
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
        """Return True if each word is in the session's text, name or models, or in `called`."""
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
        # Sessions found by name are better than an error.
        try:
            yield
        except BsdError as trouble:
            self.problem = trouble.message


# --- removing deleted content from the index, even if the deleting process is killed ---


@contextmanager
def letting_go(layout: Layout, deleted: Mapping[str, list[str]]) -> Iterator[None]:
    """Delete stored originals inside this context; at its end, their text leaves the index.

    The files are deleted first, then their words. Meanwhile a marker file lies beside the settings,
    so that after a crash `catch_up` reads all sessions again whose indexed text comes from store or
    archive.

    Args:
        layout: the root.
        deleted: filled by the caller with the deleted refs, by the name of the store's directory.
    """
    marked = False
    if layout.search_db.exists():
        with suppress(OSError):  # deletion must work on a full disk
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
    """Finish the work of a killed `letting_go`; log a problem and leave it to the next run."""
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
    """Remove the text of deleted originals from the index for good.

    Their sessions are read again if their indexed text comes partly from store or archive, or if
    the sessions have changed since, because the text may have been inline then.

    Args:
        layout: the root.
        gone: the names of the store directories that have lost files.

    Returns:
        True if all went well; a problem is logged.
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
    """Read a session into the index again; if it cannot be read, remove it from the index."""
    try:
        if known.away or has_changed(layout, known):
            read_session(layout, index, SessionName.parse(known.name))
    except (BsdError, OSError) as problem:
        _log.debug("Removed, as it cannot be read", session=known.name, problem=str(problem))
        with index.change():
            index.forget(known.name)
