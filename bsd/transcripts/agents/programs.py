"""The program of an agent's sessions: OpenClaw in the root, another program in a source.

Also decides which root serves a source: only one root of a user may, or two would edit the same
transcripts. A root that has edited sessions of a source records a claim in a small file of the user
running bsd, `$XDG_STATE_HOME/bsd/sources/<hash of the path>.json`. The claim contains an id of the
root: a root may be moved, and a copy of it counts as another root. If the directory of claims
cannot be read or written (a unit that protects homes), bsd logs that and relies on the transcripts
alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from filelock import FileLock, Timeout

from bsd.core.audit import AuditLog
from bsd.core.errors import (
    BsdError,
    ConfigError,
    LeftAlone,
    NotFound,
    TemporaryFailure,
    os_problem,
)
from bsd.core.files import (
    LARGEST_NOTE,
    holds,
    make_private_dir,
    read_plain,
    write_private,
)
from bsd.core.layout import Layout, SessionName
from bsd.core.locations import home, usual_roots
from bsd.core.sources import Source
from bsd.transcripts.agents.openclaw.home import RootAgent
from bsd.transcripts.agents.openclaw.setup import SETUP
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.program import ENDING, AgentProgram, Process, SourceKind
from bsd.transcripts.agents.setup_files import AgentSetup

if TYPE_CHECKING:  # start-up stays fast, since most calls load no settings
    from bsd.core.settings import SourceSettings


# By the program's name in the settings: the module with its `KIND`. A module is loaded when there
# is a source of its kind, since most calls need none of them.
KINDS: dict[str, str] = {
    "claude-code": "bsd.transcripts.agents.claude_code.program",
    "codex": "bsd.transcripts.agents.codex",
    "copilot": "bsd.transcripts.agents.copilot.program",
    "gemini": "bsd.transcripts.agents.gemini",
    "qwen": "bsd.transcripts.agents.qwen",
    "pi": "bsd.transcripts.agents.pi",
    "oh-my-pi": "bsd.transcripts.agents.oh_my_pi",
    "opencode": "bsd.transcripts.agents.opencode",
}


# The name of the program whose directory is a root of bsd; it is not a kind of source.
ROOT_KIND = "openclaw"


def kind_of(word: str) -> SourceKind:
    """Return the program with this name in the settings; raises KeyError."""
    kind: SourceKind = import_module(KINDS[word]).KIND
    return kind


def page_size_for(client: str | None) -> PageSize:
    """Return the size of an answer over MCP for a program, by the client name that it sends."""
    return kind_of(client).page_size if client in KINDS else OTHERS


def titles() -> dict[str, str]:
    """Return the names of all programs as users write them, by their names in the settings."""
    return {word: kind_of(word).title for word in KINDS} | {ROOT_KIND: SETUP.title}


def agent_setups() -> dict[str, AgentSetup]:
    """Return the programs that bsd can be set up for, by their names in the settings."""
    found = {}
    for word in KINDS:
        kind = kind_of(word)
        if kind.additions is not None and kind.usual_directory is not None:
            found[word] = AgentSetup(kind.title, kind.usual_directory, kind.additions)
    return {**found, ROOT_KIND: SETUP}


def program_of(layout: Layout, agent: str) -> AgentProgram:
    """Return the program of an agent's sessions; raises NotFound for a bad name of a source."""
    if source := layout.source_of(agent):
        # Only the name is checked, since lists call this for every session; opening checks more.
        directory = source.directory(agent) or layout.sessions_dir(agent)
        return kind_of(source.kind).program(source.path, directory)
    return RootAgent(layout, agent)


def title_of(layout: Layout, agent: str) -> str:
    """Return the name of the program of an agent's sessions, as users write it."""
    source = layout.source_of(agent)
    return kind_of(source.kind).title if source else SETUP.title


def in_use(layout: Layout, name: SessionName) -> str | None:
    """Return why a session counts as in use by its program; None if it does not."""
    return program_of(layout, name.agent).in_use(name.session)


def at_work(layout: Layout, process: Process) -> list[SessionName]:
    """Return the sessions in sources that a process has at work, if its program shows them.

    OpenClaw shows no sessions, so none of the root are included.
    """
    found: list[SessionName] = []
    for source in layout.sources:
        for path in kind_of(source.kind).at_work(source.path, process):
            agent = source.agent_at(path.parent)
            if agent is not None and program_of(layout, agent).is_session_file(path.name):
                found.append(SessionName(agent, path.name.removesuffix(ENDING)))
    return found


def session_at(layout: Layout, kind: str, transcript: Path) -> SessionName | None:
    """Return the session whose transcript a program of this kind names, without opening files.

    None for a path outside of the sources of this kind, and for a path that is not a session's.
    """
    directory = Path(os.path.realpath(transcript.parent))
    for source in layout.sources:
        top = os.path.realpath(source.path)
        if source.kind == kind and directory.is_relative_to(top):
            agent = source.agent_at(source.path / directory.relative_to(top))
            if agent is not None and program_of(layout, agent).is_session_file(transcript.name):
                return SessionName(agent, transcript.name.removesuffix(ENDING))
    return None


def layout_of(
    root: Path, sources: Iterable[SourceSettings], exclude: tuple[str, ...] = ()
) -> Layout:
    """Return the layout for these settings; raises ConfigError for a source of unknown kind."""
    return Layout(root, tuple(map(_source, sources)), exclude=exclude)


def _source(given: SourceSettings) -> Source:
    if given.kind not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(
            f"the source {given.path} is of unknown kind {given.kind!r}",
            hint=f"write one of {known} as its kind under [[sources]] in bsd.toml",
        )
    kind = kind_of(given.kind)
    if kind.called is not None and given.path.name != kind.called:
        raise ConfigError(
            f"the source {given.path} is not {given.kind}'s directory of sessions",
            hint=f"name the directory called {kind.called}",
        )
    return Source(
        given.called,
        given.kind,
        given.path,
        kind.routes,
        kind.program_archive,
        kind.project_directory,
        kind.compresses,
    )


def why_not_followed(layout: Layout, source: Source, link: Path) -> tuple[str, str] | None:
    """Return the reason why a link below a source is not followed, and a hint.

    None if it leads to a directory that is served anyway, since a directory has only one name.
    """
    target = Path(os.path.realpath(link))
    if layout.holds(target):
        return None
    called, top = kind_of(source.kind).called, target.parent
    hint = "replace the link with the directory itself"
    if called in (None, top.name):
        hint = f"name {top} as a source of its own ([[sources]] in bsd.toml), or {hint}"
    what = f"{link} is a symbolic link to {target}, which bsd does not follow there"
    return f"{what}: the sessions in it are left alone", hint


# --- which root serves a source ---

_log = structlog.stdlib.get_logger(module="sources")

_MARKER = b'"_extracted":{"ref"'
# A search for placeholders in a source takes long, so its result is cached for some time.
_LOOK_AGAIN_SECONDS = 300.0
_WAIT_SECONDS = 5.0

_looked: dict[str, tuple[float, bool]] = {}
_told: set[str] = set()


@dataclass(frozen=True, slots=True)
class Claim:
    """A root's claim to a source: real paths, with their devices and inodes at that time."""

    source: str
    dev: int
    ino: int
    root: str
    root_id: str
    root_dev: int

    @classmethod
    def from_json(cls, document: Any) -> Claim:
        """Read a claim; raises KeyError, TypeError or ValueError for any other document."""
        numbers = [document[name] for name in ("dev", "ino", "root_dev")]
        texts = [document[name] for name in ("source", "root", "root_id")]
        if not all(isinstance(one, int) for one in numbers):
            raise TypeError("a number is not valid")
        if not all(isinstance(one, str) for one in texts):
            raise TypeError("a text is not valid")
        # Relative paths would depend on the current directory.
        if not all(text.startswith("/") and b"\0" not in os.fsencode(text) for text in texts[:2]):
            raise ValueError("a path is not valid")
        dev, ino, root_dev = numbers
        return cls(texts[0], dev, ino, texts[1], texts[2], root_dev)


def claims_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of this user's claims."""
    base = environ.get("XDG_STATE_HOME", "")
    directory = Path(base) if base.startswith("/") else home(environ) / ".local" / "state"
    return directory / "bsd" / "sources"


def secure(layout: Layout, source: Source, *, edits: bool = False) -> None:
    """Make sure that this root may edit the sessions of a source.

    An unclaimed source is claimed if this root has extracted from it before, or is about to change
    a session (`edits`); looking for work is no reason for a claim.

    Raises:
        LeftAlone: another root serves the source; the message names it.
    """
    if why := elsewhere(layout, source, look_inside=True):
        raise LeftAlone(why, hint=_way_out(source))
    claim = _claim_to(source)
    is_ours = claim is not None and _is_of(claim, layout)
    if claim is not None and is_ours and claim.root == os.path.realpath(layout.root):
        return
    if not (edits or is_ours or has_served(layout, source)):
        return
    try:
        take(layout, source, forced=False)
    except LeftAlone:
        raise
    except BsdError as problem:
        _tell_once(f"The claim to the source {source.name} cannot be recorded: {problem.message}")


def elsewhere(layout: Layout, source: Source, *, look_inside: bool = False) -> str | None:
    """Return why this root must not edit a source; None if it may.

    Args:
        look_inside: if the claims cannot be read here, another root may serve an unclaimed source.
            In that case, search the source for placeholders of another root. If the claims can be
            read, only the sessions with such placeholders are left alone (`bsd.sessions.foreign`).
    """
    claim = _claim_to(source)
    if claim is not None and not _is_of(claim, layout) and not _is_void(claim):
        return f"{source.name} is served by the root {claim.root}"
    claimed = claim is not None and _is_of(claim, layout)
    if (
        look_inside
        and not claimed
        and not _are_claims_kept()
        and not has_served(layout, source)
        and _is_served(source)
    ):
        return f"{source.name} holds placeholders of another root, whose store is not in this root"
    return None


def take(layout: Layout, source: Source, *, forced: bool = True) -> str | None:
    """Let this root serve a source from now on; return the root that served it before.

    Args:
        forced: take over the source even if another root serves it.

    Raises:
        LeftAlone: another root serves the source, and `forced` is False.
        BsdError: the claim cannot be written.
    """
    directory = claims_directory()
    try:
        make_private_dir(directory)
        # Under a lock: if two roots begin at once, the second root finds the claim of the first.
        with _lock(directory):
            before = _claim_to(source)
            if not forced and (why := elsewhere(layout, source)):
                raise LeftAlone(why, hint=_way_out(source))
            _write_claim(directory, layout, source)
    except FileNotFoundError:
        hint = "correct `path` under [[sources]] in bsd.toml"
        raise NotFound(f"there is no directory {source.path}", hint=hint) from None
    except Timeout:
        raise TemporaryFailure(f"another bsd is writing to {directory}; run it again") from None
    except OSError as error:
        raise os_problem(error, f"writing into {directory}") from error
    other = before is not None and not _is_of(before, layout)
    _log.info("A source is served from here", source=source.name, root=str(layout.root))
    return before.root if before is not None and other else None


def give_up_claims(layout: Layout) -> list[str]:
    """Delete this root's claims to sources, and return their paths; raises BsdError."""
    directory = claims_directory()
    if not directory.is_dir():
        return []
    gone = []
    try:
        with _lock(directory):
            for path, claim in list(_claims_in(directory)):
                if _is_of(claim, layout):
                    path.unlink(missing_ok=True)
                    gone.append(str(path))
    except Timeout:
        raise TemporaryFailure(f"another bsd is writing to {directory}; run it again") from None
    except OSError as error:
        raise os_problem(error, f"writing into {directory}") from error
    return gone


def _lock(directory: Path) -> FileLock:
    return FileLock(directory / ".lock", timeout=_WAIT_SECONDS, mode=0o600, fallback_to_soft=False)


def served_by(layout: Layout, source: Source) -> str | None:
    """Return the root that has claimed a source; None if no root has."""
    claim = _claim_to(source)
    if claim is None or _is_void(claim):
        return None
    return str(layout.root) if _is_of(claim, layout) else claim.root


def _write_claim(directory: Path, layout: Layout, source: Source) -> None:
    real = os.path.realpath(source.path)
    at, root = os.stat(real), os.path.realpath(layout.root)
    claim = Claim(real, at.st_dev, at.st_ino, root, own_id(layout), os.stat(root).st_dev)
    for path, known in list(_claims_in(directory)):
        if _is_about(known, source):
            path.unlink(missing_ok=True)  # the source may have had another name then
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    # Not orjson, since a path may contain invalid UTF-8.
    write_private(directory / f"{name}.json", json.dumps(asdict(claim), indent=2).encode() + b"\n")


def own_id(layout: Layout) -> str:
    """Return the id of a root, 32 hex digits; a root without one gets it. Raises OSError."""
    if known := _id_of(layout.root):
        return known
    new = secrets.token_hex(16)
    write_private(layout.root_id_file, new.encode() + b"\n")
    return new


def _id_of(root: Path | str) -> str:
    """Return the id of a root; empty if the root is missing or has none. Raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        said = read_plain(Layout(Path(root)).root_id_file, LARGEST_NOTE)
        return said.decode("ascii", "replace").strip()
    return ""


# --- claims ---


def _are_claims_kept() -> bool:
    """Return whether the claims of this user can be read and written, or could be created."""
    place = claims_directory()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    return os.access(place, os.R_OK | os.W_OK | os.X_OK)


def other_roots(layout: Layout) -> list[str]:
    """Return the other roots of this user: roots that serve sources, and the usual roots."""
    claims = (claim for _, claim in _claims_in(claims_directory()))
    found = {claim.root for claim in claims if not _is_of(claim, layout) and not _is_void(claim)}
    usual = (root for root in usual_roots(os.environ) if (root / ".brainsurgeon").is_dir())
    found |= {os.path.realpath(root) for root in usual}
    return sorted(found - {os.path.realpath(layout.root), str(layout.root)})


def _claim_to(source: Source) -> Claim | None:
    """Return the claim to a source, even if the source was renamed since."""
    claims = (claim for _, claim in _claims_in(claims_directory()))
    return next((claim for claim in claims if _is_about(claim, source)), None)


def _claims_in(directory: Path) -> Iterator[tuple[Path, Claim]]:
    for path in sorted(directory.glob("*.json")):
        try:
            yield path, Claim.from_json(json.loads(read_plain(path, LARGEST_NOTE)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            _tell_once(f"The claim {path} cannot be read: {error}")


def _is_about(claim: Claim, source: Source) -> bool:
    if claim.source == os.path.realpath(source.path):
        return True
    try:
        here = os.stat(source.path)
    except OSError:
        return False
    try:
        there = os.stat(claim.source)
    except OSError:  # it may have been renamed
        return (claim.dev, claim.ino) == (here.st_dev, here.st_ino)
    return os.path.samestat(there, here)


def _is_of(claim: Claim, layout: Layout) -> bool:
    """Return whether a claim is of this root, even if moved; a copy of the root is another root."""
    try:
        if not claim.root_id or _id_of(layout.root) != claim.root_id:
            return False
        if claim.root == os.path.realpath(layout.root):
            return True
        # If the old path still has the id, this is a copy, or the same directory by another path.
        return _id_of(claim.root) != claim.root_id or os.path.samefile(claim.root, layout.root)
    except OSError:
        return False


def _is_void(claim: Claim) -> bool:
    """Return whether the root of a claim is gone, and not merely on a disk that is not mounted."""
    try:
        if _id_of(claim.root) == claim.root_id:
            return False
        place = Path(claim.root)
        while not place.exists():
            place = place.parent
        return place.stat().st_dev == claim.root_dev
    except OSError:
        return False


# --- signs of bsd in roots and sources ---


def has_served(layout: Layout, source: Source) -> bool:
    """Return whether this root has ever extracted from a source."""
    prefix = f"{source.name.replace('_', '~')}:"
    for directory in (layout.extracted, layout.archive, layout.history):
        with suppress(OSError):
            if any(name.startswith(prefix) for name in os.listdir(directory)):
                return True
    with suppress(BsdError):
        audited = AuditLog(layout.audit_file).search(f'"agent":"{source.name}:'.encode())
        return next(audited, None) is not None
    return False


def _is_served(source: Source) -> bool:
    """Return whether any root has extracted from a session of a source."""
    key, now = str(source.path), time.monotonic()
    if key in _looked and now - _looked[key][0] < _LOOK_AGAIN_SECONDS:
        return _looked[key][1]
    found = any(holds(path, _MARKER) for path in _sessions(source))
    _looked[key] = (now, found)
    return found


def _sessions(source: Source) -> Iterator[str]:
    with suppress(OSError):
        for _, directory in source.directories():
            with suppress(OSError), os.scandir(directory) as entries:
                yield from (entry.path for entry in entries if entry.name.endswith(".jsonl"))
        yield from (entry.path for _, entry in source.archived_files())


def _way_out(source: Source) -> str:
    return f"work on it with that root (--root), or move it here: `bsd sources claim {source.name}`"


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        _log.warning(text)
