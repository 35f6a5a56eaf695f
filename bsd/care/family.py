"""A session and its children: what its owner lists as begun by it, and by those again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bsd.agents.owner import Registry
from bsd.agents.owners import owner_of
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName


@dataclass(frozen=True, slots=True)
class Member:
    """A session of a family, and whose child it is (None for the one that was asked for)."""

    name: SessionName
    parent: SessionName | None


def family(layout: Layout, head: SessionName) -> list[Member]:
    """The session, its children, theirs, and so on; each once, parents before children."""
    registry = owner_of(layout, head.agent).registry()
    found = {head: Member(head, None)}
    for member in (queue := [found[head]]):  # it grows while it is walked
        for child in _children(registry, member.name):
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


def _children(registry: Registry, parent: SessionName) -> Iterator[SessionName]:
    for session in registry.children(parent.session):
        try:
            yield SessionName(parent.agent, session)
        except BsdError:  # a name that no session of ours can have
            continue
