"""Taking workspaces away: locked, looked at again, renamed, then deleted; or only pretended.

Renaming is one step, made durable before anything in a workspace goes: whatever happens in
between, a workspace is whole or away, and the next pruning deletes what has been left lying.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from bsd.workspaces import record, tree
from bsd.workspaces.locks import metadata_lock, try_lock
from bsd.workspaces.metadata import SessionMetadata, Skip, Unusable
from bsd.workspaces.place import CONDEMNED, UNFINISHED, Root, Workspace, open_directory
from bsd.workspaces.survey import mounted_in
from bsd.workspaces.tree import Links, Measure, Obstacle

_TOKEN = 6  # bytes; twice as many digits


@dataclass(frozen=True, slots=True)
class Condemned:
    """A workspace that lies under another name, locked, and waits to be deleted."""

    session_id: str
    name: str
    fd: int
    metadata: SessionMetadata | None
    bytes: int


class Remover:
    """Removes from one root, within one pruning; `dry_run` only says what that would do."""

    def __init__(self, root: Root, *, dry_run: bool) -> None:
        self._root = root
        self._dry_run = dry_run
        self._links = Links()
        self._mounts = mounted_in(root)
        self._own = root.open_own(create=not dry_run)

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)

    def condemn(self, planned: SessionMetadata) -> Condemned:
        """Take a workspace away if it still is as planned and nobody uses it.

        The caller closes what is returned, by `destroy`. Raises Unusable, Obstacle,
        FileNotFoundError, OSError.
        """
        root, session_id = self._root, planned.session_id
        descriptor = open_directory(root, session_id)
        try:
            space = Workspace(root, session_id, descriptor)
            self._take(space)
            self._look_again(space, planned)
            found = self._measure(session_id, descriptor)
            name = f"{CONDEMNED}{secrets.token_hex(_TOKEN)}-{session_id}"
            if not self._dry_run and self._own is not None:
                record.settle(space, self._own)
                os.rename(session_id, name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
        except BaseException:  # whatever it is: nobody may find it locked for ever
            os.close(descriptor)
            raise
        return Condemned(session_id, name, descriptor, planned, self._links.freed(found))

    def take_up(self, name: str) -> Condemned | None:
        """Go on with what a broken-off pruning has left; None if another is at it just now."""
        session_id = name.removeprefix(CONDEMNED)[2 * _TOKEN + 1 :]
        descriptor = open_directory(self._root, name)
        try:
            if not try_lock(descriptor, shared=False):
                os.close(descriptor)
                return None
            found = self._measure(name, descriptor)
        except BaseException:  # as above
            os.close(descriptor)
            raise
        return Condemned(session_id, name, descriptor, None, self._links.freed(found))

    def sweep(self) -> None:
        """Remove what a killed call has begun to create."""
        if self._dry_run or self._own is None:
            return
        for name in os.listdir(self._own):
            if name.startswith(UNFINISHED):
                # Whoever creates holds this lock until it has the name it should have.
                with metadata_lock(self._own, name.removeprefix(UNFINISHED)):
                    tree.remove_inside(self._own, name)

    def destroy(self, condemned: Condemned) -> None:
        """Delete it for good, and let it go; raises Obstacle, OSError: then the rest still lies."""
        try:
            if not self._dry_run:
                tree.remove(condemned.fd)
                os.rmdir(condemned.name, dir_fd=self._root.fd)
        finally:
            os.close(condemned.fd)

    def sync(self) -> None:
        """Make durable what was renamed."""
        if not self._dry_run:
            os.fsync(self._root.fd)

    def _take(self, space: Workspace) -> None:
        """Lock it, as one that is there."""
        if not try_lock(space.fd, shared=False):
            raise Unusable(Skip.IN_USE, "a program runs there, or somebody looks at it")
        if self._root.identity(space.session_id) != space.identity:
            raise FileNotFoundError

    def _look_again(self, space: Workspace, planned: SessionMetadata) -> None:
        now = record.understood(record.read_truth(space, self._own), space.session_id)
        if now.updated_at != planned.updated_at:
            raise Unusable(Skip.IN_USE, "it was used meanwhile")

    def _measure(self, name: str, descriptor: int) -> Measure:
        if name in self._mounts:
            raise Obstacle(self._mounts[name], "another file system is mounted here")
        return tree.measure(descriptor)
