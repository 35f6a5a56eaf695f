"""The sessions from which a program made a session: forks, branches, renamed files.

A caller that is bound to one session may read the stored content of these sessions too, and of no
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.opening import open_transcript, require_transcript
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import parse_entry

_MOST_LINES = 400  # of a transcript; records of the program may precede the first message
_MOST_GENERATIONS = 16


def ids_of(layout: Layout, name: SessionName) -> frozenset[str]:
    """Return the ids by which the program may refer to a session, derived from its name."""
    with suppress(BsdError):  # the directory or source of the agent is gone
        return frozenset(program_of(layout, name.agent).ids_in(name.session))
    return frozenset((name.session,))


def is_origin(layout: Layout, other: SessionName, name: SessionName) -> bool:
    """Return whether the program made session `name` from `other`, by its own records.

    If the transcript of `other` is missing, `other` may also be a former name of the same session.
    """
    if other == name:
        return True
    if layout.source_of(other.agent) != layout.source_of(name.agent):
        return False
    own, origins = _ids_in(layout, name)
    known_as = ids_of(layout, other)
    return not known_as.isdisjoint(origins) or (
        not known_as.isdisjoint(own) and not _is_there(layout, other)
    )


def continues(layout: Layout, name: SessionName, other: SessionName) -> bool:
    """Return whether the context of session `name` may begin in the file of `other`."""
    shared = ids_of(layout, name) & ids_of(layout, other)  # files of one conversation
    return other != name and (bool(shared) or is_origin(layout, other, name))


def _ids_in(layout: Layout, name: SessionName) -> tuple[set[str], set[str]]:
    """Return the ids of a session, and the ids of its origins in all generations."""
    own, origins = set(ids_of(layout, name)), set[str]()
    names, seen = [name], {name}
    for _ in range(_MOST_GENERATIONS):
        named = [ids for each in names for ids in _named_in(layout, each)]
        if names == [name]:
            own.update(ids[0] for ids in named[:1])
        found = {one for ids in named for one in ids} - own
        origins |= found
        names = [each for one in sorted(found) if (each := _beside(name, one)) not in seen]
        seen.update(names)
        if not names:
            break
    return own, origins


def _named_in(layout: Layout, name: SessionName) -> Iterator[tuple[str, ...]]:
    """Yield the origins that the first lines of a transcript name; none if it is unreadable."""
    with suppress(BsdError, OSError), open_transcript(layout, name) as source:
        found = program_of(layout, name.agent).detect(line.raw for line in source.lines())
        fmt = found.reads if isinstance(found, NotOurs) else found
        if fmt is None:
            return
        for line in islice(source.lines(), _MOST_LINES):
            if (entry := parse_entry(line.raw)) is not None and (ids := fmt.origins(entry)):
                yield ids


def _beside(name: SessionName, session: str) -> SessionName:
    with suppress(BsdError):  # not a valid name, so there is no such session
        return SessionName(name.agent, session)
    return name


def _is_there(layout: Layout, name: SessionName) -> bool:
    with suppress(BsdError):
        require_transcript(layout, name)
        return True
    return False
