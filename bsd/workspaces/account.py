"""Whose rights a program in a box has when root starts it: never root's.

The owner of the workspace, if that is an ordinary user; else the owner of the root in which it
lies; else a number that belongs to nobody else, taken once and kept as the workspace's owner.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from bsd.foundation.errors import Unavailable
from bsd.workspaces import tree
from bsd.workspaces.metadata import FILE_NAME
from bsd.workspaces.place import Workspace

# systemd's table of user numbers leaves 1,879,048,192 to 2,147,483,647 to nobody.
_FIRST, _COUNT = 1_900_000_000, 100_000_000
_NOBODY = 65534  # in containers that know few numbers
_MAP = Path("/proc/self/uid_map")


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group by number; `alone`: no process outside this workspace has this user."""

    uid: int
    gid: int

    @property
    def alone(self) -> bool:
        return _FIRST <= self.uid < _FIRST + _COUNT


def account_of(space: Workspace) -> Account | None:
    """Who a program in this workspace is to be; None if simply whoever calls, who is not root."""
    if os.geteuid() != 0:
        return None
    for descriptor in (space.fd, space.root.fd):
        found = os.fstat(descriptor)
        if found.st_uid:
            return Account(found.st_uid, found.st_gid or found.st_uid)
    return spare_account()


def spare_account() -> Account:
    """A user that nobody else is; `nobody` where such numbers do not exist. Raises Unavailable."""
    number = _FIRST + secrets.randbelow(_COUNT)
    for candidate in (number, _NOBODY):
        if _exists(candidate):
            return Account(candidate, candidate)
    raise Unavailable(
        "root has no other user here that a program could run as",
        hint="run it as an ordinary user, or with --no-isolate",
    )


def hand_over(space: Workspace, account: Account) -> None:
    """Give the account what root has put into the workspace; what has other names stays root's."""
    tree.give(space.fd, account.uid, account.gid, skip=FILE_NAME)


def _exists(number: int) -> bool:
    """Whether this user number means anything in our user namespace."""
    try:
        ranges = [line.split() for line in _MAP.read_text(encoding="ascii").splitlines()]
    except OSError:  # not Linux
        return True
    return any(int(first) <= number < int(first) + int(count) for first, _, count in ranges)
