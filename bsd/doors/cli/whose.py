"""Whose rights a call has: root keeps its own only on a root that belongs to root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bsd.doors.cli.output import note

if TYPE_CHECKING:
    from bsd.doors.cli.call import Call
    from bsd.foundation.rights import FileOwner


def become_owner(call: Call, first: Callable[[Path, FileOwner], None] | None = None) -> None:
    """Root on somebody else's root becomes that user, before anything there is opened.

    What only root can do comes `first`. Raises Forbidden if root cannot become that user, or if
    what root has set would not be read any more.
    """
    if os.geteuid() != 0:
        return
    from bsd.foundation.errors import Forbidden
    from bsd.foundation.locations import settings_file
    from bsd.foundation.rights import become, owner_for_root

    root, file = root_that_is_meant(call)
    owner = owner_for_root(root)
    if owner is None:
        return
    if first is not None:
        first(root, owner)
    become(owner, root, os.environ)
    if file is not None and call.config is None and file != settings_file(os.environ):
        raise Forbidden(
            f"{root} belongs to {owner}, and {file} are root's settings",
            hint=f"let {owner} have them as {settings_file(os.environ)}, or name them: --config",
        )
    if root_that_is_meant(call)[0] != root:
        call.root = os.path.realpath(root)
    note(f"(root works as {owner} here, to whom {root} belongs)")


def root_that_is_meant(call: Call) -> tuple[Path, Path | None]:
    """The root of this call, and the settings file, if there is one to be read."""
    from bsd.foundation.errors import BsdError
    from bsd.foundation.locations import find_root, read_settings_file, settings_file

    file = Path(call.config) if call.config is not None else settings_file(os.environ)
    try:
        said = read_settings_file(file, required=False)
    except BsdError:  # whoever needs them says what is wrong with them
        said = {}
    there = file if os.path.lexists(file) else None
    return find_root(call.root, os.environ, said.get("root")), there
