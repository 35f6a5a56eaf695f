"""The hosts that share a bucket: their names as users see and type them.

Two machines may have one name. Each has a directory of its own, so both are kept apart: this host
is shown by its name, others with the id of their directory (`HOST~ID`). A name before a session is
a host's only if no source and no agent of this root has it (`names_host`); `HOST~ID` always is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bsd.bucket.objects import Bucket
from bsd.core.errors import Invalid, NotFound
from bsd.core.layout import Layout
from bsd.fleet.host import ID, HostDirectory
from bsd.fleet.manifest import host_directories
from bsd.store.snapshots import archive_directories

EVERY_HOST = "*"
_HINT = "`bsd archive list --host '*'` lists the hosts"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(~[0-9a-f]{8})?")


@dataclass(frozen=True, slots=True)
class NamedHost:
    """A host with a directory in the bucket.

    Attributes:
        name: as lists show it and commands accept it: `HOST`, or `HOST~ID`.
        directory: its directory.
        is_this: whether it is this root.
    """

    name: str
    directory: HostDirectory
    is_this: bool


def list_hosts(bucket: Bucket, own: HostDirectory | None) -> list[NamedHost]:
    """Return all hosts with their names; raises the errors of `bsd/bucket/errors.py`."""
    return named_hosts(host_directories(bucket), own)


def named_hosts(directories: Sequence[HostDirectory], own: HostDirectory | None) -> list[NamedHost]:
    """Return the names of hosts: `HOST` if no other host has that name, or this host alone."""
    count = Counter(each.host for each in directories)
    return [
        NamedHost(
            each.host if count[each.host] == 1 or each == own else str(each), each, each == own
        )
        for each in directories
    ]


def find_hosts(hosts: Sequence[NamedHost], text: str) -> list[NamedHost]:
    """Return the host with this name, or all for `*`.

    Raises:
        NotFound: there is no such host.
        Invalid: several hosts have the name, and none of them is this one.
    """
    if text == EVERY_HOST:
        return list(hosts)
    name, tilde, id_ = text.partition("~")
    if tilde and not ID.fullmatch(id_):
        raise Invalid(f"{text!r} is not the name of a host", hint="HOST, or HOST~ID")
    if exact := [each for each in hosts if text in {each.name, str(each.directory)}]:
        return exact
    same = [each for each in hosts if each.directory.host == name and not tilde]
    if len(same) > 1:
        which = ", ".join(each.name for each in same)
        raise Invalid(f"{len(same)} hosts are called {name}", hint=f"one of {which}")
    if not same:
        raise NotFound(f"the bucket has no host {text}", hint=_HINT)
    return same


def shared_names(hosts: Collection[NamedHost]) -> Iterator[str]:
    """Yield a warning for each name that several hosts have."""
    count = Counter(each.directory.host for each in hosts)
    for name in sorted(name for name, number in count.items() if number > 1):
        which = ", ".join(each.name for each in hosts if each.directory.host == name)
        yield (
            f"{count[name]} machines are called {name} ({which}): set `host` of [fleet] on one of "
            "them, if they are not the same machine"
        )


def split_host(layout: Layout, text: str) -> tuple[str, str] | None:
    """Return the host and the rest of `HOST:AGENT/SESSION`; None if the text names no host.

    Names of agents contain colons, too. If the text before the first colon is the name of a source
    or of an agent of this root, or begins the name of an agent with data in its archive, the text
    is a local name: such a host is named `HOST~ID`.
    """
    host, colon, rest = text.partition(":")
    if not colon or not _HOST.fullmatch(host):
        return None
    if "~" in host or not _is_local(layout, host):
        return host, rest
    return None


def _is_local(layout: Layout, name: str) -> bool:
    """Return whether a name, followed by a colon, begins the name of a local agent."""
    if any(name == source.name for source in layout.sources):
        return True
    if any(path.name.startswith(f"{name}:") for path in archive_directories(layout)):
        return True
    return layout.agents.is_dir() and any(
        path.name.startswith(f"{name}:") for path in layout.agents.iterdir()
    )
