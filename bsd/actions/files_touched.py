"""find_files and show_file: the sessions that have changed or read a file, and their calls.

The search index has the files that calls name. The arguments and results of these calls are read
from the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext, SearchState
from bsd.actions.list_sessions import check_agent
from bsd.actions.search import Gone, Resume, UnreadSession
from bsd.core.answers import OMIT_EMPTY
from bsd.core.errors import BsdError, Invalid, NotFound
from bsd.core.formatting import format_size, iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.found_sessions import FoundSession, describe_found
from bsd.maintenance.search import NO_INDEX, files_named
from bsd.planning.restore import unavailable
from bsd.store.file_uses import UsedFile
from bsd.store.markers import stored_line
from bsd.store.originals import Missing, OriginalStore
from bsd.transcripts.agents.entry import Entry, Marker
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat
from bsd.transcripts.agents.touched import (
    FileUse,
    PathPattern,
    TouchedFile,
    call_arguments,
    touched_by,
)
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.reader import Line, Transcript, parse_entry, parse_kept
from bsd.transcripts.spans import value_at

# --- which sessions ---


@dataclass(frozen=True, slots=True)
class FileInSession:
    """A file with the path that calls use for it; each list has the line numbers of calls."""

    path: str
    changed: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    read: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    named: Annotated[
        tuple[int, ...],
        Field(description="Calls that name it in a shell command or to another tool"),
        OMIT_EMPTY,
    ] = ()


@dataclass(frozen=True, slots=True)
class SessionWithFile:
    """A session whose calls name the file."""

    session: str
    title: str | None
    updated: Annotated[str, Field(description="Time of the last write to the session")]
    files: tuple[FileInSession, ...]
    resume: Resume = None
    gone: Gone = None


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Sessions whose calls name a matching file, the last written first."""

    path: str
    sessions: tuple[SessionWithFile, ...]
    more: Annotated[int, Field(description="Number of further sessions that are not listed")]


@dataclass(frozen=True, slots=True)
class FilesInIndex(FoundFiles):
    """The matching sessions that the search index knows so far."""

    search: SearchState


@dataclass(frozen=True, slots=True)
class FilesInAll(FoundFiles):
    """The matching sessions among all sessions as they are now, except for `unread`."""

    unread: Annotated[tuple[UnreadSession, ...], OMIT_EMPTY] = ()
    problem: Annotated[str | None, Field(description="Why no session was searched"), OMIT_EMPTY] = (
        None
    )


def find_files(
    context: ActionContext, path: str, *, agent: str | None = None, limit: int = 20
) -> FilesInIndex:
    """Find the sessions in the search index that have changed, read or named a file.

    Args:
        path: the last components of its path, in any case; `auth*` matches any name that begins
            with `auth`.
        agent: only the sessions of this agent.
        limit: the maximum number of sessions.

    Raises:
        Invalid: `path` is not a path, or the agent's name is not valid.
        NotFound: there is no such agent.
    """
    layout = context.layout
    if agent is not None:
        check_agent(layout, agent)
    found = files_named(layout, path, agent=agent)
    return FilesInIndex(path, *_sessions_of(layout, found, limit), context.search_state())


def find_files_in_all(
    context: ActionContext, path: str, *, agent: str | None = None, limit: int = 20
) -> FilesInAll:
    """Bring the search index up to date, then find the sessions that have used a file.

    Arguments and errors are those of `find_files`.
    """
    layout, has_words = context.layout, context.config.current.search_index
    if agent is not None:
        check_agent(layout, agent, "`bsd sessions` lists all of them")
    unread: list[UnreadSession] = []

    def failed(name: SessionName, why: BsdError) -> None:
        unread.append(UnreadSession(str(name), why.message, why))

    found = files_named(
        layout,
        path,
        agent=agent,
        update=True,
        progress=context.progress,
        failed=failed,
        has_words=has_words,
    )
    sessions, more = _sessions_of(layout, found, limit)
    return FilesInAll(path, sessions, more, tuple(unread), None if has_words else NO_INDEX)


def _sessions_of(
    layout: Layout, found: list[UsedFile], limit: int
) -> tuple[tuple[SessionWithFile, ...], int]:
    """Return the newest sessions of these files, and the number of further sessions."""
    by_session: dict[str, list[UsedFile]] = {}
    for each in found:
        by_session.setdefault(each.session, []).append(each)
    newest = sorted(by_session.values(), key=lambda files: (-files[0].updated, files[0].session))
    shown = {SessionName.parse(files[0].session): files for files in newest[:limit]}
    about = describe_found(layout, shown)
    sessions = tuple(_session_of(name, files, about[name]) for name, files in shown.items())
    return sessions, len(newest) - len(shown)


def _session_of(name: SessionName, files: list[UsedFile], about: FoundSession) -> SessionWithFile:
    paths: dict[str, dict[str, tuple[int, ...]]] = {}
    for each in files:
        paths.setdefault(each.path, {})[each.use.value] = each.lines
    # Changed files come first, files that were only named come last.
    order = sorted(
        paths, key=lambda path: ("changed" not in paths[path], "read" not in paths[path])
    )
    return SessionWithFile(
        session=str(name),
        title=about.title,
        updated=iso_utc(files[0].updated),
        files=tuple(FileInSession(path, **paths[path]) for path in order),
        resume=about.resume,
        gone=about.gone or None,
    )


# --- the calls that name the file ---


@dataclass(frozen=True, slots=True)
class FileTouch:
    """A call that names the file: its arguments, and the result that the model got."""

    index: Annotated[int, Field(description="Line number of the call")]
    entry_id: str | None
    time: str | None
    tool: str
    use: FileUse
    paths: tuple[str, ...]
    arguments: Annotated[dict[str, Any], Field(description="With extracted values restored")]
    extracted: Annotated[bool, Field(description="True if values of the call are extracted")] = (
        False
    )
    unavailable: Annotated[
        str | None, Field(description="Why the extracted values are not available"), OMIT_EMPTY
    ] = None
    result_index: Annotated[int | None, Field(description="Line number of the result")] = None
    result_id: str | None = None
    result: Annotated[
        str | None, Field(description="Original text of the result; null if there is none")
    ] = None
    result_extracted: bool = False
    result_unavailable: Annotated[
        str | None, Field(description="Why the result is not available"), OMIT_EMPTY
    ] = None


@dataclass(frozen=True, slots=True)
class ShownFile:
    """The calls that name the file, in their order."""

    session: str
    path: str
    touches: tuple[FileTouch, ...]


def show_file(context: ActionContext, session: SessionName, path: str) -> ShownFile:
    """Return every read and change of a file in a session, with the result that the model got.

    Extracted values are read from the store or the archive. The session is not changed.

    Args:
        path: the last components of the file's path, as in `find_files`.

    Raises:
        Invalid: `path` is not a path.
        NotFound: there is no such session, or no call in it names the file.
        LeftAlone: bsd does not know the format of its lines.
    """
    pattern = PathPattern(path)
    if not pattern.name:
        raise Invalid("there is no path to look for", hint=f"bsd show {session} --file src/auth.py")
    with context.reader(session) as opened:
        touches = tuple(_touches(opened.transcript, opened.format, opened.store, pattern))
    if not touches:
        hint = f"`bsd search --file {path}` says which sessions name it"
        raise NotFound(f"no call in {session} names a file {path}", hint=hint)
    return ShownFile(str(session), path, touches)


def _touches(
    source: Transcript, fmt: TranscriptFormat, store: OriginalStore, pattern: PathPattern
) -> Iterator[FileTouch]:
    """Yield the calls that name the file, each with its result."""
    found: list[FileTouch] = []
    waiting: dict[str, int] = {}  # id of a call → its index in `found`
    directory: str | None = None
    for line in source.lines():
        if (entry := parse_entry(line.raw)) is None:
            continue
        directory = directory or fmt.directory(entry)
        info = fmt.info(entry)
        if info.calls:
            for call, touch in _calls_in(line, entry, info, fmt, store, pattern, directory):
                if call.id:
                    waiting[call.id] = len(found)
                found.append(touch)
        elif info.result_of is not None and (at := waiting.pop(info.result_of, None)) is not None:
            found[at] = _with_result(found[at], line, entry, info, fmt, store)
    yield from found


def _calls_in(
    line: Line,
    entry: Entry,
    info: EntryInfo,
    fmt: TranscriptFormat,
    store: OriginalStore,
    pattern: PathPattern,
    directory: str | None,
) -> Iterator[tuple[ToolCall, FileTouch]]:
    original = cache(lambda: _original(line, entry, fmt, store))
    for call in info.calls:
        named = touched_by(entry, call, lambda: original()[0])
        touched = [each for each in named if pattern.matches(each.path, directory)]
        if not touched:
            continue
        whole, is_lean, why_not = original()
        yield (
            call,
            FileTouch(
                index=line.index,
                entry_id=info.id,
                time=_time(info),
                tool=call.name,
                use=_most_important(touched),
                paths=tuple(each.path for each in touched),
                arguments=call_arguments(whole, call),
                extracted=is_lean,
                unavailable=why_not,
            ),
        )


def _most_important(touched: list[TouchedFile]) -> FileUse:
    uses = {each.use for each in touched}
    return next(use for use in FileUse if use in uses)


def _with_result(
    touch: FileTouch,
    line: Line,
    entry: Entry,
    info: EntryInfo,
    fmt: TranscriptFormat,
    store: OriginalStore,
) -> FileTouch:
    whole, is_lean, why_not = _original(line, entry, fmt, store)
    texts = []
    for value in fmt.values(whole):
        if value.type != "tool_result" or value.display or value.custom:
            continue
        text = value.text
        if text is None and (media := media_of(value_at(whole, value.path))):
            text = f"[{media.media_type}, {format_size(media.size)}]"
        texts.append(text or "")
    return replace(
        touch,
        result_index=line.index,
        result_id=info.id,
        result="\n".join(texts),
        result_extracted=is_lean,
        result_unavailable=why_not,
    )


def _original(
    line: Line, entry: Entry, fmt: TranscriptFormat, store: OriginalStore
) -> tuple[Entry, bool, str | None]:
    """Return the original of an entry, whether it has extracted values, and why these are missing.

    If the original is not available, the entry is returned as it is.
    """
    marker = Marker.of(entry)
    if marker is None:
        return entry, False, None
    stored = stored_line(line.raw, entry, marker, fmt, store)
    if isinstance(stored, Missing):
        return entry, True, unavailable(stored, store)
    return parse_kept(stored) or entry, True, None


def _time(info: EntryInfo) -> str | None:
    if info.time_ms is None:
        return None
    with suppress(ValueError, OverflowError, OSError):  # the time in an entry may be invalid
        return iso_utc(info.time_ms / 1000)
    return None
