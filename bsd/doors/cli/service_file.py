"""The file by which a service manager knows bsd, and how bsd knows its own hand in it."""

from __future__ import annotations

import hashlib
import os
import re
from enum import StrEnum
from pathlib import Path

from bsd.foundation.errors import os_problem
from bsd.foundation.files import sync_dir, write_private

_SIGNATURE = re.compile(
    rb"^.*written by bsd service install, sha256:([0-9a-f]{64}).*\n?", re.MULTILINE
)


class Origin(StrEnum):
    """Whose a file is."""

    NOBODY = "absent"  # there is none
    OURS = "written by bsd"  # as bsd wrote it
    EDITED = "written by bsd and changed since"
    FOREIGN = "not written by bsd"


def signed(text: str, comment: tuple[str, str]) -> bytes:
    """Return `text` with a last line, a comment, by which bsd recognises it as its own."""
    body = text.encode()
    digest = hashlib.sha256(body).hexdigest()
    line = f"{comment[0]}written by bsd service install, sha256:{digest}{comment[1]}\n"
    return body + line.encode()


def read(path: Path) -> tuple[Origin, bytes]:
    """Look whose file this is; returns its content as well. Raises a BsdError."""
    try:
        if path.is_symlink():  # somebody's own arrangement, a mask (→ /dev/null) among them
            return Origin.FOREIGN, b""
        content = path.read_bytes()
    except FileNotFoundError:
        return Origin.NOBODY, b""
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    signature = _SIGNATURE.search(content)
    if signature is None:
        return Origin.FOREIGN, content
    rest = content[: signature.start()] + content[signature.end() :]
    same = hashlib.sha256(rest).hexdigest().encode() == signature[1]
    return (Origin.OURS if same else Origin.EDITED), content


def write(path: Path, content: bytes) -> None:
    """Put the file in its place; raises a BsdError."""
    try:
        write_private(path, content)
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error


def remove(path: Path) -> None:
    """Take the file away; raises a BsdError."""
    try:
        os.unlink(path)
        sync_dir(path.parent)
    except OSError as error:
        raise os_problem(error, f"removing {path}") from error
