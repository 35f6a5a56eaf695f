"""Names of sessions and entries as a user types them: in full, or only their beginning."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn, TypeVar

import click

from bsd.cli.call import Call
from bsd.cli.commands import COMMANDS
from bsd.cli.output import note
from bsd.core.errors import BsdError, ConfigError, Invalid, NotFound, os_problem
from bsd.core.layout import Layout, SessionName, check_name
from bsd.core.sources import Source
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.vanished import vanished_sessions
from bsd.sessions.session import Session
from bsd.store.snapshots import archive_directories
from bsd.transcripts.agents.entry import MARKER
from bsd.transcripts.agents.opening import has_transcript
from bsd.transcripts.agents.programs import elsewhere
from bsd.transcripts.reader import parse_entry

_MOST_NAMED = 10

_Answer = TypeVar("_Answer")


def session_named(layout: Layout, text: str) -> SessionName:
    """Return the session with this name, or the only one whose name begins with it: `ag/4f`, `4f2`.

    If only the archive has such a session, its name is returned, so that commands can say so. A
    full name is returned even if there is no such session, since its store may still exist.

    Raises:
        Invalid: the text is not a name, or several names begin with it.
    """
    if found := session_beginning_with(layout, text):
        return found
    agent, slash, session = text.partition("/")
    if slash and _has_remains(layout, name := SessionName.parse(text)):
        return name
    copied: list[SessionName] = []
    with suppress(BsdError):  # an archive that cannot be read must not hide the rest
        stored = [layout.session_of_store(archive.name) for archive in archive_directories(layout)]
        copied = [
            name
            for name in _matching(filter(None, stored), agent, session, slash)
            if layout.has_copy(name)
        ]
    return _only(text, "sessions in the archive", copied) or SessionName.parse(text)


def session_beginning_with(layout: Layout, text: str) -> SessionName | None:
    """Return the session with this name, or the only one whose name begins with it; else None.

    Case matters only if a session matches in exactly this case. Raises Invalid as `session_named`
    does.
    """
    agent, slash, session = text.partition("/")
    remains = False
    if slash:
        whole = SessionName.parse(text)
        with suppress(NotFound):  # the text may hold only the beginning of an agent's name
            if has_transcript(layout, whole):
                return whole
        remains = _has_remains(layout, whole)
    else:
        check_name(text, "session")
    names: list[SessionName] = []
    with suppress(ConfigError):  # no agents: reported when the session is opened
        names = list(catalog.names(layout))
    found = _matching(names, agent, session, slash, in_any_case=not remains)
    if not found and (exclusions := layout.exclusions()):
        # If an excluded session has this name, return it: opening it reports the pattern.
        every = catalog.names(layout.with_excluded(), strays=False)
        excluded = (each for each in every if exclusions.session(each.agent, each.session))
        found = _matching(excluded, agent, session, slash, in_any_case=not remains)
    if len(found) > 1 and all(name.session == text for name in found):
        return catalog.find_session(layout, text)  # which says that several agents have it
    return _only(text, "sessions", found)


def archived_session(layout: Layout, text: str, *, live: bool = False) -> str:
    """Return the full name or id of a session in the archive, given in full or by its beginning.

    Sessions of which only the prompts are left can be named, too.

    Args:
        live: sessions that still exist can be named as well, as the archive may hold their content.

    Raises:
        Invalid: several names begin with the text.
        NotFound: no name begins with the text.
    """
    agent, slash, session = text.partition("/")
    whole = SessionName.parse(text) if slash else None
    if whole is None:
        check_name(text, "session")
    gone = deleted_sessions(layout)
    if any(text in {copy.id, str(copy.name)} for copy in gone):
        return text
    if whole is not None and _has_remains(layout, whole):
        return text
    names = {copy.name for copy in gone}
    if live:
        with suppress(ConfigError):  # no agents, no sessions
            names.update(catalog.names(layout))
    found = list(map(str, _matching(names, agent, session, slash)))
    if not found and "@" in text:
        named, _, origin = text.rpartition("@")
        agent, slash, session = named.partition("/")
        copied = set(_matching({copy.name for copy in gone}, agent, session, slash))
        found = [
            copy.id
            for copy in gone
            if copy.name in copied and copy.origin.startswith(origin.casefold())
        ]
    if not found and not live:
        vanished = [each.name for each in vanished_sessions(layout, time.time()).sessions]
        found = list(map(str, _matching(vanished, agent, session, slash)))
    chosen = only_one(text, "sessions in the archive", sorted(found))
    if chosen is None and whole is None:
        hint = "`bsd archive list` lists them"
        raise NotFound(f"there is no copy of {text} in the archive", hint=hint)
    return chosen or text


def _matching(
    names: Iterable[SessionName],
    agent: str,
    session: str,
    slash: str,
    *,
    in_any_case: bool = True,
) -> list[SessionName]:
    """Return the names that begin with the typed text; exact matches exclude longer names.

    If there are none, case is ignored. Without `slash`, the text is the beginning of a session's
    name alone, and `agent` holds it; if no session has such a name, it is the beginning of the name
    of a directory with only one session.
    """
    if not slash:
        agent, session = "", agent
    names = list(names)
    spellings: list[Callable[[str], str]] = [str, str.casefold] if in_any_case else [str]
    for spelled in spellings:
        of, begins = spelled(agent), spelled(session)
        found = [
            name
            for name in names
            if spelled(name.session).startswith(begins) and spelled(name.agent).startswith(of)
        ]
        found = [name for name in found if spelled(name.agent) == of] or found
        found = [name for name in found if spelled(name.session) == begins] or found
        if found:
            return found
    if slash:
        return []
    alone = list(catalog.only_sessions(names))
    found = [name for directory, name in alone if directory == session]
    return found or [name for directory, name in alone if directory.startswith(session)]


def _only(text: str, what: str, found: Sequence[SessionName]) -> SessionName | None:
    if len(found) > 1:
        _several(text, what, sorted(map(str, found)))
    return next(iter(found), None)


def _has_remains(layout: Layout, name: SessionName) -> bool:
    """Return True if the store, archive or history has data under exactly this name."""
    places = (layout.extracted, layout.archive, layout.history)
    return any(os.path.lexists(place / layout.store_name(name)) for place in places)


def entry_named(layout: Layout, session: SessionName, text: str) -> str | None:
    """Return the id of the only entry whose id begins with the text; None if there is none.

    Raises:
        Invalid: several ids begin with it.
    """
    if not text:
        return None
    ids = {one for one, _ in entry_ids(layout, session)}
    found = sorted(one for one in ids if one.startswith(text)) or sorted(
        one for one in ids if one.casefold().startswith(text.casefold())
    )
    if len(found) > 1:
        _several(text, f"entries of {session}", found)
    return found[0] if found else None


def with_entry(
    call: Call, session: SessionName, text: str, act: Callable[[str], _Answer]
) -> _Answer:
    """Call `act` with this entry id, or with the id of the only entry that begins with the text."""
    try:
        return act(text)
    except NotFound as missing:
        try:
            name = entry_named(call.layout, session, text)
        except Invalid:
            raise
        except BsdError:  # no session, or it cannot be read: `missing` says so
            raise missing from None
        if name is None or name == text:
            raise
    say_who(text, name)
    return act(name)


def say_who(text: str, name: str) -> None:
    """Print the full name if a command that changes something was given only its beginning."""
    context = click.get_current_context(silent=True)
    if context is None or context.resilient_parsing:
        return
    command = COMMANDS.get(context.find_root().invoked_subcommand or "")
    if command is not None and command.locks:
        note(f"{text} is {name}")


def say_whose(layout: Layout, agent: str) -> None:
    """Print a note if another root serves an agent's sessions."""
    if source := layout.source_of(agent):
        _say_if_elsewhere(layout, source)


def _say_if_elsewhere(layout: Layout, source: Source) -> None:
    if why := elsewhere(layout, source):
        note(f"{why}: this root only reads it.")


def say_who_serves(layout: Layout, agent: str | None) -> None:
    """Print a note for each source that cannot be read or that another root serves.

    Args:
        agent: only the source of this agent; None for all.
    """
    for source in layout.sources:
        if agent is not None and source is not layout.source_of(agent):
            continue
        _say_if_elsewhere(layout, source)
        for path in filter(None, (source.path, source.archived_in)):
            try:
                os.scandir(path).close()
            except (FileNotFoundError, NotADirectoryError):
                note(f"There is no {path}, which the settings name as {source.name}.")
                note("Try: correct `path` under [[sources]] in bsd.toml, unless it comes later")
            except OSError as error:
                problem = os_problem(error, f"The source {source.name}: reading {path}")
                note(f"{problem.message}\nTry: {problem.hint}")


def entry_ids(layout: Layout, session: SessionName) -> Iterator[tuple[str, bool]]:
    """Yield the entry ids of a session, each with True if values of the entry are extracted."""
    source, fmt, _ = Session(layout, session).open_to_read()
    with source:
        for line in source.lines():
            if (entry := parse_entry(line.raw)) is None:
                continue
            info = fmt.info(entry)
            if info.id is not None and not info.is_header:
                yield info.id, MARKER in entry


def only_one(text: str, what: str, found: Sequence[str]) -> str | None:
    """Return the only one of these names, None if there is none.

    Args:
        what: the kind of names, for the message, as in `sessions in the trash`.

    Raises:
        Invalid: there are several.
    """
    return _several(text, what, found) if len(found) > 1 else next(iter(found), None)


def _several(text: str, what: str, found: Sequence[str]) -> NoReturn:
    more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    raise Invalid(
        f"the names of {len(found)} {what} begin with {text}",
        hint=f"one of {', '.join(found[:_MOST_NAMED])}{more}",
    )
