"""`bsd exclude` and `bsd pause`: sessions that bsd ignores, or does not edit for a while."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass

import click

from bsd.actions.pauses import PauseList, end_pause, list_pauses, pause
from bsd.cli.call import BsdCommand, Call
from bsd.cli.completion import offering
from bsd.cli.names import session_named
from bsd.cli.output import counted, note, print_json, print_table, say
from bsd.core.errors import Invalid, NotFound
from bsd.core.exclude import Exclusion, is_directory_pattern
from bsd.core.layout import Layout
from bsd.core.pauses import pauses_of
from bsd.maintenance import catalog


@dataclass(frozen=True, slots=True)
class ExcludedNow:
    """A pattern, whether bsd.toml sets it, and how many agents and sessions it excludes."""

    pattern: str
    fixed: bool
    agents: int
    sessions: int


def _patterns(call: Call, context: click.Context) -> list[str]:
    if context.params.get("remove"):
        return list(call.pruning.current.exclude)
    return [agent.name for agent in catalog.agents(call.layout)]


@click.command("exclude", cls=BsdCommand)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=offering(_patterns))
@click.option("--remove", is_flag=True, help="Remove the patterns.")
@click.pass_obj
def exclude_command(call: Call, /, patterns: tuple[str, ...], remove: bool) -> None:
    """List, add or remove sessions that bsd ignores.

    A PATTERN is an AGENT (or a source, with all its agents), an AGENT/SESSION, or a DIRECTORY: the
    projects in it and in all directories below. `*` stands for any text, `?` for one character.
    Claude Code and pi keep sessions by project, and write `/` as `-` there: ~/shop therefore also
    excludes ~/shop-old; name the agent to be exact. Codex and OpenClaw do not keep sessions by
    project: name their agents or sessions.

    From now on, without a restart, excluded sessions are not watched, opened, listed, searched,
    copied or edited. If you name one of them, `restore` and `restore-all` still put its values
    back. Data that bsd already has of it stays until `bsd archive forget`.

    \b
    Examples:
      bsd exclude
      bsd exclude ~/secret 'main/4f2a*'
      bsd exclude --remove ~/secret
    """
    wanted = [_spelled(pattern) for pattern in patterns]
    if wanted:
        call.log(writes=True)
        _change(call, wanted, remove=remove)
    elif remove:
        raise Invalid("--remove needs a pattern", hint="`bsd exclude`")
    found = _excluded_now(call.layout)
    if call.json:
        print_json({"exclude": [asdict(each) for each in found]})
        return
    _tell_excluded(call, found, () if remove else tuple(wanted))


def _spelled(pattern: str) -> str:
    """Return a pattern as it is stored: relative paths become absolute."""
    if pattern in {".", ".."} or pattern.startswith(("./", "../")):
        return os.path.abspath(pattern)
    return pattern.rstrip("/") or "/" if is_directory_pattern(pattern) else pattern


def _change(call: Call, wanted: list[str], *, remove: bool) -> None:
    before = list(call.pruning.current.exclude)
    if not remove:
        call.pruning.update({"exclude": list(dict.fromkeys([*before, *wanted]))})
        return
    fixed = set(call.layout.exclude or ())
    for pattern in wanted:
        if pattern in before:
            continue
        if pattern in fixed:
            raise NotFound(
                f"{pattern!r} is set in {call.settings_file}, not in config.json",
                hint="take it out of `exclude` there, and restart bsd",
            )
        raise NotFound(f"{pattern!r} is not excluded", hint="`bsd exclude` lists all patterns")
    call.pruning.update({"exclude": [each for each in before if each not in wanted]})


def _excluded_now(layout: Layout) -> list[ExcludedNow]:
    """Return the patterns, with the number of agents and sessions that each excludes."""
    exclusions = layout.exclusions()
    agents: Counter[Exclusion] = Counter()
    sessions: Counter[Exclusion] = Counter()
    if exclusions:
        every = layout.with_excluded()
        agents.update(filter(None, (exclusions.agent(each) for each in catalog.all_agents(every))))
        names = catalog.names(every, strays=False)
        found = (exclusions.session(name.agent, name.session) for name in names)
        sessions.update(filter(None, found))
    return [
        ExcludedNow(each.pattern, each.fixed, agents[each], sessions[each])
        for each in exclusions.all
    ]


def _tell_excluded(call: Call, found: list[ExcludedNow], added: tuple[str, ...]) -> None:
    if not found:
        say("nothing is excluded")
        return
    rows = [
        (
            each.pattern,
            f"{counted(each.agents, 'agent')}, {counted(each.sessions, 'session')}",
            "bsd.toml" if each.fixed else "config.json",
        )
        for each in found
    ]
    print_table(("PATTERN", "EXCLUDES", "SET IN"), rows)
    for each in found:
        if each.pattern in added and not each.agents and not each.sessions:
            note(f"{each.pattern} matches no agent or session at present")
    if any(map(is_directory_pattern, added)) and (others := _without_projects(call.layout)):
        note(f"{others} do not keep sessions by project: name their agents or sessions")
    if added:
        note("Data that bsd already has stays: `bsd archive forget AGENT/SESSION` deletes it")


def _without_projects(layout: Layout) -> str:
    names = [each.name for each in layout.sources if each.project_directory is None]
    if layout.agents.is_dir():
        names.append("the agents of OpenClaw")
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _names(call: Call, context: click.Context) -> list[str]:
    if context.params.get("end"):
        return [each.pause.name for each in pauses_of(call.layout)]
    return [agent.name for agent in catalog.agents(call.layout)]


@click.command("pause", cls=BsdCommand)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=offering(_names))
@click.option("--for", "length", metavar="TIME", help="How long, as in 30m, 2h, 1d12h.")
@click.option("--end", is_flag=True, help="End the pause.")
@click.pass_obj
def pause_command(call: Call, /, name: str | None, length: str | None, end: bool) -> None:
    """List, begin or end pauses, in which bsd edits no session.

    NAME is an AGENT, a source with all its agents, or an AGENT/SESSION; the parts of a session
    pause with it. Paused sessions are listed, searched and copied as before, but neither the daemon
    nor a command edits them until the pause ends. Without --for, the pause lasts until you call
    --end. A second call sets a new end.

    \b
    Examples:
      bsd pause
      bsd pause main --for 2h
      bsd pause main/4f2a
      bsd pause main --end
    """
    if name is None and (length is not None or end):
        raise Invalid("--for and --end need a NAME", hint="`bsd pause AGENT --for 2h`")
    if end and length is not None:
        raise Invalid("--end ends a pause now", hint="`bsd pause NAME --for TIME` sets its end")
    with call.context(changes=name is not None) as context:
        if name is None:
            answer = list_pauses(context)
        elif end:
            answer = end_pause(context, _whole_name(call.layout, name))
        else:
            answer = pause(context, _whole_name(call.layout, name), length)
    call.answer(answer, _tell_pauses)


def _whole_name(layout: Layout, name: str) -> str:
    """Return a name for a pause: that of an existing pause unchanged, that of a session in full."""
    is_whole = "/" not in name or any(each.pause.name == name for each in pauses_of(layout))
    return name if is_whole else str(session_named(layout, name))


def _tell_pauses(found: PauseList) -> None:
    if not found.pauses:
        say("nothing is paused")
        return
    rows = [(each.name, each.since, each.until or "it is ended") for each in found.pauses]
    print_table(("NAME", "SINCE", "UNTIL"), rows)
