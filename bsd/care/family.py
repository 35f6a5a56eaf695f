"""Which conversations of `sessions.json` are whose: a session's own, and those of its children."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bsd.agents.owner import Registered
from bsd.agents.owners import owner_of
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName

_ENDING = ".jsonl"


@dataclass(frozen=True, slots=True)
class Member:
    """A session of a family, and whose child it is (None for the one that was asked for)."""

    name: SessionName
    parent: SessionName | None


def family(layout: Layout, head: SessionName) -> list[Member]:
    """The session, its children, theirs, and so on; each once, parents before children."""
    records = owner_of(layout, head.agent).registry().sessions
    sessions = layout.sessions_dir(head.agent)
    found = {head: Member(head, None)}
    for member in (queue := [found[head]]):  # it grows while it is walked
        for child in _children(records, sessions, member.name):
            if child not in found:
                found[child] = Member(child, member.name)
                queue.append(found[child])
    return queue


def children(layout: Layout, head: SessionName) -> list[str]:
    """Names of the sessions that would be deleted with this one, of all generations."""
    return [
        str(member.name)
        for member in family(layout, head)[1:]
        if layout.transcript(member.name).exists()
    ]


def keys_of(registry: Iterable[Registered], sessions: Path, session: str) -> list[str]:
    """The keys under which a session is listed."""
    return [record.key for record in registry if _is_of(record, sessions, session)]


def _children(
    records: Iterable[Registered], sessions: Path, parent: SessionName
) -> Iterator[SessionName]:
    ids = {parent.session}
    ids |= {r.session_id for r in records if r.session_id and _is_of(r, sessions, parent.session)}
    for record in records:
        if record.parent in ids and (session := _session_of(record)):
            try:
                yield SessionName(parent.agent, session)
            except BsdError:  # a name that no session of ours can have
                continue


def _session_of(record: Registered) -> str | None:
    file = record.session_file
    return file.removesuffix(_ENDING) if file and file.endswith(_ENDING) else record.session_id


def _is_of(record: Registered, sessions: Path, session: str) -> bool:
    """Whether a record is of this very transcript, and not of another with the same id in it."""
    if _session_of(record) == session:
        return True
    # The id also stands in names of topics and of pi; if the record names no file, the one that
    # is named like the id comes first.
    identifier = record.session_id
    if record.session_file or not identifier or (sessions / f"{identifier}{_ENDING}").exists():
        return False
    if topic := re.fullmatch(re.escape(identifier) + r"-topic-(.+)", session):
        return record.key.endswith((f":topic:{topic[1]}", f":thread:{topic[1]}"))
    return session.rpartition("_")[2] == identifier
