"""The archives of all hosts that share a bucket: list, bring back, verify, forget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.restore import RestoredCopy
from bsd.core.answers import OMIT_EMPTY
from bsd.maintenance.bring_back import BroughtBack


@dataclass(frozen=True, kw_only=True)
class RemoteHost:
    """A host with an archive in the bucket. Times are ISO 8601, sizes bytes."""

    name: Annotated[str, Field(description="As commands accept it: HOST, or HOST~ID")]
    host: str
    id: Annotated[str, Field(description="Tells hosts of one name apart")]
    is_this: Annotated[bool, Field(description="Whether it is this root")]
    updated: Annotated[str | None, Field(description="Time of its newest manifest")]
    seems_lost: Annotated[bool, Field(description="It has not written to the bucket for a week")]
    generation: Annotated[int, Field(description="Number of its newest manifest; 0: none")]
    sessions: Annotated[int, Field(description="Copies of sessions")]
    files: int
    size: Annotated[int, Field(description="Size of its files")]
    problems: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class RemoteSession:
    """A copy of a session in the archive of a host. Sizes are bytes, times ISO 8601."""

    host: Annotated[str, Field(description="The name of its host")]
    id: Annotated[str, Field(description="HOST:AGENT/SESSION@ORIGIN, as bring-back accepts it")]
    session: str
    agent: str
    title: str | None
    updated: Annotated[str, Field(description="When its program had last written to it")]
    gone_at: Annotated[
        str | None, Field(description="When its host found it deleted; null: it was not")
    ]
    size: Annotated[int, Field(description="Size of its files, without extracted values")]
    is_here: Annotated[bool, Field(description="Whether this root's archive has a copy of it")]


@dataclass(frozen=True, kw_only=True)
class RemoteList:
    """Copies of sessions of hosts, the last used first."""

    bucket: str
    hosts: tuple[RemoteHost, ...]
    sessions: tuple[RemoteSession, ...]
    more: Annotated[int, Field(description="Number of further sessions that are not listed")]
    warnings: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class VerifiedHost:
    """The result for one host. Sizes are bytes."""

    name: str
    generation: int
    files: int
    objects: int
    bytes: int
    read: Annotated[int, Field(description="Bytes that were read and hashed")]
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoteVerification:
    """The result of `verify` for the bucket."""

    bucket: str
    clean: bool
    full: bool
    hosts: tuple[VerifiedHost, ...]
    warnings: Annotated[tuple[str, ...], OMIT_EMPTY] = ()


@dataclass(frozen=True, kw_only=True)
class RemoteForgotten:
    """The result of forgetting a session of another host."""

    session: str
    host: str
    objects: Annotated[int, Field(description="Objects that were deleted at once")]
    waits: Annotated[bool, Field(description="The host itself deletes it, when it runs")]


def list_hosts_archive(
    context: ActionContext, host: str, *, agent: str | None = None, limit: int = 100
) -> RemoteList:
    """List the copies of sessions in the archive of a host, or of all (`*`).

    Raises:
        Invalid: no bucket is set, or several hosts have this name.
        NotFound: there is no such host.
        BsdError: the bucket refuses, or cannot be reached.
    """
    raise NotImplementedError


def bring_back_remote(
    context: ActionContext, host: str, session: str, *, renamed: str | None = None
) -> BroughtBack:
    """Bring a session of another host back to where its program finds it on this machine.

    Args:
        host: HOST or HOST~ID.
        session: AGENT/SESSION, or the id of its copy.
        renamed: bring it back under this name, AGENT/SESSION.
    """
    raise NotImplementedError


def copy_back_remote(
    context: ActionContext, host: str, session: str, write: Callable[[bytes], object]
) -> RestoredCopy:
    """Write a session of another host with every value inline; nothing else changes here."""
    raise NotImplementedError


def verify_remote(
    context: ActionContext, host: str | None = None, *, full: bool = False
) -> RemoteVerification:
    """Check the archives in the bucket: manifests, objects, and with `full` every byte.

    Args:
        host: HOST or HOST~ID; None: this host; `*`: all.
        full: read every object.
    """
    raise NotImplementedError


def forget_remote(
    context: ActionContext, host: str, session: str, *, lost: bool = False
) -> RemoteForgotten:
    """Make all hosts forget a session of another host.

    Args:
        host: HOST or HOST~ID.
        session: AGENT/SESSION, or the id of its copy.
        lost: the host will not come back: delete its objects at once.
    """
    raise NotImplementedError
