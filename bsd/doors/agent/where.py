"""Where an entry is of which only the id is known: by bytes alone, as there may be much to read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bsd.agents.marker import placeholder
from bsd.foundation.errors import BsdError, Invalid
from bsd.foundation.files import plain_stream
from bsd.foundation.layout import Layout, SessionName
from bsd.store.index import INDEX_FILE

_PIECE = 4 << 20  # bytes
_HEAD = 2048
_SESSION = re.compile(rb'\{"version":\d+,"session":"([!-~]+?)"')


def mentions(layout: Layout, name: SessionName, entry: str) -> bool:
    """Whether a session's file speaks of an entry; one that cannot be read does not."""
    try:
        return _holds(layout.session_file(name), entry.encode("utf-8", "surrogatepass"))
    except BsdError:
        return False


def sessions_that_lack(layout: Layout, entry: str, agent: str | None = None) -> list[SessionName]:
    """The sessions in which the placeholder of an entry stands, and whose store knows it.

    The stores' indexes are searched as text: of thousands of sessions that takes a moment.
    """
    needle = b'"entry_id":%b' % json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace")
    stands = placeholder(entry).encode("utf-8", "replace")
    found = []
    for index in _indexes(layout):
        if not _holds(index, needle):
            continue
        with suppress(BsdError):
            name = _name_in(index)
            if agent in (None, name.agent) and _holds(layout.session_file(name), stands):
                found.append(name)
    return found


def _indexes(layout: Layout) -> Iterator[Path]:
    stores = layout.refuse_outside(layout.extracted)
    with suppress(OSError):
        for store in sorted(os.listdir(stores)):
            yield stores / store / INDEX_FILE


def _name_in(index: Path) -> SessionName:
    """Whose store it is, by its index: the directory's name may be cut. Raises Invalid."""
    with suppress(OSError), plain_stream(index) as file:
        if head := _SESSION.match(file.read(_HEAD)):
            return SessionName.parse(head[1].decode("ascii"))
    raise Invalid(f"{index} does not say whose it is")


def _holds(path: Path, needle: bytes) -> bool:
    """Whether a plain file holds these bytes; one that cannot be read does not."""
    with suppress(OSError), plain_stream(path) as file:
        end = b""
        while piece := file.read(_PIECE):
            if needle in end + piece:
                return True
            end = (end + piece)[-len(needle) :]
    return False
