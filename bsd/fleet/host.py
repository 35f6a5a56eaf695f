"""The identity of this host in the bucket: its name, and an id of this root.

The name comes from the settings, the id from the root's own id, so that two machines with one name
have directories of their own. The id is kept in `.brainsurgeon/fleet/host.json`. If another machine
turns out to have the same id (this root was cloned), this root takes a new one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import structlog

from bsd.core.errors import Unavailable, os_problem
from bsd.core.files import LARGEST_NOTE, read_plain, write_private
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.transcripts.agents.programs import own_id

_log = structlog.stdlib.get_logger(module="fleet")

ID = re.compile(r"[0-9a-f]{8}")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, order=True)
class HostDirectory:
    """A host's directory in the bucket.

    Attributes:
        host: the name from its settings.
        id: 8 hex digits that distinguish it from other hosts of this name.
    """

    host: str
    id: str

    @property
    def key(self) -> str:
        """The directory, relative to the prefix of the bucket: `HOST/ID`."""
        return f"{self.host}/{self.id}"

    @property
    def objects(self) -> str:
        """The directory of the pieces of its files."""
        return f"{self.key}/objects"

    @property
    def manifests(self) -> str:
        """The directory of its manifests."""
        return f"{self.key}/manifests"

    @property
    def parquet(self) -> str:
        """The directory of its files for analysis."""
        return f"{self.key}/parquet"

    def __str__(self) -> str:
        return f"{self.host}~{self.id}"


def this_host(layout: Layout, settings: FleetSettings) -> HostDirectory:
    """Return this root's directory; creates its id if it has none.

    Raises:
        BsdError: the id cannot be read or written.
    """
    id_ = _read(layout).get("id")
    if not isinstance(id_, str) or not ID.fullmatch(id_):
        try:
            id_ = hashlib.sha256(own_id(layout).encode()).hexdigest()[:8]
        except OSError as error:
            raise os_problem(error, f"reading {layout.root_id_file}") from error
        _write(layout, {"id": id_})
    return HostDirectory(settings.host, id_)


def take_new_id(layout: Layout, settings: FleetSettings, why: str) -> HostDirectory:
    """Give this root a new id, because it cannot go on with the present one; logs a warning.

    Args:
        why: a sentence that names what was found.
    """
    before = this_host(layout, settings)
    after = HostDirectory(settings.host, secrets.token_hex(4))
    _write(layout, {"id": after.id, "before": before.id, "why": why})
    _log.warning(
        f"{why}: this one is {after} from now on",
        hint="everything is uploaded again; if this root was copied, nothing is wrong",
    )
    return after


def why_new_id(layout: Layout) -> str | None:
    """Return the warning for `doctor` if this root had to take a new id; None if it did not."""
    with suppress(Unavailable):
        found = _read(layout)
        if isinstance(why := found.get("why"), str):
            return f"{why}: this one has the id {found.get('id')} since"
    return None


def _file(layout: Layout) -> Path:
    return layout.fleet / "host.json"


def _read(layout: Layout) -> dict[str, Any]:
    path = _file(layout)
    try:
        found = orjson.loads(read_plain(path, LARGEST_NOTE))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unavailable(
            f"{path} is not as bsd wrote it",
            hint="delete it: the next push asks the bucket for what is there",
        )
    return found


def _write(layout: Layout, document: dict[str, Any]) -> None:
    try:
        write_private(_file(layout), orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise os_problem(error, f"writing {_file(layout)}") from error
