"""What OpenClaw's `sessions.json` says: which conversations there are, and whose they are."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bsd.agents.entry import in_short, text_of
from bsd.agents.owner import ENDING, Registered, Registry
from bsd.foundation.files import LARGEST_RECORD, UNCERTAIN_NS, read_plain
from bsd.foundation.json_text import is_too_large

FILE = "sessions.json"


def ids_in(session: str) -> tuple[str, ...]:
    """The ids that a transcript's name may hold: whole, of a topic, of a session of pi's.

    As in `<id>-topic-<n>` and `<time>_<id>`.
    """
    return session, session.partition("-topic-")[0], session.rpartition("_")[2]


class OpenClawRegistry(Registry):
    """The conversations of one agent, whose transcripts lie in a directory."""

    def __init__(self, sessions: Iterable[Registered], directory: Path) -> None:
        super().__init__(sessions)
        self._directory = directory

    def find(self, session: str) -> Iterator[Registered]:
        for name in dict.fromkeys(ids_in(session)):
            yield from super().find(name)

    def keys(self, session: str) -> list[str]:
        return [record.key for record in self.sessions if self._is_of(record, session)]

    def children(self, session: str) -> list[str]:
        ids = {session}
        ids |= {r.session_id for r in self.sessions if r.session_id and self._is_of(r, session)}
        return [r.session for r in self.sessions if r.parent in ids and r.session]

    def _is_of(self, record: Registered, session: str) -> bool:
        """Whether a record is of this very transcript, not of another with the same id in it."""
        if record.session == session:
            return True
        # If the record names no file, the one that is named like the id comes first.
        identifier = record.session_id
        if record.session_file or not identifier:
            return False
        if (self._directory / f"{identifier}{ENDING}").exists():
            return False
        if topic := re.fullmatch(re.escape(identifier) + r"-topic-(.+)", session):
            return record.key.endswith((f":topic:{topic[1]}", f":thread:{topic[1]}"))
        return session.rpartition("_")[2] == identifier


# By agent: what was read, and from which state of the file. The registry of a busy gateway holds
# thousands of conversations, and is asked for each of them.
_registries: dict[Path, tuple[tuple[int, int, int], Registry]] = {}


def read_registry(agent_dir: Path) -> Registry:
    """Read an agent's `sessions.json`. No file is an empty registry, a broken one is a problem."""
    path = agent_dir / "sessions" / FILE
    try:
        found = path.lstat()
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        known = _registries.get(path)
        if known and known[0] == state:
            return known[1]
        registry = _parsed(path, read_plain(path, LARGEST_RECORD))
    except (FileNotFoundError, NotADirectoryError):
        return Registry()
    except OSError as error:
        return Registry(problem=f"{path}: {error.strerror}")
    # A file just written may change again without its time showing it.
    if abs(time.time_ns() - found.st_mtime_ns) > UNCERTAIN_NS:
        _registries[path] = (state, registry)
    return registry


def _parsed(path: Path, data: bytes) -> Registry:
    if is_too_large(data):
        return Registry(problem=f"{path} would take too much memory to be read")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return Registry(problem=f"{path} is not valid JSON")
    if not isinstance(content, dict):
        return Registry(problem=f"{path} is not a map of sessions")
    return OpenClawRegistry(registered(content), path.parent)


def registered(content: dict[str, Any]) -> Iterator[Registered]:
    """List the conversations in a registry's content."""
    for key, value in content.items():
        if isinstance(value, dict):
            file = text_of(value.get("sessionFile"))
            yield Registered(
                key,
                session_id=text_of(value.get("sessionId")),
                session_file=Path(file).name if file else None,
                status=text_of(value.get("status")),
                parent=text_of(value.get("parentSessionId")),
                title=_called(value),
            )


def _called(record: dict[str, Any]) -> str | None:
    """How a conversation is called by its record."""
    origin = record.get("origin")
    named_by = [record.get(key) for key in ("label", "displayName", "subject")]
    named_by.append(origin.get("label") if isinstance(origin, dict) else None)
    texts = (in_short(text) for text in named_by if isinstance(text, str))
    return next(filter(None, texts), None)


def running(agent_dir: Path, session: str) -> str | None:
    """Say why a session counts as in use by its registry; None if it does not.

    A registry that cannot be read counts as "in use": waiting costs some disk space, editing
    under a run costs that run. It is usually whole again with the gateway's next write.
    """
    registry = read_registry(agent_dir)
    if registry.problem:
        return f"cannot tell whether it is running: {registry.problem}"
    for record in registry.find(session):
        if record.status == "running":
            return f"{FILE} says that {record.key} is running"
    return None
