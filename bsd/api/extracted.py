"""What was taken out of an entry, sent as it stands in the store: piece by piece, never parsed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

import orjson

from bsd.api.answer import Answer
from bsd.formats.marker import Marker
from bsd.foundation.errors import Unavailable, os_problem
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.value_path import ValuePath
from bsd.opening import open_session
from bsd.store.extracted import Missing, SessionStore, digest
from bsd.surgery.kept import nothing_away, paths_of
from bsd.surgery.locate import locate
from bsd.surgery.restore import UNAVAILABLE
from bsd.transcript.splice import Span, SpliceError, find

_PIECE = 256 * 1024  # bytes


@dataclass(slots=True)
class Content:
    """A JSON document whose large values are read from the store while it is sent.

    Between two pieces nothing but an open file is held. Close it.
    """

    parts: list[bytes | Span] = field(default_factory=list)
    file: IO[bytes] | None = None

    @property
    def size(self) -> int:
        """Bytes of the document."""
        return sum(
            len(part) if isinstance(part, bytes) else part.end - part.start for part in self.parts
        )

    def pieces(self) -> Iterator[bytes]:
        """The document; raises Unavailable if the file has lost what it had."""
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
                continue
            for start in range(part.start, part.end, _PIECE):
                yield self._read(start, min(_PIECE, part.end - start))

    def _read(self, start: int, length: int) -> bytes:
        assert self.file is not None  # noqa: S101 - a span is always one of the file
        piece = os.pread(self.file.fileno(), length, start)
        if len(piece) != length:
            raise Unavailable(f"{self.file.name} has become shorter")
        return piece

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def open_content(layout: Layout, name: SessionName, entry: str) -> Content:
    """What `Surgeon.extracted_content` tells, in the same fields.

    The stored line is held whole while its hash is compared, not while it is sent. Raises NotFound,
    Conflict if nothing of the entry is away.
    """
    source, fmt = open_session(layout, name)
    with source:
        located = locate(source, fmt, entry)
    marker = Marker.of(located.entry)
    if marker is None or not marker.keys:
        raise nothing_away()
    head = {
        "entry_id": located.facts.id,
        "index": located.line.index,
        "ref": marker.ref,
        "extracted_at": marker.at,
        "size_bytes": marker.size,
    }
    with ExitStack() as undo:
        content = Content()
        undo.callback(content.close)
        spans = _open_values(content, SessionStore(layout, name), marker)
        known = {key: span for key, span in spans.items() if isinstance(span, Span)}
        missing = {key: UNAVAILABLE[why] for key, why in spans.items() if isinstance(why, Missing)}
        content.parts += [bytes(Answer(head).body)[:-1] + b',"content":{']
        for number, (key, span) in enumerate(known.items()):
            content.parts += [b"," * bool(number) + orjson.dumps(key) + b":", span]
        content.parts += [b'},"unavailable":' + orjson.dumps(missing) + b"}"]
        undo.pop_all()
    return content


def _open_values(
    content: Content, store: SessionStore, marker: Marker
) -> dict[str, Span | Missing]:
    """Open the stored file and find the values in it."""
    paths = paths_of(marker.keys)
    why = Missing.GONE
    for path in store.places(marker.ref):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise os_problem(error, f"reading {path}") from error
        content.file = open(descriptor, "rb", buffering=0)  # noqa: SIM115 - the content closes it
        line = content.file.read()
        if digest(line) == marker.hash:
            break
        content.close()
        why = Missing.CORRUPT
    else:
        return dict.fromkeys(paths, why)
    spans = _spans(line, paths.values())
    return {key: spans.get(path, Missing.CORRUPT) for key, path in paths.items()}


def _spans(line: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    wanted = list(paths)
    try:
        return find(line, wanted)
    except SpliceError:
        if len(wanted) <= 1:
            return {}
    # One that is not there shall not hide the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}
