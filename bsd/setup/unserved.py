"""Agents whose sessions bsd does not manage: tells the user about each once.

About a program that is installed after `bsd init`, bsd tells the user once in the log and once in
`bsd status`. A small file of the root records which agents the user was told about; an agent that
the user turned off or declined counts as told. The file also has the notices that the user has
dismissed on the page.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import orjson
import structlog

from bsd.core.errors import BsdError
from bsd.core.files import LARGEST_NOTE, read_ours, write_private
from bsd.core.layout import Layout
from bsd.setup.record import read_record
from bsd.transcripts.agents.installed import InstalledAgent, agents_with_sessions
from bsd.transcripts.agents.program import ENDING
from bsd.transcripts.agents.programs import KINDS, ROOT_KIND, agent_setups

_DISMISSED = "dismissed"  # beside the places, in the file

_log = structlog.stdlib.get_logger(module="setup")


class ToldIn(StrEnum):
    """The place in which the user was told."""

    LOG = "log"
    STATUS = "status"


def untold(layout: Layout, environ: Mapping[str, str], place: ToldIn) -> list[InstalledAgent]:
    """Return the agents without a source in this root about which `place` has not told yet."""
    served = {source.kind for source in layout.sources}
    told = {*_read(layout).get(place, []), *_turned_off(layout)}
    wanted = [kind for kind in KINDS if kind not in served | told]
    found = [each for each in agents_with_sessions(environ, wanted) if each.problem is None]
    if ROOT_KIND not in told and (openclaw := _other_openclaw(layout, environ)):
        found.append(openclaw)
    return found


def _other_openclaw(layout: Layout, environ: Mapping[str, str]) -> InstalledAgent | None:
    """Return an OpenClaw with sessions in another root on which bsd has not worked; else None."""
    openclaw = agent_setups()[ROOT_KIND]
    other = Layout(openclaw.directory(environ))
    try:
        if os.path.samefile(other.root, layout.root) or other.own.is_dir():
            return None
        sessions = (place / "sessions" for place in other.agents.iterdir())
        if any(name.endswith(ENDING) for place in sessions for name in _names_in(place)):
            return InstalledAgent(ROOT_KIND, openclaw.title, other.root)
    except OSError:  # missing or unreadable
        pass
    return None


def _names_in(directory: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(directory)
    return []


def note_told(layout: Layout, kinds: Iterable[str], *places: ToldIn) -> None:
    """Record that the user was told about agents in these places; without places: in all.

    If the root does not exist or is not writable, this has no effect.
    """
    told = _read(layout)
    new = set(kinds)
    for place in places or tuple(ToldIn):
        told[place.value] = sorted({*told.get(place, []), *new})
    _write(layout, told)


def dismissed(layout: Layout) -> set[str]:
    """Return the ids of the notices that the user has dismissed."""
    return set(_read(layout).get(_DISMISSED, []))


def note_dismissed(layout: Layout, ids: Iterable[str]) -> None:
    """Replace the ids of the dismissed notices; as `note_told`, no effect without a root."""
    _write(layout, {**_read(layout), _DISMISSED: sorted(set(ids))})


def _write(layout: Layout, told: dict[str, list[str]]) -> None:
    if not layout.own.is_dir():
        return
    try:
        write_private(layout.told_file, orjson.dumps(told) + b"\n")
    except OSError as error:
        _log.debug("The record of notices cannot be written", problem=str(error))


def unserved(layout: Layout, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the agents that `bsd status` has not shown yet, in the form of its document."""
    return [
        {
            "kind": agent.kind,
            "title": agent.title,
            "directory": str(agent.directory),
            "hint": how_to_turn_on(agent),
        }
        for agent in untold(layout, environ, ToldIn.STATUS)
    ]


def tell_in_log(layout: Layout, environ: Mapping[str, str]) -> None:
    """Log each agent that bsd does not manage, once."""
    agents = untold(layout, environ, ToldIn.LOG)
    for agent in agents:
        _log.info(
            told_text(agent.title), directory=str(agent.directory), hint=how_to_turn_on(agent)
        )
    if agents:
        note_told(layout, [agent.kind for agent in agents], ToldIn.LOG)


def told_text(title: str) -> str:
    """Return the sentence about an agent that bsd does not manage."""
    return f"{title} has sessions here that bsd does not manage"


def how_to_turn_on(agent: InstalledAgent) -> str:
    """Return the command that makes bsd manage an agent's sessions."""
    if agent.kind == ROOT_KIND:  # a root of its own, with a daemon of its own
        return shlex.join(("bsd", "--root", str(agent.directory), "run"))
    return f"bsd agents on {agent.kind}"


def _turned_off(layout: Layout) -> set[str]:
    """Return the agents that the user has turned off; none if the record cannot be read."""
    with suppress(BsdError):  # `bsd agents` reports the problem
        return read_record(layout).turned_off
    return set()


def _read(layout: Layout) -> dict[str, list[str]]:
    """Return the kinds that were told, by place; {} if the file is unreadable."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        said = orjson.loads(read_ours(layout.told_file, layout.root, LARGEST_NOTE))
        return {str(place): [str(kind) for kind in kinds] for place, kinds in said.items()}
    return {}
