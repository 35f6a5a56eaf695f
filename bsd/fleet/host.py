"""The identity of this host in the bucket: its name, and an id of this root.

The name comes from the settings, the id from the root's own id, so that two machines with one name
have directories of their own. The id is kept in `.brainsurgeon/fleet/host.json`. If another machine
turns out to have the same id (this root was cloned), this root takes a new one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout

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
    raise NotImplementedError


def take_new_id(layout: Layout, settings: FleetSettings, why: str) -> HostDirectory:
    """Give this root a new id, because another machine uses the present one; logs a warning."""
    raise NotImplementedError


def why_new_id(layout: Layout) -> str | None:
    """Return the warning for `doctor` if this root had to take a new id; None if it did not."""
    raise NotImplementedError
