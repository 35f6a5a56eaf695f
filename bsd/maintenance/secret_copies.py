"""Finds copies of a secret that a redaction leaves, and names the places that it cleans.

The search covers bsd's own files and the files beside sessions: files of sync programs, compressed
and renamed sessions, databases, and excluded sessions. `unreached` describes the places that bsd
cannot search.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from bsd.core.errors import BsdError, ConfigError, os_problem
from bsd.core.files import plain_stream
from bsd.core.layout import Layout, SessionName
from bsd.core.zstd import zstd
from bsd.maintenance import catalog
from bsd.maintenance.references import belongings_with
from bsd.planning.redact_text import LeftInPlace, SecretText
from bsd.store.snapshots import snapshot_directories
from bsd.transcripts.agents.programs import kind_of, other_roots, program_of

_BLOCK = 1 << 20
_LONGEST = 16 << 10  # limit of the bytes of a secret with its escapes
_COMPRESSED = ".zst"  # packs have this ending, too


def files_with(layout: Layout, text: SecretText, names: Iterable[SessionName]) -> Iterator[str]:
    """Yield the files that contain a secret.

    The search covers bsd's own files, the files beside sessions, and the files that belong to the
    sessions `names`. Files that cannot be read are left out.
    """
    for path in (*_own_files(layout), *_beside_sessions(layout)):
        with suppress(BsdError, OSError, EOFError, zstd.ZstdError):
            if stat.S_ISREG(path.lstat().st_mode) and _holds(path, text):
                yield str(path)
    beside = (belongings_with(layout, name, [text.text]) for name in names)
    yield from sorted({file for files in beside for file in files})
    for source in layout.sources:
        with suppress(BsdError, OSError):
            prompts = kind_of(source.kind).remembered(source.path, lambda _: None)
            if any(text.pattern.search(prompt.text) for prompt in prompts):
                yield f"the prompts that the program of {source.name} remembers"


def changed_by_redaction(
    layout: Layout, names: Collection[SessionName], needed: Collection[SessionName]
) -> tuple[Path, ...]:
    """Return the places that no longer contain a secret once these sessions are redacted.

    `needed`: the sessions of `names` whose stored text stays because another session needs it.
    """
    places = [layout.history_dir(name) for name in names]
    for name in names:
        places += snapshot_directories(layout.archive_dir(name))
        if name not in needed:
            places += (layout.store_dir(name), layout.archive_dir(name))
    databases = (layout.search_db.with_name(layout.search_db.name + end) for end in _SQLITE)
    return (*places, *databases, layout.inflight)


_SQLITE = ("", "-wal", "-shm", "-journal")


def not_searched(layout: Layout) -> Iterator[LeftInPlace]:
    """Yield the agents and sources whose sessions cannot be read now, and why."""
    for where, problem in catalog.unreadable(layout):
        yield LeftInPlace(where, "", f"it was not searched: {problem.message}")
    for source in layout.sources:
        if not source.path.is_dir():
            yield LeftInPlace(source.name, "", f"it was not searched: {source.path} does not exist")


def unreached(layout: Layout) -> tuple[str, ...]:
    """Return phrases for places that may hold copies of a session and that bsd cannot search."""
    roots = (f"the root {root}: `bsd --root {root} secrets` looks there" for root in _roots(layout))
    return (
        "the model provider, to which the session was sent",
        "backups, snapshots of file systems, and other machines",
        "other files that the agent wrote, and the history of the shell",
        *roots,
    )


def _roots(layout: Layout) -> Iterator[str]:
    with suppress(OSError):
        yield from other_roots(layout)


def _own_files(layout: Layout) -> Iterator[Path]:
    places = (layout.extracted, layout.archive, layout.own, layout.trash, layout.log_file.parent)
    for place in (*places, layout.facts_db.parent):
        yield from sorted(place.rglob("*")) if place.is_dir() else ()


def _beside_sessions(layout: Layout) -> Iterator[Path]:
    """Yield files in session directories that are not sessions, or whose session is excluded."""
    known: set[Path] = set()
    with suppress(ConfigError):  # a root without agents
        known.update(layout.transcript(name) for name in catalog.names(layout))
    everything = layout.with_excluded()
    directories = set(everything.archived_dirs())
    with suppress(BsdError):
        for agent in catalog.agents(everything):
            with suppress(BsdError, OSError):
                directories.add(everything.sessions_dir(agent.name))
                if database := program_of(everything, agent.name).database():
                    yield from (Path(f"{database.path}{end}") for end in _SQLITE)
    for directory in sorted(directories):
        with suppress(OSError):
            paths = (directory / name for name in sorted(os.listdir(directory)))
            yield from (path for path in paths if path not in known)


def _holds(path: Path, text: SecretText) -> bool:
    with plain_stream(path, _BLOCK) as stream:
        if not path.name.endswith(_COMPRESSED):
            return _is_in(stream, text)
        with zstd.ZstdFile(stream) as plain:
            return _is_in(plain, text)


def _is_in(stream: IO[Any] | zstd.ZstdFile, text: SecretText) -> bool:
    end = b""
    while block := stream.read(_BLOCK):
        if text.is_in(end + block):
            return True
        end = block[-_LONGEST:]
    return False


def why_unwritable(path: Path) -> BsdError | None:
    """Return why this process cannot replace a file; None if there is no known obstacle."""
    code = 0
    with suppress(OSError):  # reading the file reports the problem
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            code = errno.EROFS
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            code = errno.EACCES
    problem = OSError(code, os.strerror(code), str(path))
    return os_problem(problem, f"writing {path}") if code else None
