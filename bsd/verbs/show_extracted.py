"""show_extracted: what was taken out of an entry, and where it stands, without putting it back.

A large value is not part of the answer: whoever shows it reads it from its file, piece by piece.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from bsd.agents.entry import Marker
from bsd.foundation.definition import Answer
from bsd.foundation.errors import Invalid
from bsd.foundation.files import plain_file
from bsd.foundation.layout import SessionName
from bsd.foundation.spelling import document
from bsd.foundation.value_path import ValuePath, paths_of
from bsd.session.session import Session
from bsd.store.extracted import Missing, SessionStore
from bsd.surgery.locate import Located, locate
from bsd.surgery.restore import UNAVAILABLE
from bsd.surgery.view import extracted_content
from bsd.text.change import Written
from bsd.text.splice import Span, SpliceError, find
from bsd.verbs.restore import ENTRY
from bsd.verbs.verb import Hands, Meanwhile, Verb


@dataclass(frozen=True, slots=True)
class ShowExtracted:
    """Of one entry."""

    entry: str = field(metadata=ENTRY)


@dataclass(frozen=True, slots=True)
class InPieces(Answer):
    """A JSON document, with the fields of `ExtractedContent`: spans are those of a file."""

    parts: tuple[bytes | Span, ...]
    file: Path | None = None
    state: Written | None = None  # of the file, when its hash was compared


class _Own(NamedTuple):
    """A stored line, and its file."""

    line: bytes
    path: Path
    state: Written


def _show(hands: Hands, name: SessionName, asked: ShowExtracted, _: Meanwhile) -> InPieces:
    """The stored line is held whole, but not parsed.

    Raises NotFound, Conflict if nothing of the entry is away.
    """
    store = SessionStore(hands.layout, name)
    source, fmt = Session(hands.layout, name).open_to_read()
    with source:
        located = locate(source, fmt, asked.entry)
        marker = Marker.of(located.entry)
        own = _read_own(store, marker) if marker else None
        if marker is None or own is None:
            # Where a marker was dropped, or names what another store has, looking takes more.
            found = extracted_content(source, fmt, located.name, store)
            return InPieces((document(found.as_json()),))
    return _in_pieces(located, marker, own)


def _in_pieces(located: Located, marker: Marker, own: _Own) -> InPieces:
    head = {
        "entry_id": located.facts.id,
        "index": located.line.index,
        "ref": marker.ref,
        "extracted_at": marker.at,
        "size_bytes": marker.size,
    }
    paths = paths_of(marker.keys)
    spans = _spans(own.line, paths.values())
    known = {key: spans[path] for key, path in paths.items() if path in spans}
    missing = {key: UNAVAILABLE[Missing.CORRUPT] for key in paths if key not in known}
    parts: list[bytes | Span] = [document(head)[:-1] + b',"content":{']
    for number, (key, span) in enumerate(known.items()):
        parts += [b"," * bool(number) + orjson.dumps(key) + b":", span]
    parts.append(b'},"unavailable":' + orjson.dumps(missing) + b"}")
    return InPieces(tuple(parts), own.path, own.state)


def _read_own(store: SessionStore, marker: Marker) -> _Own | None:
    """The file that a marker names, if it is there and holds what it shall."""
    try:
        path = store.file(marker.ref)
        file = plain_file(path)
    except (OSError, Invalid):
        return None
    with file, suppress(OSError):
        # A large one is not held in memory before it is known to be the right one.
        if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == marker.hash:
            file.seek(0)
            return _Own(file.read(), path, Written.of(os.fstat(file.fileno())))
    return None


def _spans(line: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    wanted = list(paths)
    try:
        return find(line, wanted)
    except SpliceError:
        if len(wanted) <= 1:
            return {}
    # One that is not there shall not hide the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}


# Only HTTP has a route of its own for it: the document is sent in pieces.
SHOW_EXTRACTED = Verb(
    name="show_extracted",
    arguments=ShowExtracted,
    answer=InPieces,
    act=_show,
)
