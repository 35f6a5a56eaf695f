"""`[fleet]` of bsd.toml (SPEC §15): what this host shares with others. All of it is off by default.

Credentials are not among the settings: object storage and PostgreSQL take them from the places
from which their own tools take them.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator

from bsd.core.formatting import NEVER
from bsd.core.validation import checked_age

_MOST = 1 << 50
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _bucket(text: str) -> str:
    parts = urlsplit(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("a bucket is named without user, key and options: contrib/docs/fleet.md")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("a directory is file:///DIRECTORY, with three slashes")
    elif parts.scheme not in {"s3", "gs", "az"} or not _BUCKET.fullmatch(parts.netloc):
        raise ValueError("a bucket is s3://BUCKET/PREFIX, gs://…, az://… or file:///DIRECTORY")
    return text.rstrip("/")


def _machine_name() -> str:
    """Return this machine's name, with `-` in place of characters that a host cannot have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()).strip("-._")[:63]
    return name or "host"


def _identity(value: object) -> Path | None:
    if value is None:
        return None
    path = os.path.expanduser(value) if isinstance(value, str | os.PathLike) else ""
    if not os.path.isabs(path):
        raise ValueError("a path must be absolute, or begin with ~")
    return Path(path)


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not a boolean")  # noqa: TRY004 - for pydantic
    return value


_Number = BeforeValidator(_refuse_boolean)
Age = Annotated[str, AfterValidator(checked_age)]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The table `[fleet]`: object storage, and the catalogue in PostgreSQL.

    A plain dataclass, since child processes get it without the module of all settings.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    bucket: Annotated[str, AfterValidator(_bucket)] | None = None
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = field(
        default_factory=_machine_name
    )
    keep_local: Age = NEVER  # how long packs stay here, too
    copy_after: Age = "15m"  # how long a session rests before its copy is uploaded
    push_seconds: Annotated[float, _Number, Field(ge=10, le=86_400)] = 300.0
    uploads_at_once: Annotated[int, _Number, Field(ge=1, le=32)] = 4
    upload_bytes_per_second: Annotated[int, _Number, Field(ge=0, le=_MOST)] = 0  # 0: no limit
    encrypt_to: tuple[Annotated[str, Field(pattern=r"^age1[a-z0-9]{20,}$")], ...] = ()
    identity: Annotated[Path | None, PlainValidator(_identity)] = None  # a file of age-keygen
    database: Annotated[str, Field(min_length=1)] | None = field(default=None, repr=False)
    text: bool = True  # the catalogue has the words of entries
    parquet: bool = False  # the daemon exports files for analysis once a day

    @property
    def is_on(self) -> bool:
        """Whether this host shares anything."""
        return self.bucket is not None or self.database is not None
