"""A deleted session in the trash: its parts, its meta file, and the answers about it.

The trash has these items for each session: the transcript `<name>_<time>.jsonl`; the directories of
its store, archive and history, `<name>_extracted_<time>/`, `<name>_archive_<time>/` and
`<name>_history_<time>/`; and the meta file `<name>_<time>.meta.json`. `<name>` is the unique name
of the session's store directory, and `<name>_<time>` is the id. Each part except the meta file may
be missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, Field

from bsd.core.answers import Internal, as_json
from bsd.core.errors import BsdError, Conflict, Invalid, os_problem
from bsd.core.files import (
    MEND_PLANTED,
    NotPlain,
    TooLarge,
    makers,
    plain_file,
    skip_hole,
    why_not_our_file,
)
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.journal import read_json
from bsd.store.index import INDEX_FILE

_META = ".meta.json"
# Errors that a damaged or foreign document can cause when it is read.
BROKEN = (
    *(NotPlain, TooLarge, BsdError, RecursionError),
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError),
)
_ID = re.compile(r"([A-Za-z0-9._@:+~-]+(?:_[A-Za-z0-9._@:+~_-]+)?)_(\d{8}T\d{6}\.\d{3}Z)")


@dataclass(frozen=True, slots=True)
class TrashPlace:
    """The paths of the parts of a deleted session, made from its id alone."""

    trash: Path
    id: str

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise Invalid(f"{self.id!r} is not an id of the trash", hint="`bsd trash list`")

    @classmethod
    def of(cls, meta: Path) -> TrashPlace:
        """Return the place of the session to which a meta file belongs."""
        return cls(meta.parent, meta.name.removesuffix(_META))

    @classmethod
    def new(cls, layout: Layout, name: SessionName, now: float) -> TrashPlace:
        """Return a free place for a session. The caller holds bsd's lock of the session."""
        trash, millis = layout.trash_dir(), round(now * 1000)
        while True:
            place = cls(trash, f"{layout.store_name(name)}_{_stamp(millis)}")
            if not any(path.exists() for path in place.parts):
                return place
            millis += 1

    @property
    def parts(self) -> tuple[Path, ...]:
        """The paths of all parts, the meta file last."""
        return self.transcript, self.store, self.archive, self.history, self.meta

    @property
    def is_there(self) -> bool:
        """True if any part is in the trash."""
        return any(map(os.path.lexists, self.parts))

    @property
    def base(self) -> str:
        """The name of the session's store directory and lock."""
        return self.id.rpartition("_")[0]

    def name(self, layout: Layout) -> SessionName | None:
        """Return the session's name; None if the id has only a shortened name."""
        return layout.session_of_store(self.base)

    @property
    def trashed_at(self) -> float:
        """When the session was deleted, epoch seconds."""
        return datetime.strptime(
            self.id.rpartition("_")[2].replace("Z", "+0000"), "%Y%m%dT%H%M%S.%f%z"
        ).timestamp()

    @property
    def meta(self) -> Path:
        return self.trash / f"{self.id}{_META}"

    @property
    def transcript(self) -> Path:
        return self.trash / f"{self.id}.jsonl"

    @property
    def store(self) -> Path:
        return self.trash / f"{self.base}_extracted_{self.id.rpartition('_')[2]}"

    @property
    def archive(self) -> Path:
        return self.trash / f"{self.base}_archive_{self.id.rpartition('_')[2]}"

    @property
    def history(self) -> Path:
        return self.trash / f"{self.base}_history_{self.id.rpartition('_')[2]}"

    def directories(self, layout: Layout, name: SessionName) -> list[tuple[Path, Path]]:
        """Return store, archive and history as pairs: (usual place, place in the trash)."""
        return [
            (layout.store_dir(name), self.store),
            (layout.archive_dir(name), self.archive),
            (layout.history_dir(name), self.history),
        ]

    def has_taken(self, session: Path) -> bool:
        """Return True if the session's transcript has moved to the trash or to its hidden name."""
        return any(map(os.path.lexists, (self.transcript, self.beside(session, "deleted"))))

    def beside(self, session: Path, what: str) -> Path:
        """Return a hidden path beside the session's file that programs take for no session."""
        return session.with_name(f".{hashlib.sha256(self.id.encode()).hexdigest()[:16]}.bsd-{what}")


def _stamp(millis: int) -> str:
    moment = datetime.fromtimestamp(millis // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{millis % 1000:03}Z"


@dataclass(frozen=True, kw_only=True)
class Trashed:
    """A session in the trash. Sizes are bytes, times ISO 8601."""

    schema_name: ClassVar[str] = "TrashItem"

    id: str
    name: Internal[SessionName]
    session: str = field(init=False, default="")
    original_agent: str = field(init=False, default="")
    original_session_id: str = field(init=False, default="")
    original_path: str
    trashed_at: Internal[float]  # epoch seconds
    trashed: Annotated[str, Field(serialization_alias="trashed_at")] = field(init=False, default="")
    # Epoch seconds. It follows the present setting `trash_retention`; None: never.
    expires_at: Internal[float | None]
    expires: Annotated[str | None, Field(serialization_alias="expires_at")] = field(
        init=False, default=None
    )
    parent: str | None  # id of the parent with which it was deleted
    entries: Annotated[int, Field(serialization_alias="entry_count")] = 0
    # The transcript's inode, size, mtime in ns and mode. None: there was no transcript.
    transcript: Internal[tuple[int, int, int, int] | None]
    size: int = field(init=False, default=0)
    extracted_files: int = 0
    extracted_bytes: int = 0
    # Its entries in its program's list, see `AgentProgram.unlist`.
    sessions_json: Internal[str | None] = None
    keys: tuple[str, ...] = field(init=False, default=())
    problem: Annotated[
        str | None,
        Field(description="Why its meta file is unusable: the session can only be deleted"),
    ] = None

    def __post_init__(self) -> None:
        """Compute the fields that derive from others."""
        entries = json.loads(self.sessions_json or "{}")
        expires = None if self.expires_at is None else iso_utc(self.expires_at)
        fill = object.__setattr__
        fill(self, "session", str(self.name))
        fill(self, "original_agent", self.name.agent)
        fill(self, "original_session_id", self.name.session)
        fill(self, "trashed", iso_utc(self.trashed_at))
        fill(self, "expires", expires)
        fill(self, "size", self.transcript[1] if self.transcript else 0)
        fill(self, "keys", tuple(key for key, value in entries.items() if value != 0))

    def document(self) -> dict[str, Any]:
        """Return the content of the meta file: the answer's fields and the data for a restore."""
        return {
            "format": 1,
            **as_json(self),
            "transcript": self.transcript,
            "sessions_json": self.sessions_json,
        }

    @classmethod
    def of(cls, document: Any) -> Trashed:
        """Read the content of a meta file; raises ValueError, Invalid."""
        said = _TrashDocument.model_validate(document)
        if not _ID.fullmatch(said.id):
            raise ValueError(f"{said.id!r} is not an id")
        return cls(
            id=said.id,
            name=SessionName.parse(said.session),
            trashed_at=said.trashed_at.timestamp(),
            expires_at=None if said.expires_at is None else said.expires_at.timestamp(),
            parent=said.parent,
            original_path=said.original_path,
            transcript=said.transcript,
            entries=said.entry_count,
            extracted_files=said.extracted_files,
            extracted_bytes=said.extracted_bytes,
            sessions_json=said.sessions_json,
        )


class _TrashDocument(BaseModel):
    """The members that are read from a meta file, or from a session in a journal."""

    format: Literal[1]
    id: str
    session: str
    original_path: str
    trashed_at: AwareDatetime
    expires_at: AwareDatetime | None
    parent: str | None
    entry_count: int
    transcript: tuple[int, int, int, int] | None
    extracted_files: int
    extracted_bytes: int
    sessions_json: str | None


def why_not_ours(layout: Layout, path: Path) -> str | None:
    """Return why a file in the trash, or a journal, is not trusted; raises OSError."""
    return why_not_our_file(path.lstat(), makers(layout.root))


def read_meta(layout: Layout, path: Path) -> Trashed:
    """Read a meta file; raises Conflict if it is damaged or not bsd's own, OSError."""
    if why := why_not_ours(layout, path):
        raise Conflict(f"{path} is not bsd's own: {why}", hint=MEND_PLANTED.format(path))
    try:
        found = Trashed.of(read_json(path))
        if found.id != path.name.removesuffix(_META):
            raise ValueError(found.id)
        refuse_another(layout, path.parent, found)
    except BROKEN as error:
        raise Conflict(
            f"{path} cannot be used: {error!r}",
            hint=f"the session's files are beside it; "
            f"`bsd trash delete {path.name[: -len(_META)]} --yes` removes them",
        ) from error
    return found


def refuse_another(layout: Layout, trash: Path, item: Trashed) -> None:
    """Raise ValueError unless the item's id belongs to its session."""
    if TrashPlace(trash, item.id).base != layout.store_name(item.name):
        raise ValueError(f"{item.id} is not an id of {item.name}")


def ids(layout: Layout) -> list[str]:
    """Return the ids of all sessions in the trash, oldest first; raises BsdError.

    Sessions that are being moved, or have lost their meta file, are included.
    """
    trash = layout.trash_dir()
    try:
        found = {_id_of(name) for name in os.listdir(trash)}
    except FileNotFoundError:
        return []
    except OSError as error:
        raise os_problem(error, f"reading {trash}") from error
    known = (each for each in found if each is not None and _ID.fullmatch(each))
    return sorted(known, key=lambda each: each.rpartition("_")[::-1])


def _id_of(part: str) -> str | None:
    """Return the id to which a file or directory of this name would belong, if any."""
    for ending in (_META, ".jsonl"):
        if part.endswith(ending):
            return part.removesuffix(ending)
    for what in ("_extracted_", "_archive_", "_history_"):
        base, found, stamp = part.rpartition(what)
        if found:
            return f"{base}_{stamp}"
    return None


def transcripts(layout: Layout) -> Iterator[tuple[SessionName, TrashPlace]]:
    """Yield the sessions whose transcripts are in the trash, including sessions just being moved.

    Raises BsdError.
    """
    trash = layout.trash_dir()
    try:
        names = os.listdir(trash)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise os_problem(error, f"reading {trash}") from error
    for each in sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")):
        if _ID.fullmatch(each):
            place = TrashPlace(trash, each)
            name = place.name(layout)
            if name is None:
                name = _beginning_of_a_name(place.base)
                with suppress(BsdError, OSError):  # the meta file has the whole name
                    name = read_meta(layout, place.meta).name
            yield name, place


@dataclass(frozen=True, slots=True)
class DeletedSession:
    """One session that was deleted. Sizes are bytes."""

    session: str
    trash_id: str | None
    size: int
    extracted_files: int
    extracted_bytes: int
    keys: Annotated[list[str], Field(description="The keys in its program's list that named it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The result of a delete: the requested session first, then its children."""

    items: Internal[tuple[Trashed, ...]]
    permanent: Internal[bool]
    deleted: bool = True
    session: str
    moved_to_trash: bool
    trash_id: str | None
    children_deleted: int
    bytes: int
    extracted_files: int
    extracted_bytes: int
    sessions: tuple[DeletedSession, ...]

    @classmethod
    def of(cls, items: Sequence[Trashed], *, permanent: bool) -> Deleted:
        """Return the answer for these sessions."""
        return cls(
            items=tuple(items),
            permanent=permanent,
            session=items[0].session,
            moved_to_trash=not permanent,
            trash_id=None if permanent else items[0].id,
            children_deleted=len(items) - 1,
            bytes=sum(item.size for item in items),
            extracted_files=sum(item.extracted_files for item in items),
            extracted_bytes=sum(item.extracted_bytes for item in items),
            sessions=tuple(
                DeletedSession(
                    item.session,
                    None if permanent else item.id,
                    item.size,
                    item.extracted_files,
                    item.extracted_bytes,
                    list(item.keys),
                )
                for item in items
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The result of a restore from the trash: the requested session first, then its children."""

    items: Internal[tuple[Trashed, ...]]
    restored: bool = True
    id: str
    session: str
    sessions: list[str]
    bytes: int
    extracted_files: int
    extracted_bytes: int
    keys_taken: Annotated[
        tuple[str, ...],
        Field(description="Keys in its program's list that name other sessions now"),
    ]
    not_restored: Annotated[
        dict[str, str], Field(description="By id of a child that stays in the trash: the reason")
    ]

    @classmethod
    def of(
        cls,
        items: Sequence[Trashed],
        keys_taken: Iterable[str],
        not_restored: Mapping[str, BsdError],
    ) -> Returned:
        """Return the answer for these sessions."""
        return cls(
            items=tuple(items),
            id=items[0].id,
            session=items[0].session,
            sessions=[item.session for item in items],
            bytes=sum(item.size for item in items),
            extracted_files=sum(item.extracted_files for item in items),
            extracted_bytes=sum(item.extracted_bytes for item in items),
            keys_taken=tuple(keys_taken),
            not_restored={id_: problem.message for id_, problem in not_restored.items()},
        )


# --- without a meta file ---


def known_from_names(layout: Layout, place: TrashPlace, problem: str) -> Trashed:
    """Return the facts that are known from names and sizes, without the meta file.

    If the id has only a shortened name, the result has the beginning of the session's name.
    `problem`: the damage of the meta file.
    """
    transcript, entries, files, amount = None, 0, 0, 0
    with suppress(OSError):
        found = place.transcript.lstat()
        mode = stat.S_IMODE(found.st_mode)
        transcript = (found.st_ino, found.st_size, found.st_mtime_ns, mode)
        with suppress(OSError, NotPlain):
            entries = count_lines(place.transcript)
    with suppress(OSError):
        files, amount = weigh(place.store)
    return Trashed(
        id=place.id,
        name=place.name(layout) or _beginning_of_a_name(place.base),
        trashed_at=place.trashed_at,
        expires_at=None,
        parent=None,
        original_path="",
        transcript=transcript,
        entries=entries,
        extracted_files=files,
        extracted_bytes=amount,
        problem=problem,
    )


def _beginning_of_a_name(base: str) -> SessionName:
    agent, _, session = base.replace("~", ".").partition("_")
    with suppress(BsdError):
        return SessionName(agent, session)
    return SessionName("unknown", base.replace("~", "."))


def weigh(store: Path) -> tuple[int, int]:
    """Return the number of files in a store directory and their bytes, without its index."""
    count = amount = 0
    with suppress(FileNotFoundError), os.scandir(store) as entries:
        for entry in entries:
            if entry.name != INDEX_FILE and entry.is_file(follow_symlinks=False):
                count += 1
                amount += entry.stat(follow_symlinks=False).st_size
    return count, amount


def count_lines(path: Path) -> int:
    """Count the lines of a file, an unfinished last one included; raises OSError, NotPlain."""
    count, last = 0, b"\n"
    with plain_file(path) as file:
        skip_hole(file)
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
            skip_hole(file)
        if file.tell() and file.seek(-1, os.SEEK_END) >= 0:
            last = file.read(1)
    return count + (last != b"\n")
