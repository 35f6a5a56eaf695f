"""What children are asked for beside extraction: verbs for doors, what is left half done, words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bsd.actions.list_entries import Outlines
from bsd.actions.verb import perform, verb_named
from bsd.core.config_file import ConfigService
from bsd.core.definition import Answer
from bsd.core.layout import Layout, SessionName
from bsd.daemon.child import Child
from bsd.maintenance.bring_back import sweep_returning
from bsd.maintenance.copy_scope import CopyScope
from bsd.maintenance.indexing import Due, ReadOn, find_due, read_some
from bsd.maintenance.interrupted import recover as recover_all
from bsd.maintenance.keeping import Keeping, KeptNow
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import reindex as mend
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.surgeon import Surgeon
from bsd.store.search import SearchIndex, use


def recover(child: Child) -> list[Recovered]:
    """Finish or undo what is in flight, deletes and restores of sessions included."""
    return recover_all(child.daemons)


def reindex(child: Child, name: SessionName) -> bool:
    """Mend the index of a session's store if it lacks a file; raises as `verify.reindex`."""
    return mend(child.layout, name, wait=0.0)


def find_unread(
    child: Child, after: str | None, most: int, wait: float
) -> tuple[list[Due], bool, str | None]:
    """Which sessions the search index lacks as they are, and whether some that are gone left it.

    It looks at agents `after` one, until `most` are found; up to which agent, comes last (None: to
    the end). Another bsd may have the index for `wait` seconds; raises as `search.use`.
    """
    has_words = child.config.current.search_index

    def look(index: SearchIndex) -> tuple[list[Due], bool, str | None]:
        index.follow_setting(has_words)
        due, gone, up_to = find_due(
            child.layout, index, after=after, most=most, going_on=lambda: child.progress(0)
        )
        if not gone:
            return due, False, up_to
        with index.change():
            return due, sum(map(index.forget, gone)) > 0, up_to

    return use(child.layout.search_db, look, wait=wait)


def read_words(
    child: Child, wanted: list[Due], seconds: float, budget: int, wait: float
) -> list[ReadOn]:
    """Read sessions into the search index, a slice of about `budget` bytes each, for a moment.

    The last one is said to have dropped words, too, if by now dead ones are worth to be swept.
    Another bsd may have the index for `wait` seconds; raises as `search.use`.
    """

    def read(index: SearchIndex) -> list[ReadOn]:
        turns = read_some(child.layout, index, wanted, seconds, budget)
        if turns and index.is_due_to_be_swept():
            turns[-1] = replace(turns[-1], dropped=True)
        return turns

    return use(child.layout.search_db, read, wait=wait)


def sweep_words(child: Child) -> None:
    """Take dead words out of the search index; raises as `search.use`."""

    def stopping() -> bool:
        child.progress(0)
        return False

    use(child.layout.search_db, lambda index: index.sweep(stopping))


def keep_sessions(child: Child, keep: str, *, first: bool = False) -> KeptNow:
    """Copy sessions idle into the archive; `keep` is the setting `archive_sessions`.

    `first`: only those that their program deletes by their age (`CopyScope`).
    """

    def stopping() -> bool:
        child.progress(0)
        return False

    sweep_returning(child.layout)
    scope = CopyScope(first=first)
    budget = child.budget(0.0)
    return Keeping(child.layout, keep, budget, stopping=stopping, scope=scope).run()


def perform_verb(
    child: Child, verb: str, name: SessionName | None, arguments: Any, actor: str, wait: float
) -> Answer:
    """Do what a verb says, for a door; `wait`: seconds for which sessions in use are waited for.

    Raises as `verb.perform`.
    """
    answer: Answer = perform(
        verb_named(verb),
        _Hands(child, actor, wait),
        name,
        arguments,
        lambda meanwhile: child.say("meanwhile", meanwhile),
    )
    return answer


_OUTLINES = Outlines()  # of sessions that were looked at here: a child serves one root


class _Hands:
    """Who does verbs here (`verb.Server`, but for what is asked of all sessions)."""

    outlines = _OUTLINES

    def __init__(self, child: Child, actor: str, wait: float) -> None:
        self._child = child
        self._wait = wait
        self.actor = actor

    @property
    def layout(self) -> Layout:
        return self._child.layout

    @property
    def config(self) -> ConfigService:
        return self._child.config

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:  # noqa: ARG002 - it may, and need not
        return self._child.surgeon(self.actor, self._wait)

    def trash(self, *, writes: bool) -> Trash:  # noqa: ARG002 - as above
        return Trash(
            self.layout,
            self.config.current.trash_retention,
            actor=self.actor,
            budget=self._child.budget(self._wait),
        )

    def clock(self) -> float:
        return self._child.budget(self._wait).clock()

    def progressed(self, done: int, of: int | None = None) -> None:  # noqa: ARG002 - nobody looks
        self._child.progress(done)

    def stopping(self) -> bool:
        self._child.say("alive")
        return False  # what is begun is done to its end

    def cleaned(self) -> None:
        self._child.say("cleaned")
