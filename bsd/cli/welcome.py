"""The output of `bsd` without a command: how to begin, or, once bsd is set up, the overview."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from bsd.cli.call import Call, become_owner
from bsd.cli.output import counted, one_line, print_table, safe, say, say_wrapped, share, size
from bsd.cli.status_lines import disk_lines
from bsd.core.errors import BsdError
from bsd.core.locations import has_openclaw, is_set_up, usual_roots

if TYPE_CHECKING:  # `bsd --help` does without them
    from bsd.actions.overview import AgentShare, Overview, ProjectShare, SessionFills
    from bsd.actions.setup import WouldLeave

_LARGEST = 5  # sessions
_LEAST_DIRECTORY = 100 << 20  # bytes; smaller directories of programs are not named
# The slow parts are limited to these times, so that the answer comes within about 2 seconds.
_FILLS_SECONDS, _LEAVES_SECONDS = 0.8, 0.8
_MARKERS_BUDGET = 32 << 20  # bytes of sessions that are read for their extracted values
_MOST_FILLS, _LEAST_SHARE = 4, 0.01
_INDENT = 11
_NARROW, _WIDE, _LONG = 40, 110, 300  # columns of the text

_WHAT_IT_IS = """\
bsd keeps the sessions of AI agents lean: it moves large old values into a store and puts
them back when you or the agent asks, and it keeps copies of sessions that their program deletes.
"""


def welcome(environ: Mapping[str, str]) -> str | None:
    """Return a short text: the purpose of bsd, the agents on this machine, the next command.

    None if bsd is set up already, or if that cannot be determined.
    """
    try:
        if is_set_up(environ):
            return None
        rows = _agents(environ)
    except (BsdError, OSError):
        return None
    if not rows:
        here = "No agent has sessions in its usual directory on this machine."
    else:
        width = max(len(title) for title, _ in rows)
        lines = [f"  {title:<{width}}  {safe(where)}" for title, where in rows]
        here = "\n".join(["Agents with sessions on this machine:", *lines])
    return (
        f"{_WHAT_IT_IS}\n{here}\n\n"
        "bsd is not set up yet, and changes no file before you agree.\n\n"
        "Try: bsd init          (`bsd --help` lists all commands)\n"
    )


def _agents(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return title and directory of each agent on this machine."""
    from bsd.transcripts.agents.installed import agents_with_sessions  # help does without it

    rows = [("OpenClaw", str(usual_roots(environ)[0]))] if has_openclaw(environ) else []
    for agent in agents_with_sessions(environ):
        why = f" ({agent.problem})" if agent.problem else ""
        rows.append((agent.title, f"{agent.directory}{why}"))
    return rows


def show_overview(call: Call) -> int:
    """Print the sizes of sessions, their extracted values, and how much would be extracted now."""
    from bsd.actions.overview import fills_of, overview, would_leave
    from bsd.maintenance.disk_use import disk_use

    become_owner(call)
    with suppress(BsdError, OSError):  # reported below
        call.finish_due()
    with call.context(changes=False, progress=lambda _done, _of=None: None) as context:
        found = overview(context, largest=_LARGEST)
        status = _status(call)
        disk = status.get("disk") or disk_use(call.layout, _MARKERS_BUDGET)
        found = replace(found, disk=disk, page=status.get("page"))
        if not call.json:  # print these lines while the rest is computed
            _tell_agents(found)
            sys.stdout.flush()
        names = [row.session for row in found.largest]
        found = replace(found, fills=fills_of(context, names, seconds=_FILLS_SECONDS))
        if not call.json:
            _tell_largest(found)
            sys.stdout.flush()
        found = replace(found, would_leave=would_leave(context, seconds=_LEAVES_SECONDS))
    call.answer(found, lambda found: _tell_rest(found, runs=bool(status)))
    return 0


def _status(call: Call) -> dict[str, Any]:
    """Return the status of the daemon; empty if none runs or answers."""
    from bsd.cli.client import Client

    with suppress(BsdError):
        status: dict[str, Any] = Client(call.settings.socket).get("/api/status")
        return status
    return {}


def _tell_agents(found: Overview) -> None:
    rows = []
    for agent in found.agents:
        if len(agent.projects) == 1:
            rows.append(_row(agent, f"{agent.title}, {agent.projects[0].title}"))
            continue
        rows.append(_row(agent, agent.title))
        rows += [_row(project, f"  {project.title}") for project in agent.projects]
        if agent.more_projects:
            rows.append(("", "", "", "", f"  and {counted(agent.more_projects, 'more project')}"))
    if not rows:
        say("No sessions yet. They are counted as soon as an agent writes one.")
        return
    columns = ("SESSIONS", "SIZE", "SAVED", "ARCHIVED", "AGENT, PROJECT")
    print_table(columns, rows, right=columns[:4], last_may_shrink=True)
    for agent in found.agents:
        if agent.left_alone:
            _say_wrapped(f"{agent.title}: {agent.left_alone}")
        if others := _other_files(agent):
            _say_wrapped(others)


def _other_files(agent: AgentShare) -> str:
    """Return what else fills the program's directory; empty if its sessions fill most of it."""
    in_all = sum(files.bytes for files in agent.directory)
    if in_all < _LEAST_DIRECTORY or in_all < 2 * agent.bytes:
        return ""
    largest = ", ".join(f"{files.what} {size(files.bytes)}" for files in agent.directory[:3])
    return f"{agent.title}: its directory takes {size(in_all)}: {largest}"


def _row(one: AgentShare | ProjectShare, title: str) -> tuple[str, ...]:
    saved = size(one.saved_bytes) if one.saved_bytes else ""
    archived = f"{one.archived:,}" if one.archived else ""
    return f"{one.sessions:,}", size(one.bytes), saved, archived, title


def _tell_largest(found: Overview) -> None:
    fills = {each.session: each for each in found.fills}
    if found.largest:
        say("\nThe largest sessions, and their contents")
    width = (get_terminal_size().columns if sys.stdout.isatty() else _LONG) - _INDENT
    width = max(_NARROW, width)
    for row in found.largest:
        say(f"{size(row.size):>{_INDENT - 2}}  {row.session}")
        for line in (one_line(row.title or "", width), _filled(fills[row.session], width)):
            if line:
                say(" " * _INDENT + line)


def _filled(found: SessionFills, width: int) -> str:
    """Return the kinds of content of a session, the largest first, as many as fit on a line."""
    if found.problem:
        return found.problem
    text = ""
    for fill in found.fills[:_MOST_FILLS]:
        more = f"{text}{', ' if text else ''}{fill.what} {100 * fill.share:.0f} %"
        if fill.share < _LEAST_SHARE or len(more) > width:
            break
        text = more
    return text


def _tell_rest(found: Overview, *, runs: bool) -> None:
    say()
    for name, text in _facts(found):
        _say_wrapped(f"{name:<{_INDENT - 1}} {text}")
    say()
    say_wrapped(_next_step(found, runs=runs))


def _facts(found: Overview) -> Iterator[tuple[str, str]]:
    yield next(disk_lines(found.disk, time.time()))
    if found.would_leave is not None:
        yield "now", _would_leave(found.would_leave)
    packs, copies = found.disk.get("archive", 0), found.disk.get("copies", 0)
    if found.archived or packs or copies:
        gone = counted(found.archived, "session")
        text = f"{size(packs + copies)}; {gone} that their programs have deleted"
        yield "archive", f"{text} (`bsd archive list`)"
    for agent in found.agents:
        if agent.deleted_soon:
            yield "soon", _deleted_soon(agent)


def _would_leave(told: WouldLeave) -> str:
    if told.sessions and not told.read_sessions:
        return "not known: the sessions are too large to read quickly (`bsd extract --dry-run`)"
    if told.values and not told.bytes_saved:
        return f"{counted(told.values, 'value')} would be extracted from files that keep their size"
    if not told.bytes_saved:
        some = f", from a sample of {told.read_sessions:,} sessions" if told.is_sample else ""
        return f"no value would be extracted{some}"
    percent = share(told.bytes_saved, told.bytes)
    if not told.is_sample:
        return f"{size(told.bytes_saved)} ({percent}) would be extracted"
    read = f"{told.read_sessions:,} of {counted(told.sessions, 'session')}"
    return f"about {size(told.bytes_saved)} ({percent}) would be extracted, from a sample of {read}"


def _deleted_soon(agent: AgentShare) -> str:
    text = (
        f"{counted(agent.deleted_soon, 'session')} will be deleted by {agent.title} within 7 days"
    )
    if not agent.without_copy:
        return f"{text}; bsd has copies"
    has = "has" if agent.without_copy == 1 else "have"
    return f"{text}; {agent.without_copy:,} {has} no copy yet (`bsd archive keep`)"


def _next_step(found: Overview, *, runs: bool) -> str:
    """Return the last line: the next command, and the address of the page."""
    if found.would_leave is not None and found.would_leave.values:
        step = "bsd extract"
    elif not runs:
        step = "bsd run"
    else:
        step = "bsd sessions --sort size"
    if found.page:
        return f"Try: {step}   Page: {found.page}"
    if runs:
        return f"Try: {step}"
    return f"Try: {step}   (the page: `bsd run --http 127.0.0.1:8000`)"


def _say_wrapped(text: str) -> None:
    width = min(max(_NARROW, get_terminal_size().columns), _WIDE)
    width = width if sys.stdout.isatty() else _WIDE
    say(
        textwrap.fill(
            text,
            width,
            subsequent_indent=" " * _INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
