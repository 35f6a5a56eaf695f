"""The memory of a root, as the settings want it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bsd.foundation.ages import look, steady
from bsd.foundation.audit import AuditLog
from bsd.foundation.decay_classes import LIFETIMES
from bsd.foundation.layout import Layout
from bsd.memory.classes import Classes
from bsd.memory.classify import Classifier, rules_for
from bsd.memory.facts import Memory

if TYPE_CHECKING:  # who has set nothing need not wait for the library that reads settings
    from bsd.foundation.settings_tables import MemorySettings


def open_memory(
    layout: Layout,
    settings: MemorySettings | None = None,
    *,
    actor: str = "cli",
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = steady,
    stopping: Callable[[], bool] = lambda: False,
) -> Memory:
    """Whoever asks gets a memory of its own, which opens nothing before it is used.

    Without settings it is as the seed describes it. Raises Forbidden if a link leads out of the
    root where nobody has named another place.
    """
    audit, classes = AuditLog(layout.audit_file, clock), classes_of(settings)
    longest = max((life for life in classes.lifetimes.values() if life is not None), default=0)

    def forgets_by(changes: bool) -> float:  # noqa: FBT001 - it asks for nothing else
        return look(layout, clock, steady, keep=changes).now_for(longest)

    if settings is None:
        return Memory(
            _facts(layout),
            actor=actor,
            audit=audit,
            clock=clock,
            forgets_by=forgets_by,
            stopping=stopping,
        )
    words = {
        name: (words.keys, words.texts, words.entities) for name, words in settings.words.items()
    }
    return Memory(
        settings.database or _facts(layout),
        classes=classes,
        classifier=Classifier(rules_for(settings.languages, words)),
        vectors=settings.vectors,
        actor=actor,
        audit=audit,
        clock=clock,
        forgets_by=forgets_by,
        stopping=stopping,
    )


def classes_of(settings: MemorySettings | None) -> Classes:
    """The seed's classes, with those that the settings add or change."""
    if settings is None:
        return Classes()
    return Classes({**LIFETIMES, **settings.ttl}, frozenset(settings.refresh))


def _facts(layout: Layout) -> Path:
    hint = "replace the symbolic link, or name its target as `database` in [memory] of bsd.toml"
    return layout.refuse_outside(layout.facts_db, hint)
