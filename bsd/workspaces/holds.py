"""Which limits hold for a run, and how far; the one that nobody but us holds: of the disk."""

from __future__ import annotations

from dataclasses import dataclass

from bsd.foundation.spelling import format_size
from bsd.workspaces import tree
from bsd.workspaces.place import Workspace
from bsd.workspaces.process import Limits

ALL = "of all its processes together"
EACH = "of each process"
NO_LIMIT = "no limit"


def what_holds(
    limits: Limits, missing_group: str | None, *, processes_counted: bool
) -> dict[str, str]:
    """For each limit how far it holds, in words; `missing_group` says why there is no cgroup."""
    memory, processes = ALL, ALL
    if missing_group is not None:
        memory = f"{EACH}, not {ALL}: {missing_group}"
        if not processes_counted:
            processes = f"does not hold: {missing_group}"
    words = {
        "seconds": ALL,
        "cpu_seconds": EACH,
        "memory_bytes": memory,
        "processes": processes,
        "file_bytes": "of each file",
        "disk_bytes": "of the workspace, looked at every second",
    }
    return {name: how if getattr(limits, name) else NO_LIMIT for name, how in words.items()}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workspace may hold in all; 0 for no limit."""

    space: Workspace
    most: int

    def complaint(self) -> str | None:
        """Say that it holds more, if it does; where it cannot be seen now, the next look tells."""
        if not self.most:
            return None
        try:
            held = tree.held_bytes(self.space.fd)
        except (tree.Obstacle, OSError):
            return None
        if held <= self.most:
            return None
        most = format_size(self.most)
        return f"the workspace holds {format_size(held)}, more than its limit of {most}"
