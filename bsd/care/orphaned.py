"""Whether late bytes without a place say anything that their session does not have."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from bsd.foundation.errors import BsdError, NotFound
from bsd.foundation.files import LARGEST_LINE, read_plain
from bsd.foundation.layout import Layout, SessionName
from bsd.session.commit.orphans import Orphan
from bsd.store.contents import Contents, contents_of
from bsd.store.extracted import SessionStore, digest
from bsd.text.reader import TranscriptFile


def adds_nothing(layout: Layout, orphan: Orphan) -> bool:
    """Whether each of its lines stands in the session or is stored, as far as that can be told.

    Zeros, which a power cut leaves, say nothing; of a line that was begun the session has, or
    had, one that begins so.
    """
    try:
        name = SessionName.parse(orphan.session)
        session = layout.session_file(name)
        lines, begun = _said(orphan.file)
        left = lines - _standing(session, lines)
        stored = contents_of(layout)
        return all(_is_stored(stored, line) for line in left) and (
            not begun or _begins_one(begun, session, SessionStore(layout, name))
        )
    except BsdError:  # of no session that is there, or one of the two cannot be read
        return False


def _said(file: Path) -> tuple[Counter[bytes], bytes]:
    """The hashes of its whole lines, and the beginning of one at its end."""
    lines: Counter[bytes] = Counter()
    try:
        with TranscriptFile(file) as source:
            for line in source.lines():
                if not line.raw.endswith(b"\n"):
                    return lines, line.raw.strip(b"\0")
                if said := line.raw.strip(b"\0"):
                    lines[hashlib.sha256(said).digest()] += 1
    except NotFound:  # somebody has taken it away, and not what is told of it
        pass
    return lines, b""


def _standing(session: Path, wanted: Counter[bytes]) -> Counter[bytes]:
    """How often each of these lines stands in the session."""
    found: Counter[bytes] = Counter()
    with TranscriptFile(session) as source:
        for line in source.lines():
            if (hashed := hashlib.sha256(line.raw).digest()) in wanted:
                found[hashed] += 1
    return found


def _is_stored(stored: Contents, line: bytes) -> bool:
    """Whether a store has the whole line, as it was taken out."""
    hashed = f"sha256:{line.hex()}"
    for place in stored.with_hash(hashed):
        try:
            held = read_plain(place.directory / f"{place.ref}.json", LARGEST_LINE)
        except OSError:
            continue
        if digest(held) == hashed:
            return True
    return False


def _begins_one(begun: bytes, session: Path, store: SessionStore) -> bool:
    with TranscriptFile(session) as source:
        if any(line.raw.startswith(begun) for line in source.lines()):
            return True
    return any((store.read(ref) or b"").startswith(begun) for ref in store.refs())
