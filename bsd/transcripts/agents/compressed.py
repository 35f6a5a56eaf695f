"""Reads transcripts that their program has compressed with zstd, in one frame or several.

Such a file is decompressed into a temporary file without a name, so that lines can be read at any
offset. bsd never changes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from bsd.core.errors import LeftAlone, Unavailable, os_problem
from bsd.core.layout import Layout
from bsd.core.zstd import zstd
from bsd.transcripts.agents.program import AgentProgram
from bsd.transcripts.reader import InBlocks, TranscriptCopy, open_descriptor

# Limit of the decompressed bytes. A damaged or hostile file of a few kilobytes could fill the disk.
MOST_BYTES = 8 << 30
_ENDING = ".zst"
_BLOCK = 1 << 20


def is_compressed(path: Path) -> bool:
    """Return whether this is the name of a compressed transcript.

    Programs that rename transcripts add the ending to any name.
    """
    return path.name.endswith(_ENDING)


def why_not_edited(path: Path) -> str | None:
    """Return why bsd does not edit the transcript at this path; None if it is not compressed."""
    if not is_compressed(path):
        return None
    return "its program has compressed it, and bsd edits plain files only"


def open_compressed(path: Path, most: int = MOST_BYTES) -> InBlocks:
    """Open a compressed transcript for reading. Its identity is that of the compressed file.

    Raises:
        NotFound, Forbidden: there is no such plain file.
        Unavailable: it is damaged or incomplete, or the disk of temporary files is full.
        LeftAlone: it would take more than `most` bytes.
    """
    with open(open_descriptor(path), "rb", buffering=0) as packed:
        state = os.fstat(packed.fileno())
        copy = tempfile.TemporaryFile(prefix="bsd-session-")  # noqa: SIM115 - closed below
        with copy:
            try:
                size = _decompress(packed, copy, path, most)
                copy.flush()
                descriptor = os.dup(copy.fileno())
            except OSError as error:
                raise os_problem(error, f"decompressing {path}") from error
    return TranscriptCopy(descriptor, state, str(path), size)


def _decompress(packed: BinaryIO, copy: BinaryIO, path: Path, most: int) -> int:
    """Write the content of a compressed file to `copy`; return its size."""
    size = 0
    try:
        with zstd.ZstdFile(packed) as content:
            while block := content.read(_BLOCK):
                size += len(block)
                if size > most:
                    raise LeftAlone(
                        f"{path} has more than {most:,} bytes when it is decompressed",
                        hint="read it with its program",
                    )
                copy.write(block)
    except (zstd.ZstdError, EOFError) as error:
        raise Unavailable(
            f"{path} is damaged: {str(error).rstrip('.') or 'it is incomplete'}",
            hint="restore it from a backup",
        ) from error
    return size


def compressed_sessions(
    layout: Layout, agent: str, program: AgentProgram, others: Iterable[os.DirEntry[str]]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the sessions of an agent that its program has compressed, without excluded ones.

    `others`: files of the agent outside of its directory.
    """
    source = layout.source_of(agent)
    if source is None or not source.compresses:
        return
    exclusions, found = layout.exclusions(), list[os.DirEntry[str]]()
    with suppress(OSError), os.scandir(layout.sessions_dir(agent)) as items:
        found += items
    seen: set[str] = set()
    for item in (*found, *others):
        session = program.compressed_session(item.name)
        if session is None or session in seen or exclusions.session(agent, session):
            continue
        with suppress(FileNotFoundError):
            if item.is_file(follow_symlinks=False):
                seen.add(session)
                yield session, item.stat(follow_symlinks=False)
