"""An agent's `sessions.json`: the list of its conversations, and the session of each.

Also removes conversations and puts them back, byte for byte. The file belongs to the gateway. Older
versions of the gateway change it under the lock `sessions.json.lock` (of the same kind as a
session's), newer ones from a queue of their own; all of them write a new file and rename it. bsd
takes that lock and exchanges the files; the old file that comes out must be the file that was read.
One race remains: a newer gateway may have read the file before bsd and write it afterwards. The
conversation is then listed again, but has no transcript.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bsd.core.errors import Conflict, TemporaryFailure
from bsd.core.files import (
    LARGEST_RECORD,
    UNCERTAIN_NS,
    NotPlain,
    create_private,
    open_plain,
    read_plain,
    sync_dir,
    write_all,
)
from bsd.core.filesystem import MetadataNotKept, exchanges, keep_metadata
from bsd.transcripts import splice
from bsd.transcripts.agents.entry import text_of
from bsd.transcripts.agents.format import in_short
from bsd.transcripts.agents.openclaw.lock import SessionLock
from bsd.transcripts.agents.program import ENDING, PutBack, Registered, Registry
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import is_too_large
from bsd.transcripts.spans import Search, encode_key, scan

REGISTRY_FILE = "sessions.json"
# Number of members before and after a removed member that are recorded to find its place.
_NEIGHBOURS = 4
_TRIES = 5
_TEMPORARY = ".bsd.tmp"

_Edit = Callable[[bytes], bytes]


def ids_in(session: str) -> tuple[str, ...]:
    """Return the ids that a transcript's name may contain.

    These are the whole name, the id in `<id>-topic-<n>`, and pi's id in `<time>_<id>`.
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
        """Return whether a record refers to this transcript, not to another with the same id."""
        if record.session == session:
            return True
        # If the record names no file, a transcript with exactly this name takes precedence.
        identifier = record.session_id
        if record.session_file or not identifier:
            return False
        if (self._directory / f"{identifier}{ENDING}").exists():
            return False
        if topic := re.fullmatch(re.escape(identifier) + r"-topic-(.+)", session):
            return record.key.endswith((f":topic:{topic[1]}", f":thread:{topic[1]}"))
        return session.rpartition("_")[2] == identifier


# By path: the conversations, and the state of the file from which they were read. The list of a
# busy gateway has thousands of conversations, and is needed for each of them.
_registries: dict[Path, tuple[tuple[int, int, int], Registry]] = {}


def read_registry(agent_dir: Path) -> Registry:
    """Read an agent's `sessions.json`; a missing file is an empty list, a broken file a problem."""
    path = agent_dir / "sessions" / REGISTRY_FILE
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
    # A file that was just written may change again without a change of its time.
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
    """Yield the conversations in the content of a list."""
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
                started_by=text_of(value.get("spawnedBy")),
            )


def _called(record: dict[str, Any]) -> str | None:
    """Return the name of a conversation from its record."""
    origin = record.get("origin")
    named_by = [record.get(key) for key in ("label", "displayName", "subject")]
    named_by.append(origin.get("label") if isinstance(origin, dict) else None)
    texts = (in_short(text) for text in named_by if isinstance(text, str))
    return next(filter(None, texts), None)


def running(agent_dir: Path, session: str) -> str | None:
    """Return why a session counts as in use by the list; None if it does not.

    An unreadable list counts as "in use": waiting only costs disk space, while an edit during a run
    spoils the run. The gateway's next write usually repairs the list.
    """
    registry = read_registry(agent_dir)
    if registry.problem:
        return (
            f"cannot tell whether it is running: {registry.problem};"
            " repair that file, or move it away if this persists"
        )
    for record in registry.find(session):
        if record.status == "running":
            return f"{REGISTRY_FILE} says that {record.key} is running"
    return None


# --- removing conversations, and putting them back, byte for byte ---


def take_out(
    sessions: Path,
    keys_of: Callable[[dict[str, Any]], Collection[str]],
    keep: Callable[[str], None],
    *,
    wait: float,
) -> None:
    """Remove the members that `keys_of` selects; raises as `AgentProgram.unlist`.

    Args:
        sessions: the directory of the list.
        keys_of: returns the keys to remove, from the parsed list.
        keep: receives the excerpt for `put_back`, which is durable when it returns. It may be
            called more than once.
        wait: seconds to wait for the lock.
    """

    def edit(raw: bytes) -> bytes:
        keys = list(keys_of(_content_of(raw)))
        if not keys:
            return raw
        keep(excerpt(raw, keys))
        return splice.edit(raw, remove=[(key,) for key in keys])

    _edit(sessions / REGISTRY_FILE, edit, wait)


def put_back(sessions: Path, text: str, *, wait: float) -> PutBack:
    """Put the members of an excerpt back at their places, except keys that are in use again.

    Raises as `take_out`. A missing list is created.
    """
    original = text.encode()
    was = _content_of(original)
    wanted = [key for key, value in was.items() if value != 0]  # the others are neighbours
    done = PutBack()

    def edit(raw: bytes) -> bytes:
        nonlocal done
        there = _content_of(raw)
        keys = [key for key in wanted if key not in there]
        # A member with its old value was put back before, so its key is not taken.
        taken = [key for key in wanted if key in there and there[key] != was[key]]
        done = PutBack(tuple(key for key in wanted if key not in taken), tuple(taken))
        return (
            splice.edit(raw, reinsert=[(key,) for key in keys], original=original) if keys else raw
        )

    path = sessions / REGISTRY_FILE
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # the gateway was quicker
            os.close(create_private(path))
    _edit(path, edit, wait)
    return done


def excerpt_of(sessions: Path, keys: Collection[str]) -> str | None:
    """Return the excerpt that `take_out` would make; None without these keys or without a list."""
    if not keys:
        return None
    try:
        raw = read_plain(sessions / REGISTRY_FILE, LARGEST_RECORD)
        return excerpt(raw, [key for key in keys if key in _content_of(raw)])
    except (OSError, Conflict, splice.SpliceError):  # the list changes all the time
        return None


def _content_of(raw: bytes) -> dict[str, Any]:
    """Return the conversations in a list; an empty file has none. Raises Conflict."""
    if not raw.strip():
        return {}
    if is_too_large(raw):
        raise Conflict(
            f"{REGISTRY_FILE} would take too much memory to be read",
            hint="repair it, then try again",
        )
    try:
        content = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Conflict(
            f"{REGISTRY_FILE} is not valid JSON", hint="repair it, then try again"
        ) from error
    if not isinstance(content, dict):
        raise Conflict(
            f"{REGISTRY_FILE} is not a map of sessions", hint="repair it, then try again"
        )
    return content


def excerpt(raw: bytes, keys: Collection[str]) -> str:
    """Return the members to put back, and their neighbours as `"key":0`, with their white space."""
    wanted = {encode_key(key) for key in keys}
    found = scan(raw, Search([(key,) for key in keys], listed=[()]))
    whole, members = found.span(()), found.members_of(())
    ours = {n for n, (key, _, _) in enumerate(members) if key in wanted}
    near = sorted(
        {
            n
            for middle in ours
            for n in range(max(0, middle - _NEIGHBOURS), middle + _NEIGHBOURS + 1)
            if n < len(members)
        }
    )
    text, last = b"", -1
    for n in near:
        key, start, end = members[n]
        if n == last + 1:
            text += raw[whole[0] if n == 0 else members[last][2] : start]
        else:
            text += b"{" if not text else b","
        text += raw[start:end] if n in ours else splice.encode_string(key.decode()) + b":0"
        last = n
    tail = raw[members[last][2] : whole[1]] if last == len(members) - 1 else b"}"
    return (text + tail).decode()


def _edit(path: Path, edit: _Edit, wait: float) -> None:
    """Replace a file by its edited version, unless the file changes meanwhile."""
    if not os.path.lexists(path):
        return
    with SessionLock(path, wait):
        for left_behind in path.parent.glob(f"{path.name}.*{_TEMPORARY}"):
            left_behind.unlink(missing_ok=True)  # by a killed process: the lock is held here
        for _ in range(_TRIES):
            if _edited(path, edit):
                return
    raise TemporaryFailure(f"{path} changes all the time", hint="again later")


def _edited(path: Path, edit: _Edit) -> bool:
    try:
        source = open_plain(path)
    except NotPlain as error:
        raise Conflict(
            f"{path} is not a plain file", hint="replace the link with the file itself"
        ) from error
    try:
        read = Identity.of(os.fstat(source))
        if read.size > LARGEST_RECORD:
            raise Conflict(f"{path} is larger than {LARGEST_RECORD} bytes", hint="reduce its size")
        raw = os.pread(source, read.size, 0) if read.size else b""
        new = edit(raw or b"{}")
        if new == (raw or b"{}"):
            return True
        # Like the gateway's own temporary names, so that no program takes it for a session.
        temporary = path.with_name(f"{path.name}.{os.getpid()}{_TEMPORARY}")
        try:
            _write(source, temporary, new)
            return _replace(path, temporary, read)
        finally:
            temporary.unlink(missing_ok=True)
            sync_dir(path.parent)
    finally:
        os.close(source)


def _write(source: int, temporary: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(temporary, flags, 0o600)
    try:
        write_all(target, data)
        try:
            keep_metadata(source, target)
        except MetadataNotKept as error:
            raise Conflict(
                f"{REGISTRY_FILE} cannot be given its owner and mode: {error}",
                hint="run bsd as the user who owns it",
            ) from error
        os.fsync(target)
    finally:
        os.close(target)


def _replace(path: Path, temporary: Path, read: Identity) -> bool:
    """Put `temporary` at `path`; False if the file at `path` is not the file that was read."""
    if not exchanges(temporary, path):
        if not _is(path, read):
            return False
        os.rename(temporary, path)
        return True
    if _is(temporary, read):
        return True
    exchanges(temporary, path)
    return False


def _is(path: Path, known: Identity) -> bool:
    found = path.lstat()
    # A rename changes ctime, so ctime cannot be compared.
    same = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return same == (known.dev, known.ino, known.size, known.mtime_ns)
