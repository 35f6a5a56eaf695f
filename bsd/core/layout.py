"""All paths on disk, and the only functions that convert a name to a path (SPEC §2.8)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from bsd.core import exclude
from bsd.core.errors import Forbidden, Invalid, NotFound
from bsd.core.exclude import Exclusion, Exclusions
from bsd.core.sources import Source

_NAME = re.compile(r"[A-Za-z0-9._@:+-]+")
# A file name may have 255 bytes; trash adds `_extracted_<timestamp>` to a store directory's name.
_LONGEST_STORE_NAME = 200
COPY = "session-"  # prefix of each copy of a session, in the session's directory in the archive
# Directories of a root that only bsd creates, and whose content controls bsd.
_OWN_ALONE = (".brainsurgeon", "archive")


def check_name(text: str, what: str) -> str:
    """Return `text` if it is a valid name of an agent or session, else raise Invalid."""
    if not _NAME.fullmatch(text) or text in {".", ".."}:
        raise Invalid(
            f"{what} {text!r} is not a valid name",
            hint="letters, digits and . _ @ : + - only",
        )
    return text


@dataclass(frozen=True, slots=True)
class SessionName:
    """`agent/session`: the name of a session in all interfaces."""

    agent: str
    session: str

    def __post_init__(self) -> None:
        check_name(self.agent, "agent")
        check_name(self.session, "session")

    def __lt__(self, other: SessionName) -> bool:
        return (self.agent, self.session) < (other.agent, other.session)

    @classmethod
    def parse(cls, text: str) -> SessionName:
        """Read `agent/session`; raises Invalid."""
        agent, slash, session = text.partition("/")
        if not slash:
            raise Invalid(
                f"{text!r} does not name a session",
                hint="write it as AGENT/SESSION; `bsd sessions` lists them",
            )
        return cls(agent, session)

    def __str__(self) -> str:
        return f"{self.agent}/{self.session}"


@lru_cache(maxsize=2048)
def _at(root: Path, place: str) -> Path:
    """Return a path in a root, from a cache: building a Path takes longer than a lookup."""
    return root / place


class _PathInRoot:
    """Descriptor of a path that is the same below every root."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        return _at(layout.root, self._place)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of all files of a root; only sessions in sources lie outside the root."""

    root: Path
    sources: tuple[Source, ...] = ()  # data extracted from them lies in the root too
    # If set, the caller may access only this session, and content of the sessions it was made from.
    bound_to: SessionName | None = None
    # Patterns of bsd.toml, added to those of config.json; None: no session is excluded.
    exclude: tuple[str, ...] | None = ()

    agents = _PathInRoot("agents")
    extracted = _PathInRoot("extracted")
    archive = _PathInRoot("archive")
    """Compressed: content that has left the store, and copies of sessions; a directory for each."""
    trash = _PathInRoot("trash")
    log_file = _PathInRoot("logs/brainsurgeon.log")
    facts_db = _PathInRoot("memory/facts.db")
    """The facts of agents, unless the settings name another file; the plugin uses the same path."""

    own = _PathInRoot(".brainsurgeon")
    """Files that only bsd uses: settings, locks, records, audit."""
    config_file = _PathInRoot(".brainsurgeon/config.json")
    audit_file = _PathInRoot(".brainsurgeon/audit.jsonl")
    state_db = _PathInRoot(".brainsurgeon/state.db")
    """The checkpoints of sessions; without it bsd is slower, but loses no data."""
    search_db = _PathInRoot(".brainsurgeon/search.db")
    """The full-text index of sessions and their figures; it can be rebuilt."""
    sizes_file = _PathInRoot(".brainsurgeon/sizes.jsonl")
    """The disk use of sessions and of bsd, a line per day."""
    root_id_file = _PathInRoot(".brainsurgeon/root-id")
    """The id by which sources recognise the root that serves them, even after it was moved."""
    told_file = _PathInRoot(".brainsurgeon/told.json")
    """The agents that bsd does not serve and about which the user has been told."""
    agents_file = _PathInRoot(".brainsurgeon/agents.json")
    """The record of bsd's additions to files of agents' programs, so that they can be removed."""
    agents_lock = _PathInRoot(".brainsurgeon/agents.lock")
    """Held by the process that turns an agent on or off."""
    clock_file = _PathInRoot(".brainsurgeon/clock.json")
    """Readings of this machine's clocks, so that no run deletes by a wrong clock."""
    forgetting = _PathInRoot(".brainsurgeon/forgetting")
    """The journal of `forget`, so that an interrupted one is completed."""
    redacting = _PathInRoot(".brainsurgeon/redacting")
    """The journals of redactions, to report and complete an interrupted redaction."""
    letting_go = _PathInRoot(".brainsurgeon/letting-go")
    """Exists while deleted content still has words in the search index."""
    locks = _PathInRoot(".brainsurgeon/locks")
    instance_lock = _PathInRoot(".brainsurgeon/bsd.lock")
    """Held by the daemon of this root, so that only one runs."""
    history = _PathInRoot(".brainsurgeon/history")
    """The data that undo needs, a directory per session."""
    edits = _PathInRoot(".brainsurgeon/edits")
    """Entries that users are editing, and edits that could not be applied."""
    inflight = _PathInRoot(".brainsurgeon/inflight")
    """Files of commits in flight, if this is on the session's mount (DESIGN §4.0)."""
    pauses_file = _PathInRoot(".brainsurgeon/pauses.json")
    """The pauses: agents and sessions that bsd does not edit for a time."""
    orphans = _PathInRoot(".brainsurgeon/orphans")
    """Late bytes that could not be returned to their session (DESIGN §4, rules c and e)."""
    moving = _PathInRoot(".brainsurgeon/moving")
    """Crash journals, see `maintenance/journal.py`: among others, of sessions being moved."""
    fleet = _PathInRoot(".brainsurgeon/fleet")
    """The journal of uploads and of deletions to pass on; exists only if this host shares."""

    def has_moves(self) -> bool:
        """Return True if a move into or out of the trash, or a `forget`, may be incomplete."""
        return any(map(_holds_something, (self.moving, self.forgetting)))

    # --- the excluded sessions ---

    def exclusions(self) -> Exclusions:
        """Return the exclusions of the current settings; raises ConfigError."""
        if self.exclude is None:
            return exclude.exclusions((), (), ())
        return exclude.exclusions(exclude.named_in(self.config_file), self.exclude, self.sources)

    def excluded(self, name: SessionName) -> Exclusion | None:
        """Return the pattern that excludes a session; None if it is not excluded.

        Raises ConfigError.
        """
        return self.exclusions().session(name.agent, name.session)

    def refuse_excluded(self, name: SessionName) -> None:
        """Raise LeftAlone for a session that is never looked at, and ConfigError."""
        if exclusion := self.excluded(name):
            raise exclusion.refusal(name)

    def with_excluded(self) -> Layout:
        """Return the same places, with nothing left out.

        For data that a user asks for by name to get values back, and where content that a session
        needs would be lost if the session was left out.
        """
        return replace(self, exclude=None)

    # --- agents and sessions ---

    def source_of(self, agent: str) -> Source | None:
        """Return the source that contains an agent's sessions; None for agents of the root."""
        name = agent.partition(":")[0]
        return next((each for each in self.sources if name == each.name and name != agent), None)

    def sessions_dir(self, agent: str) -> Path:
        """Return an agent's session directory with resolved links.

        Raises Forbidden if it lies outside the root, or outside its source.
        """
        check_name(agent, "agent")
        if source := self.source_of(agent):
            return _inside_source(source, agent)
        return self._inside(_at(self.root, f"agents/{agent}/sessions"))

    def has_agent(self, agent: str) -> bool:
        """Return True if an agent of this name exists; raises Invalid, Forbidden."""
        directory = self.sessions_dir(agent)
        if self.source_of(agent) is None:
            return os.path.isdir(self.agents / agent)
        return os.path.isdir(directory) or agent in self.program_archive()

    def session_dirs(self) -> Iterator[tuple[str, Path]]:
        """Yield all agents in sources with their directories; skips unreadable directories."""
        for source in self.sources:
            with suppress(OSError):
                yield from source.directories()

    def program_archive(self) -> dict[str, list[os.DirEntry[str]]]:
        """Return the files that programs have archived, by agent; skips unreadable directories."""
        found: dict[str, list[os.DirEntry[str]]] = {}
        for source in self.sources:
            with suppress(OSError):
                for agent, file in source.archived_files():
                    found.setdefault(agent, []).append(file)
        return found

    def archived_dirs(self) -> Iterator[Path]:
        """Return the directories in which programs archive sessions."""
        return filter(None, (source.archived_in for source in self.sources))

    def holds(self, path: Path) -> bool:
        """Return True if a path, with resolved links, lies in the root or in a source."""
        real = Path(os.path.realpath(path))
        tops = (self.root, *(source.path for source in self.sources), *self.archived_dirs())
        return any(real.is_relative_to(os.path.realpath(top)) for top in tops)

    def transcript(self, name: SessionName) -> Path:
        """Return the path of the transcript of `name`, even if it does not exist.

        This is the path in the program's archive if the transcript exists only there, and that of a
        compressed transcript if there is no other. Raises as `sessions_dir`.
        """
        path = self.sessions_dir(name.agent) / f"{name.session}.jsonl"
        away = self._put_away_at(name)
        source = self.source_of(name.agent)
        compresses = source is not None and source.compresses
        if (away is None and not compresses) or os.path.lexists(path):
            return path
        places = [path, away] if away else [path]
        others = [away] if away else []
        if compresses:
            others += [each.with_name(f"{each.name}.zst") for each in places]
        return next(filter(os.path.lexists, others), path)

    def places_of(self, name: SessionName) -> list[Path]:
        """Return the possible paths of a transcript, links resolved; [] if its agent is gone."""
        found = []
        with suppress(NotFound, Forbidden):
            found.append(Path(os.path.realpath(self.sessions_dir(name.agent))))
        if away := self._put_away_at(name):
            found.append(Path(os.path.realpath(away.parent)))
        return [directory / f"{name.session}.jsonl" for directory in found]

    def archived_as(self, name: SessionName) -> str | None:
        """Return the program's word for an archived session; None if it is not archived."""
        away = self._put_away_at(name)
        source = self.source_of(name.agent)
        if away is None or source is None or source.program_archive is None:
            return None
        is_away = self.transcript(name).parent == away.parent
        return source.program_archive.status if is_away else None

    def _put_away_at(self, name: SessionName) -> Path | None:
        """Return the path that the session has if its program archives it."""
        source, file = self.source_of(name.agent), f"{name.session}.jsonl"
        if source is None or source.agent_of(file) != name.agent:
            return None
        directory = source.archived_in
        return directory / file if directory else None

    def session_file(self, name: SessionName) -> Path:
        """Return the path of a transcript that is a regular file; raises NotFound, Forbidden."""
        path = self.transcript(name)
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
                raise self.no_session(name) from None
            raise Forbidden(f"{path}: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            raise Forbidden(
                f"session {name} is not a regular file: {path}",
                hint="replace it by the file itself: bsd edits only plain files, not links",
            )
        return path

    def no_session(self, name: SessionName) -> NotFound:
        """Return the error for a missing session; its text says whether the archive has a copy."""
        if not self.has_copy(name):
            return NotFound(f"there is no session {name}", hint="`bsd sessions` lists them")
        hint = f"`bsd archive show {name}`; `bsd archive bring-back {name}` puts it in its place"
        return NotFound(f"there is no session {name} in its place: the archive has it", hint=hint)

    def has_copy(self, name: SessionName) -> bool:
        """Return True if the archive has a copy of a whole session of this name."""
        with suppress(OSError, Forbidden):
            return any(each.startswith(COPY) for each in os.listdir(self.archive_dir(name)))
        return False

    def store_dir(self, name: SessionName) -> Path:
        """Return the directory of the session's extracted values, with resolved links.

        It is `extracted/<agent>_<session>`. Raises Forbidden if a link leads out of the root.
        """
        return self._inside(self.extracted / self.store_name(name))

    def history_dir(self, name: SessionName) -> Path:
        """Return the directory of the session's history, named like its store; raises Forbidden."""
        return self._inside(self.history / self.store_name(name))

    def archive_dir(self, name: SessionName) -> Path:
        """Return the session's directory in the archive, named like its store; raises Forbidden."""
        return self._inside(self.archive / self.store_name(name))

    def memory_dir(self, agent: str) -> Path:
        """Return the directory for copies of a project's notes (`memory/`).

        It never collides with the directory of a session, whose name contains an `_`. Raises
        Forbidden as `store_dir`.
        """
        return self._inside(self.archive / agent.replace("_", "~") / "memory")

    def store_name(self, name: SessionName) -> str:
        """Return the file name of a session's store, history and lock, also a prefix in the trash.

        It is unique: an `_` in the agent's name becomes `~`, which names cannot contain, so the
        first `_` always ends the agent. A name that is too long is truncated and gets a hash.
        """
        text = f"{name.agent.replace('_', '~')}_{name.session}"
        if len(text) > _LONGEST_STORE_NAME:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            text = f"{text[:_LONGEST_STORE_NAME]}~{digest}"
        return text

    def session_of_store(self, store: str) -> SessionName | None:
        """Return the session of a store's name; None if the name is invalid or truncated."""
        agent, _, session = store.partition("_")
        with suppress(Invalid):
            name = SessionName(agent.replace("~", "_"), session)
            return name if self.store_name(name) == store else None
        return None

    def trash_dir(self) -> Path:
        """Return the trash directory with resolved links; raises Forbidden if outside the root."""
        return self._inside(self.trash)

    def lock_file(self, name: SessionName) -> Path:
        """Return the path of bsd's lock of a session (not the gateway's); raises as `store_dir`."""
        return self.lock_file_of(self.store_name(name))

    def lock_file_of(self, store: str) -> Path:
        """Return the path of bsd's lock of a session, by the name of its store directory."""
        return self.refuse_outside(self.locks) / f"{store}.lock"

    def refuse_outside(self, path: Path, hint: str | None = None) -> Path:
        """Return `path` unchanged; raises Forbidden if a link in it leads out of the root."""
        self._inside(path, hint)
        return path

    def refuse_planted(self) -> None:
        """Raise Forbidden if another user created a directory that only bsd may create."""
        for place in _OWN_ALONE:
            self._refuse_planted(place)

    def _refuse_planted(self, place: str) -> None:
        path = f"{self.root}/{place}"
        try:
            uid = os.stat(path).st_uid
            if uid in {0, os.geteuid()} or uid == os.stat(self.root).st_uid:
                return
        except OSError:  # missing; any other error is reported by the code that reads it
            return
        raise Forbidden(
            f"{path} belongs to uid {uid}, and neither to the owner of {self.root} nor to root: "
            "bsd does not use its content",
            hint=f"check which user created it; if it is bsd's own, `chown -R` it to the owner of "
            f"{self.root}, else move it away",
        )

    def _inside(self, path: Path, hint: str | None = None) -> Path:
        real = inside(path, self.root, hint)
        start = len(str(self.root)) + 1
        place = str(path)[start:].partition("/")[0]
        if place in _OWN_ALONE:
            self._refuse_planted(place)
        return real


def _holds_something(directory: Path) -> bool:
    try:
        return next(directory.iterdir(), None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def inside(path: Path, root: Path, hint: str | None = None) -> Path:
    """Return `path` with resolved links; raises Forbidden if it lies outside the root."""
    top = _resolved(str(root))
    if _has_no_links(str(path), str(root)):
        return path if top == str(root) else Path(top + str(path)[len(str(root)) :])
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(top):
        raise Forbidden(
            f"{path} leads out of {root}, to {real}",
            hint=hint or "replace the symbolic link by a directory, or use --root",
        )
    return real


# Resolving a path stats each directory from `/` on, several times per session. So the result for a
# root is cached as long as its name leads to the same directory.
_resolved_before: dict[str, str] = {}


def _resolved(root: str) -> str:
    known = _resolved_before.get(root)
    if known is not None:
        with suppress(OSError):
            found = os.lstat(known)
            if known == root:
                if not stat.S_ISLNK(found.st_mode):
                    return known
            elif os.path.samestat(os.stat(root), found):
                return known
    real = os.path.realpath(root)
    if os.path.isabs(root):
        _resolved_before[root] = real
    return real


def _has_no_links(path: str, root: str) -> bool:
    """Return True if a path lies below a root and none of its existing parts is a link."""
    if not path.startswith(root + "/"):
        return False
    end = len(root)
    while end < len(path):
        start, end = end + 1, path.find("/", end + 1)
        end = end if end >= 0 else len(path)
        if path[start:end] == "..":
            return False
        try:
            if stat.S_ISLNK(os.lstat(path[:end]).st_mode):
                return False
        except FileNotFoundError:
            return ".." not in path[end:]
        except OSError:
            return False
    return True


def _inside_source(source: Source, agent: str) -> Path:
    directory = source.directory(agent)
    if directory is None:
        raise NotFound(f"there is no agent {agent}", hint="`bsd sessions` lists all sessions")
    top, real = os.path.realpath(source.path), os.path.realpath(directory)
    # With two names for a directory, a file would be two sessions.
    if real != str(Path(top, directory.relative_to(source.path))):
        raise Forbidden(f"{directory} is reached by a symbolic link, which bsd does not follow")
    return Path(real)


def plain_directories(agents: Path, agent: str) -> tuple[Path, Path] | None:
    """Return an agent's directory and its session directory; None unless both are real directories.

    `agents` is the directory of the root, with resolved links. Since neither directory is a link,
    the paths need not be resolved, which would take ten times as long.
    """
    if not _NAME.fullmatch(agent) or agent in {".", ".."}:
        return None
    own, sessions = _plain(agents, agent)
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(own).st_mode) and stat.S_ISDIR(os.lstat(sessions).st_mode):
            return own, sessions
    return None


@lru_cache(maxsize=10_000)
def _plain(agents: Path, agent: str) -> tuple[Path, Path]:
    """Return the same objects for the same names: a cache by path then compares identities."""
    return agents / agent, agents / agent / "sessions"
