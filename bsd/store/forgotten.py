"""Which lines a session shall never be given again, whoever else keeps them (SPEC §7a).

Who forgets an entry, or all that is kept of a session that stays, takes nothing from forks that
keep the same lines. Beside the history of a session `forgotten.json` holds the hashes of what was
forgotten, no word of it: there it is not to be had from them either, unless the session itself
keeps it anew.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import orjson

from bsd.foundation.files import LARGEST_RECORD, read_plain, write_private
from bsd.foundation.layout import SessionName
from bsd.foundation.logs import get_logger

_log = get_logger("history")

FORGOTTEN = "forgotten.json"
_VERSION = 1


def forgotten_in(history: Path) -> frozenset[str]:
    """The hashes (`sha256:…`) of what the session with this directory of history has forgotten."""
    path = history / FORGOTTEN
    try:
        return frozenset(map(str, orjson.loads(read_plain(path, LARGEST_RECORD))["hashes"]))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except (OSError, ValueError, LookupError, TypeError) as error:
        _log.warning("What was forgotten cannot be read", path=str(path), problem=str(error))
        return frozenset()


def note_forgotten(history: Path, name: SessionName, hashes: Collection[str]) -> None:
    """Add hashes, durably; raises OSError."""
    known = forgotten_in(history)
    if known.union(hashes) != known:
        said = {"version": _VERSION, "session": str(name), "hashes": sorted(known.union(hashes))}
        write_private(history / FORGOTTEN, orjson.dumps(said))


def join_forgotten(history: Path, other: Path, name: SessionName) -> None:
    """Take over what another directory says, and remove it; raises OSError."""
    note_forgotten(history, name, forgotten_in(other))
    (other / FORGOTTEN).unlink(missing_ok=True)
