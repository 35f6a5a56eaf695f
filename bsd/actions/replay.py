"""replay and replay_session: play recorded sessions back call by call under other settings.

Both read sessions and the originals of their extracted values, and change nothing. `replay` adds up
many sessions; `replay_portion` does so for a short time, as the page asks. `replay_session` returns
the calls of one session one by one, for a plot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bsd.actions.context import ActionContext
from bsd.actions.replay_answers import (
    NotReplayed,
    Replay,
    ReplayOfAgent,
    ReplaySample,
    SessionReplay,
    answer_calls,
    answer_input,
    answer_played,
    answer_recorded,
    answer_setting,
    answer_sums,
    compactions,
    notes_of,
    price_steps,
)
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.layout import SessionName
from bsd.maintenance.session_sample import (
    SampledSession,
    SessionSample,
    comes_after,
    program_name,
    sample_sessions,
)
from bsd.planning.recording_reader import read_recording
from bsd.planning.replay import Played, play
from bsd.planning.replay_settings import SUGGESTED_LISTS, ReplayGrid, replay_grid
from bsd.planning.replay_sums import ReplayState
from bsd.planning.replay_timeline import Conditions, Timeline
from bsd.sessions.session import Session
from bsd.transcripts.agents.opening import stat_transcript
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import Line, Transcript

SAMPLE_BYTES = 256 << 20  # at most so much is read unless all sessions are wanted
_PORTION_SECONDS = 0.5
_AT_ONCE = threading.BoundedSemaphore(1)  # limits concurrent portions
_STEP = 1 << 20  # bytes between two reports of progress
_MOST_FAILED = 20  # sessions that are listed with the reason why they were left out


def replay(
    context: ActionContext,
    sessions: tuple[SessionName, ...] = (),
    *,
    lists: Mapping[str, str] | None = None,
    everything: bool = False,
    suggest: bool = False,
) -> Replay:
    """Play sessions back under several settings; without names a sample of all sessions.

    If `context.stopping()` becomes true, the answer has the sessions that were read so far.

    Args:
        lists: values of `keep_recent`, `min_value_length`, `trigger_types` and `when`, by name,
            with commas between them. Each combination is played back.
        everything: all sessions instead of a sample.
        suggest: also return the best settings, for each agent's program too.

    Raises:
        Invalid: a list has a value that is not valid.
        ConfigError: config.json is broken.
    """
    grid = _grid(context, lists, suggest=suggest)
    sample = _named(context, sessions) if sessions else _sample(context, everything=everything)
    reader = _SessionAdder(context, grid, ReplayState(len(grid.settings)), sample.bytes)
    stopped = False
    for session in sample.sessions:
        if stopped := context.stopping() or not reader.add(session):
            break
    return reader.answer(sample, suggests=suggest, stopped=stopped or None)


def replay_in_portions(
    context: ActionContext,
    *,
    lists: Mapping[str, str] | None = None,
    everything: bool = False,
    suggest: bool = False,
    cursor: str | None = None,
) -> Replay:
    """Play sessions back for a short time; `cursor` of the answer continues.

    Every answer is about all sessions so far. A session is never split, so that a large one takes
    longer.

    Args:
        lists: as `replay`, as are `everything` and `suggest`. They must stay the same.
        cursor: `cursor` of the answer before.

    Raises:
        Invalid: a list or the cursor is not valid.
        ConfigError: config.json is broken.
        Busy: another replay is running.
    """
    if not _AT_ONCE.acquire(timeout=_PORTION_SECONDS):
        raise Busy("another replay of sessions is running", hint="the same call in a moment")
    try:
        return context.query(
            replay_portion, lists=lists, everything=everything, suggest=suggest, cursor=cursor
        )
    finally:
        _AT_ONCE.release()


def replay_portion(
    context: ActionContext,
    *,
    lists: Mapping[str, str] | None = None,
    everything: bool = False,
    suggest: bool = False,
    cursor: str | None = None,
) -> Replay:
    """Do the work of `replay_in_portions`, in a process of its own."""
    until = time.monotonic() + _PORTION_SECONDS
    grid = _grid(context, lists, suggest=suggest)
    state = ReplayState(len(grid.settings))
    if cursor:
        state = ReplayState.loads(cursor, len(grid.settings))
    sample = _sample(context, everything=everything)
    last = SessionName.parse(state.last) if state.last is not None else None
    reader = _SessionAdder(context, grid, state, sample.bytes)
    left = [one for one in sample.sessions if last is None or comes_after(one.name, last)]
    for number, session in enumerate(left):
        if number and time.monotonic() >= until:
            return reader.answer(sample, suggests=suggest, is_over=False)
        reader.add(session)
    return reader.answer(sample, suggests=suggest)


def replay_session(
    context: ActionContext, session: SessionName, *, lists: Mapping[str, str] | None = None
) -> SessionReplay:
    """Play one session back under several settings, and return its calls one by one.

    Args:
        lists: as `replay`.

    Raises:
        Invalid: a list has a value that is not valid.
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
        ConfigError: config.json is broken.
    """
    grid = _grid(context, lists)
    played = _play(context, session, grid, lambda _: None)
    state = ReplayState(len(grid.settings))
    played.add_to(state, "")
    sums = state.sums
    answers = (
        answer_setting(setting, found, sums, grid)
        for setting, found in zip(grid.settings, sums.settings, strict=True)
    )
    recording = played.timeline.recording
    return SessionReplay(
        session=str(session),
        recorded=answer_recorded(sums),
        without=answer_input(sums.without, sums),
        calls=answer_calls(played.timeline, played.without),
        settings=tuple(
            answer_played(answer, recording, one)
            for answer, one in zip(answers, played.settings, strict=True)
        ),
        steps=price_steps(played.timeline),
        compactions=compactions(recording),
        notes=notes_of(state, grid, played.left_alone),
    )


def _grid(
    context: ActionContext, lists: Mapping[str, str] | None, *, suggest: bool = False
) -> ReplayGrid:
    lists = {name: text for name, text in (lists or {}).items() if text}
    if suggest and not lists.keys() & SUGGESTED_LISTS.keys():
        lists = SUGGESTED_LISTS | lists
    return replay_grid(context.config.current, lists)


def _named(context: ActionContext, sessions: tuple[SessionName, ...]) -> SessionSample:
    """Return the sessions that a user named, in this order; missing ones have no size."""
    found = []
    for name in dict.fromkeys(sessions):
        try:
            size = stat_transcript(context.layout, name).st_size
        except (BsdError, OSError):
            size = 0  # reading it reports the problem
        found.append(SampledSession(name, program_name(context.layout, name.agent), size, 0))
    return SessionSample(tuple(found), len(found), sum(one.size for one in found))


def _sample(context: ActionContext, *, everything: bool) -> SessionSample:
    return sample_sessions(context.layout, None if everything else SAMPLE_BYTES)


# --- reading ---


class _PlayedSession(NamedTuple):
    timeline: Timeline
    without: Played
    settings: list[Played]
    left_alone: str | None  # why bsd does not edit it
    on_resume: bool  # its program reads the file only when the session is resumed

    def add_to(self, state: ReplayState, program: str) -> None:
        state.add(program, self.timeline, self.without, self.settings, on_resume=self.on_resume)


class _Stopped(Exception):
    """The caller has asked to stop while a session was read."""


@dataclass(slots=True)
class _SessionAdder:
    """Adds sessions to a state one by one."""

    context: ActionContext
    grid: ReplayGrid
    state: ReplayState
    total: int  # bytes of all sessions that are to be read
    problems: dict[str, BsdError] = field(default_factory=dict)  # by session

    def add(self, session: SampledSession) -> bool:
        """Add a session, or the reason why it cannot be read; False: the caller has asked to stop.

        A session that is only partly read is not added.
        """
        state, name = self.state, str(session.name)
        try:
            played = _play(self.context, session.name, self.grid, self._progress)
        except _Stopped:
            return False
        except BsdError as problem:
            state.fail(name, problem.message, _MOST_FAILED)
            self.problems[name] = problem
        else:
            played.add_to(state, session.program)
        state.last, state.read = name, state.read + session.size
        self.context.progress(state.read, self.total)
        return True

    def _progress(self, done: int) -> None:
        self.context.progress(self.state.read + done, self.total)
        if self.context.stopping():
            raise _Stopped

    def answer(
        self,
        sample: SessionSample,
        *,
        suggests: bool,
        stopped: bool | None = None,
        is_over: bool = True,
    ) -> Replay:
        """Return the answer for the sessions so far; if more follow, with a cursor."""
        state, grid = self.state, self.grid
        is_part = len(sample.sessions) < sample.all_sessions
        agents = sorted(state.programs.items())
        return Replay(
            **answer_sums(state.sums, grid, suggests=suggests),
            agents=tuple(
                ReplayOfAgent(agent=agent, **answer_sums(sums, grid, suggests=suggests))
                for agent, sums in agents
            ),
            sample=ReplaySample(
                len(sample.sessions), sample.bytes, sample.all_sessions, sample.all_bytes
            )
            if is_part
            else None,
            left_out=tuple(
                NotReplayed(name, why, self.problems.get(name)) for name, why in state.failed
            ),
            notes=notes_of(state, grid),
            stopped=stopped,
            cursor=None if is_over else state.dumps(),
            read=state.read,
            total=sample.bytes,
        )


def _play(
    context: ActionContext, name: SessionName, grid: ReplayGrid, progress: Callable[[int], None]
) -> _PlayedSession:
    """Read a session and play it under all settings; raises BsdError."""
    program = Session(context.layout, name).program
    try:
        with context.reader(name) as opened:
            source = _Reported(opened.transcript, progress)
            recording = read_recording(source, opened.format, grid.policies, opened.store)
    except OSError as error:
        raise os_problem(error, f"reading the session {name}") from error
    quiet = max(context.budget.quiet, program.quiet_seconds)
    timeline = Timeline(recording, Conditions(context.prices.table(), quiet))
    settings = [
        play(timeline, recording.leaves[policy], setting.when)
        for setting, policy in zip(grid.settings, grid.policy_of, strict=True)
    ]
    return _PlayedSession(
        timeline, play(timeline), settings, opened.left_alone, program.uncallable is not None
    )


class _Reported:
    """A transcript whose readers' progress is reported."""

    def __init__(self, source: Transcript, progress: Callable[[int], None]) -> None:
        self.identity: Identity = source.identity
        self.size: int = source.size
        self.lines_holding, self.read = source.lines_holding, source.read
        self._source = source
        self._progress = progress

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        told = 0
        for line in self._source.lines(start, first_index):
            if line.offset - told >= _STEP:
                told = line.offset
                self._progress(told)
            yield line
