"""Something in the trash whose meta file is gone or of no use: what names and sizes still tell."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from bsd.care.moves import count_lines, weigh
from bsd.care.trashed import Trashed, TrashPlace
from bsd.foundation.errors import BsdError
from bsd.foundation.files import NotPlain
from bsd.foundation.layout import Layout, SessionName


def known_from_names(layout: Layout, place: TrashPlace, problem: str) -> Trashed:
    """What is known without the meta file, of which `problem` says what is wrong with it.

    A name that was too long to stand in the trash whole is the beginning of one.
    """
    transcript, entries = None, 0
    with suppress(FileNotFoundError):
        found = place.transcript.lstat()
        mode = stat.S_IMODE(found.st_mode)
        transcript = (found.st_ino, found.st_size, found.st_mtime_ns, mode)
        with suppress(OSError, NotPlain):
            entries = count_lines(place.transcript)
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


def is_anything_there(place: TrashPlace) -> bool:
    """Whether any part of it lies in the trash."""
    return any(map(os.path.lexists, place.parts))
