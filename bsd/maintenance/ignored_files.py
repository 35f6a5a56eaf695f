"""Files in an agent's directory that bsd ignores although they look like transcripts, in words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, check_name
from bsd.transcripts.agents.program import ENDING, SYNC_COPY, is_sync_copy


def passed_over(layout: Layout, agent: str) -> str | None:
    """Name the transcripts that bsd ignores because of their names or because they are links."""
    odd = []
    with suppress(OSError), os.scandir(layout.sessions_dir(agent)) as found:
        odd = sorted(item.name for item in found if _is_odd(item))
    if not odd:
        return None
    shown = ", ".join(repr(name) for name in odd[:3]) + (", …" if len(odd) > 3 else "")
    files = "1 file is" if len(odd) == 1 else f"{len(odd)} files are"
    return f"{files} left alone: {shown} (links, or not only letters, digits and . _ @ : + -)"


def sync_copies(layout: Layout, agent: str) -> str | None:
    """Name the conflict copies that a sync program has made beside sessions."""
    copies: list[str] = []
    with suppress(OSError), os.scandir(layout.sessions_dir(agent)) as found:
        copies = sorted(item.name for item in found if is_sync_copy(item.name))
    if not copies:
        return None
    shown = ", ".join(repr(name) for name in copies[:3]) + (", …" if len(copies) > 3 else "")
    files = "1 file is" if len(copies) == 1 else f"{len(copies)} files are"
    return f"{files} left alone: {shown} ({SYNC_COPY})"


def twice(layout: Layout, agent: str, archived: Iterable[os.DirEntry[str]]) -> str | None:
    """Name the archived transcripts that also lie in the agent's directory, which has priority."""
    directory = layout.sessions_dir(agent)
    paths = [file.path for file in archived if os.path.lexists(directory / file.name)]
    if not paths:
        return None
    shown = ", ".join(sorted(paths)[:3]) + (", …" if len(paths) > 3 else "")
    return f"left alone, since there is a file of the same name in {directory}: {shown}"


def _is_odd(item: os.DirEntry[str]) -> bool:
    stem = item.name.removesuffix(ENDING)
    if stem == item.name or stem.startswith(".") or is_sync_copy(item.name):
        return False
    if item.is_symlink():
        return True
    try:
        check_name(stem, "session")
    except BsdError:
        return item.is_file()
    return False
