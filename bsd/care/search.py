"""Full-text search: asks the index, and brings it up to date (`indexing`) where somebody waits.

And which sessions somebody looks for in a list: by words in their names and titles, or their text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bsd.care import catalog
from bsd.care.indexing import Due, due_as_it_is, find_due, has_changed, read_slice
from bsd.care.keeping import gone_sessions, is_gone
from bsd.foundation.errors import BsdError, Busy, Invalid, NotFound
from bsd.foundation.files import write_private
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger, traced
from bsd.store.archive import SessionArchive
from bsd.store.contents import contents_of
from bsd.store.search import (
    SearchHit,
    SearchIndex,
    ask,
    drop_for_good,
    match_expression,
    terms_of,
    use,
)
from bsd.store.search_file import Known

_log = get_logger("search")

Progress = Callable[[int, int], None]  # bytes read, of so many
Failed = Callable[[SessionName, BsdError], None]  # told of each session that cannot be read


@traced(_log)
def search(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    extracted_from: SessionName | None = None,
    progress: Progress | None = None,
    failed: Failed | None = None,
) -> list[SearchHit]:
    """Entries that hold all the words, the best first; the index is brought up to date before.

    With `extracted_from` only what was taken out of that session is looked at, and no other is
    read. A session that cannot be read stops no other. Raises Invalid (no word), Unavailable (no
    FTS5, disk full), Busy, ConfigError.
    """
    match_expression(words)  # before the work, not after it

    def work(index: SearchIndex) -> list[SearchHit]:
        if extracted_from is None:
            _follow(layout, index, agent, progress, failed)
        else:
            _read_all(layout, index, [due_as_it_is(layout, extracted_from)], progress, failed)
        return index.search(words, agent=agent, limit=limit, extracted_from=extracted_from)

    return use(layout.search_db, work)


def by_title(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    but: Collection[SessionName] = (),
) -> list[tuple[SessionName, str]]:
    """The sessions whose titles hold all the words, and these titles; none is read as a whole.

    `but` are those that were found by their text: most titles are what was first asked.
    """
    terms = [term.strip('"*') for term in terms_of(words.casefold())]
    found: list[tuple[SessionName, str]] = []
    for name, title in catalog.titled(layout, agent):
        if name not in but and all(term in title.casefold() for term in terms):
            found.append((name, title))
            if len(found) == limit:
                break
    return found


def search_as_it_is(
    layout: Layout, words: str, *, agent: str | None = None, limit: int = 20
) -> list[SearchHit]:
    """As `search`, in what the index knows already; nothing is read, and nothing is created."""
    match_expression(words)
    found: list[SearchHit] = []
    return ask(layout.search_db, lambda index: index.search(words, agent=agent, limit=limit), found)


def search_gone(
    layout: Layout,
    words: str,
    *,
    agent: str | None = None,
    limit: int = 20,
    read: bool = False,
    progress: Progress | None = None,
) -> list[SearchHit]:
    """Entries of sessions that are gone, the best first; raises as `search`.

    In what the index knows; with `read` what it does not know yet is read before.
    """
    match_expression(words)
    gone = [copy.name for copy in gone_sessions(layout, agent) if is_gone(layout, copy.name)]

    def work(index: SearchIndex) -> list[SearchHit]:
        if read:
            due = find_due(layout, index, agent).due
            _read_all(layout, index, [one for one in due if one.name in gone], progress, None)
        return index.search(words, agent=agent, limit=limit, among=gone)

    none: list[SearchHit] = []
    return use(layout.search_db, work) if read else ask(layout.search_db, work, none)


def sessions_with(layout: Layout, words: str, agent: str | None = None) -> set[SessionName]:
    """The sessions with an entry that holds all words, or such that begin so, as far as is known.

    Nothing is read, and nothing is created. Raises Unavailable, Busy.
    """

    def question(index: SearchIndex) -> set[str]:
        try:
            return index.sessions_with(words, agent=agent)
        except Invalid:  # signs, or too many words: no text is known by them
            return set()

    none: set[str] = set()
    return {SessionName.parse(name) for name in ask(layout.search_db, question, none)}


def models(layout: Layout, agent: str | None = None) -> dict[str, str]:
    """The models that wrote in each session, by the session's name, as far as is known."""
    return ask(layout.search_db, lambda index: index.models(agent), {})


def forget_stored(layout: Layout, gone: Mapping[str, Iterable[str]]) -> bool:
    """Take the text of deleted stored files (refs by store directory) out of the index, for good.

    A session that changed since it was read is read now: the text may have been in its lines when
    it was. A problem is logged; returns whether there was none.
    """

    def drop(index: SearchIndex) -> bool:
        known = False
        for store, refs in gone.items():
            with index.change():
                if (was := index.kept_in(store)) is None:
                    continue
                known = True
                index.forget_stored(store, refs)
            _catch_up(layout, index, was)
        return known

    return drop_for_good(layout.search_db, drop)


def _catch_up(layout: Layout, index: SearchIndex, was: Known) -> None:
    name = SessionName.parse(was.name)
    try:
        if has_changed(layout, was):
            _read_to_the_end(layout, index, Due(name))
    except (BsdError, OSError) as problem:
        _log.debug("Forgotten, as it cannot be read", session=was.name, problem=str(problem))
        with index.change():
            index.forget(was.name)


def _read_to_the_end(layout: Layout, index: SearchIndex, due: Due) -> None:
    """Read what is new in a session; raises NotFound, Busy, Forbidden."""
    more = True
    while more:
        with index.change():
            more = read_slice(layout, index, due)


def _follow(
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
            index.scrub()
    _read_all(layout, index, due, progress, failed)


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
            _read_to_the_end(layout, index, each)
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


# --- who is looked for ---

# Words that are in no title may be looked for in the text in so many combinations.
_MOST_QUESTIONS = 8


class SessionFilter:
    """What somebody looks for; a word that no name holds is looked for in the text."""

    def __init__(self, layout: Layout, words: str | None, agent: str | None) -> None:
        self.terms = terms_of((words or "").casefold())
        self._layout = layout
        self._agent = agent
        self._found: dict[tuple[str, ...], set[SessionName]] = {}
        self._models: dict[str, str] = {}
        self.problem: str | None = None
        if self.terms:
            with self._noting_trouble():
                self._models = models(layout, agent)

    def fits(self, name: SessionName, called: Iterable[str | None]) -> bool:
        """Whether each of them is in the session, or in its name, or in how it is `called`."""
        if not self.terms:
            return True
        said = " ".join(filter(None, called))
        known = f"{name} {said} {self._models.get(str(name), '')}".casefold()
        left = tuple(term for term in self.terms if term.strip('"') not in known)
        return not left or name in self._sessions_with(left)

    def _sessions_with(self, terms: tuple[str, ...]) -> set[SessionName]:
        if terms not in self._found and len(self._found) >= _MOST_QUESTIONS:
            terms = tuple(self.terms)
        if terms not in self._found:
            self._found[terms] = set()
            with self._noting_trouble():
                self._found[terms] = sessions_with(self._layout, " ".join(terms), self._agent)
        return self._found[terms]

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        # What is found by its name is better than no answer.
        try:
            yield
        except BsdError as trouble:
            self.problem = trouble.message


# --- what is deleted for good leaves the index, too, even if whoever deletes is killed ---

# Files go first, then their words. In between a mark lies beside the settings; who finds it later
# looks which words belong to files that are no more.


_retention_log = get_logger("retention")

_FINISHED = ".json"


@contextmanager
def letting_go(layout: Layout, deleted: Mapping[str, list[str]]) -> Iterator[None]:
    """While files are deleted; `deleted` fills with their refs, by directory of the store."""
    marked = layout.search_db.exists() and _mark(layout.letting_go)
    forgotten = True
    try:
        yield
    finally:
        if gone := {name: refs for name, refs in deleted.items() if refs}:
            forgotten = forget_stored(layout, gone)
        contents_of(layout).changed()
    if marked and forgotten:
        layout.letting_go.unlink(missing_ok=True)


def catch_up(layout: Layout) -> None:
    """Do what one who was killed has not come to; a problem is logged, and left to the next run."""
    if not layout.letting_go.exists():
        return
    try:
        nothing: dict[str, set[str]] = {}
        known = ask(layout.search_db, SearchIndex.all_stored, nothing)
        gone = {store: refs - _there(layout, store) for store, refs in known.items()}
        forgotten = forget_stored(layout, {store: refs for store, refs in gone.items() if refs})
    except (BsdError, OSError) as problem:
        _retention_log.warning(
            "Deleted text may still be in the search index", problem=str(problem)
        )
        return
    if forgotten:
        layout.letting_go.unlink(missing_ok=True)


def _there(layout: Layout, store: str) -> frozenset[str]:
    """The refs that a session's store and archive have; raises OSError."""
    directory = layout.extracted / store
    files = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    names = SessionArchive(layout.archive / store).names()
    return names.union(name.removesuffix(_FINISHED) for name in files)


def _mark(path: Path) -> bool:
    # Deleting must not need room: then words may stay, if it is killed in that moment.
    with suppress(OSError):
        write_private(path, b"")
        return True
    return False
