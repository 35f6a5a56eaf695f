"""Every path on disk, once; and the only way from a name to a path (SPEC §2.8)."""

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
COPY = "session-"  # begins the name of each copy of a session, in its directory in the archive
# Directories of a root that only bsd creates, and whose content it acts on.
_OWN_ALONE = (".brainsurgeon", "archive")


def check_name(text: str, what: str) -> str:
    """Return `text` if it may be an agent's or a session's name, else raise Invalid."""
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
    """Return a place in a root; making a path takes longer than looking it up."""
    return root / place


class _Place:
    """A path below every root."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        return _at(layout.root, self._place)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of all files under one root; beside it, only sessions in sources lie elsewhere."""

    root: Path
    sources: tuple[Source, ...] = ()  # data taken from them lies in the root all the same
    # The caller may reach this session only: of other sessions' content, that of its origins.
    bound_to: SessionName | None = None
    # Patterns of bsd.toml, beside those of config.json; None: nothing is left out here.
    exclude: tuple[str, ...] | None = ()

    agents = _Place("agents")
    extracted = _Place("extracted")
    archive = _Place("archive")
    """What has left the store, and sessions that may go, compressed: a directory for each."""
    trash = _Place("trash")
    log_file = _Place("logs/brainsurgeon.log")
    facts_db = _Place("memory/facts.db")
    """The facts of agents, unless the settings name another file; where the plugin has them."""

    own = _Place(".brainsurgeon")
    """Everything that is ours alone: settings, locks, records, audit."""
    config_file = _Place(".brainsurgeon/config.json")
    audit_file = _Place(".brainsurgeon/audit.jsonl")
    state_db = _Place(".brainsurgeon/state.db")
    """What was settled in each session; losing it loses only speed."""
    search_db = _Place(".brainsurgeon/search.db")
    """The full-text index of sessions and their figures; it can be rebuilt."""
    sizes_file = _Place(".brainsurgeon/sizes.jsonl")
    """What sessions and bsd took on disk, a line a day."""
    root_id_file = _Place(".brainsurgeon/root-id")
    """By which a root is known to the sources that it serves, wherever it is moved."""
    told_file = _Place(".brainsurgeon/told.json")
    """Which agents that bsd does not look after the user was told about."""
    agents_file = _Place(".brainsurgeon/agents.json")
    """What bsd has added to files of agents' programs, so that it can be taken away."""
    agents_lock = _Place(".brainsurgeon/agents.lock")
    """Held by the process that turns an agent on or off."""
    clock_file = _Place(".brainsurgeon/clock.json")
    """What is known of this machine's clock, so that no run deletes by a wrong one."""
    forgetting = _Place(".brainsurgeon/forgetting")
    """The journal of `forget`, so that an interrupted one is completed."""
    redacting = _Place(".brainsurgeon/redacting")
    """The journals of redactions, by which an interrupted one is told and completed."""
    letting_go = _Place(".brainsurgeon/letting-go")
    """There while content is deleted whose words the search index still has."""
    locks = _Place(".brainsurgeon/locks")
    instance_lock = _Place(".brainsurgeon/bsd.lock")
    """Held by the daemon of this root, of which there is one."""
    history = _Place(".brainsurgeon/history")
    """What undo needs, one directory for each session."""
    edits = _Place(".brainsurgeon/edits")
    """Entries that people are editing, and what they wrote that could not be applied."""
    inflight = _Place(".brainsurgeon/inflight")
    """Where commits keep what is in flight, if this is on the session's mount (DESIGN §4.0)."""
    pauses_file = _Place(".brainsurgeon/pauses.json")
    """Which sessions are only looked at for a while."""
    orphans = _Place(".brainsurgeon/orphans")
    """Late bytes that could not be put back into their session (DESIGN §4, rules c and e)."""
    moving = _Place(".brainsurgeon/moving")
    """Crash journals, see `maintenance/journal.py`: of sessions on their way, among others."""

    def has_moves(self) -> bool:
        """Whether a way into the trash or out of it, or a forgetting, may have been cut off."""
        return any(map(_holds_something, (self.moving, self.forgetting)))

    # --- the excluded sessions ---

    def exclusions(self) -> Exclusions:
        """Return the exclusions by the present settings; raises ConfigError."""
        if self.exclude is None:
            return exclude.exclusions((), (), ())
        return exclude.exclusions(exclude.named_in(self.config_file), self.exclude, self.sources)

    def excluded(self, name: SessionName) -> Exclusion | None:
        """Return the pattern by which a session is never looked at; raises ConfigError."""
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
        """The source in which an agent's sessions lie; None is the root."""
        name = agent.partition(":")[0]
        return next((each for each in self.sources if name == each.name and name != agent), None)

    def sessions_dir(self, agent: str) -> Path:
        """An agent's session directory, links resolved.

        Raises Forbidden if it leaves the root, or its source.
        """
        check_name(agent, "agent")
        if source := self.source_of(agent):
            return _inside_source(source, agent)
        return self._inside(_at(self.root, f"agents/{agent}/sessions"))

    def has_agent(self, agent: str) -> bool:
        """Whether there is an agent of this name; raises Invalid, Forbidden."""
        directory = self.sessions_dir(agent)
        if self.source_of(agent) is None:
            return os.path.isdir(self.agents / agent)
        return os.path.isdir(directory) or agent in self.program_archive()

    def session_dirs(self) -> Iterator[tuple[str, Path]]:
        """All agents in sources, and their directories; those that cannot be read are left out."""
        for source in self.sources:
            with suppress(OSError):
                yield from source.directories()

    def program_archive(self) -> dict[str, list[os.DirEntry[str]]]:
        """Files that programs have put away, by agent; those that cannot be read are left out."""
        found: dict[str, list[os.DirEntry[str]]] = {}
        for source in self.sources:
            with suppress(OSError):
                for agent, file in source.archived_files():
                    found.setdefault(agent, []).append(file)
        return found

    def archived_dirs(self) -> Iterator[Path]:
        """The directories into which programs put sessions away."""
        return filter(None, (source.archived_in for source in self.sources))

    def holds(self, path: Path) -> bool:
        """Whether something lies in the root or in a source, links resolved."""
        real = Path(os.path.realpath(path))
        tops = (self.root, *(source.path for source in self.sources), *self.archived_dirs())
        return any(real.is_relative_to(os.path.realpath(top)) for top in tops)

    def transcript(self, name: SessionName) -> Path:
        """Return the path of the transcript of `name`, present or not; raises as `sessions_dir`.

        Its program may have archived it; a file in the agent's own directory comes first.
        """
        path = self.sessions_dir(name.agent) / f"{name.session}.jsonl"
        if away := self._put_away_at(name):
            return path if os.path.lexists(path) or not os.path.lexists(away) else away
        return path

    def places_of(self, name: SessionName) -> list[Path]:
        """Return the possible paths of a transcript, links resolved; none if its agent is gone."""
        found = []
        with suppress(NotFound, Forbidden):
            found.append(Path(os.path.realpath(self.sessions_dir(name.agent))))
        if away := self._put_away_at(name):
            found.append(Path(os.path.realpath(away.parent)))
        return [directory / f"{name.session}.jsonl" for directory in found]

    def archived_as(self, name: SessionName) -> str | None:
        """Return the name under which its program has archived a session; None if it has not."""
        away = self._put_away_at(name)
        source = self.source_of(name.agent)
        if away is None or source is None or source.program_archive is None:
            return None
        return source.program_archive.status if self.transcript(name) == away else None

    def _put_away_at(self, name: SessionName) -> Path | None:
        """Return the path of the session if its program had archived it."""
        source, file = self.source_of(name.agent), f"{name.session}.jsonl"
        if source is None or source.agent_of(file) != name.agent:
            return None
        directory = source.archived_in
        return directory / file if directory else None

    def session_file(self, name: SessionName) -> Path:
        """The transcript of `name`: a regular file inside the root; raises NotFound, Forbidden."""
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
                hint="replace it by the file itself: bsd edits plain files, and follows no links",
            )
        return path

    def no_session(self, name: SessionName) -> NotFound:
        """Return the error for a session that is not in its place; it says if a copy is kept."""
        if not self.has_copy(name):
            return NotFound(f"there is no session {name}", hint="`bsd sessions` lists them")
        hint = f"`bsd archive show {name}`; `bsd archive bring-back {name}` puts it in its place"
        return NotFound(f"there is no session {name} in its place: the archive has it", hint=hint)

    def has_copy(self, name: SessionName) -> bool:
        """Whether the archive has a copy of a whole session of this name."""
        with suppress(OSError, Forbidden):
            return any(each.startswith(COPY) for each in os.listdir(self.archive_dir(name)))
        return False

    def store_dir(self, name: SessionName) -> Path:
        """Where the session's extracted values lie: `extracted/<agent>_<session>`, links resolved.

        Raises Forbidden if a link leads out of the root.
        """
        return self._inside(self.extracted / self.store_name(name))

    def history_dir(self, name: SessionName) -> Path:
        """Return the directory of the session's history, named as its store; raises Forbidden."""
        return self._inside(self.history / self.store_name(name))

    def archive_dir(self, name: SessionName) -> Path:
        """Return the session's directory in the archive, named as its store; raises Forbidden."""
        return self._inside(self.archive / self.store_name(name))

    def memory_dir(self, agent: str) -> Path:
        """Return the directory for copies of the notes of an agent's program for all its sessions.

        No session's directory is called so: those have an `_`. Raises Forbidden as `store_dir`.
        """
        return self._inside(self.archive / agent.replace("_", "~") / "memory")

    def store_name(self, name: SessionName) -> str:
        """Return the name of store, history and lock, with which names in the trash begin.

        No two sessions share it: an `_` in the agent's name becomes `~`, which no name may hold, so
        the first `_` always ends the agent. A name too long for a file name is cut and gets a hash.
        """
        text = f"{name.agent.replace('_', '~')}_{name.session}"
        if len(text) > _LONGEST_STORE_NAME:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            text = f"{text[:_LONGEST_STORE_NAME]}~{digest}"
        return text

    def session_of_store(self, store: str) -> SessionName | None:
        """Return the session of a store's name; None if there is none, or the name was cut."""
        agent, _, session = store.partition("_")
        with suppress(Invalid):
            name = SessionName(agent.replace("~", "_"), session)
            return name if self.store_name(name) == store else None
        return None

    def trash_dir(self) -> Path:
        """Return the trash directory, links resolved; raises Forbidden if it leaves the root."""
        return self._inside(self.trash)

    def lock_file(self, name: SessionName) -> Path:
        """bsd's own lock of a session (not the gateway's); raises Forbidden as `store_dir`."""
        return self.lock_file_of(self.store_name(name))

    def lock_file_of(self, store: str) -> Path:
        """The same, by the name of the session's store directory."""
        return self.refuse_outside(self.locks) / f"{store}.lock"

    def refuse_outside(self, path: Path, hint: str | None = None) -> Path:
        """`path` as it is named; raises Forbidden if a link leads out of the root."""
        self._inside(path, hint)
        return path

    def refuse_planted(self) -> None:
        """Raise Forbidden if a directory that is bsd's alone was made by another user."""
        for place in _OWN_ALONE:
            self._refuse_planted(place)

    def _refuse_planted(self, place: str) -> None:
        path = f"{self.root}/{place}"
        try:
            uid = os.stat(path).st_uid
            if uid in {0, os.geteuid()} or uid == os.stat(self.root).st_uid:
                return
        except OSError:  # it does not exist, or the code that reads it reports the error
            return
        raise Forbidden(
            f"{path} belongs to uid {uid}, and neither to the owner of {self.root} nor to root: "
            "nothing in it is believed",
            hint=f"look at who made it; if it is bsd's own, `chown -R` it to the owner of "
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
    """`path`, links resolved; raises Forbidden if one leads out of the root."""
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


# Resolving takes a look at each directory from `/` on, several times for every session: the result
# for a root holds as long as its name leads to the same directory.
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
    """Whether a path goes down from a root, and nothing on its way is a link, as far as it is."""
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
        raise NotFound(f"there is no agent {agent}", hint="`bsd sessions` lists what there is")
    top, real = os.path.realpath(source.path), os.path.realpath(directory)
    # Two names for one directory would be two sessions in one file.
    if real != str(Path(top, directory.relative_to(source.path))):
        raise Forbidden(f"{directory} is reached by a symbolic link, and bsd follows none there")
    return Path(real)


def plain_directories(agents: Path, agent: str) -> tuple[Path, Path] | None:
    """An agent's own directory and that of its sessions, if both are directories and no links.

    `agents` is that of the root, and no link leads out of there: then nothing else need be
    resolved, which takes ten times as long.
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
    """Return the same object for the same path, so that a cache by path compares identities."""
    return agents / agent, agents / agent / "sessions"
