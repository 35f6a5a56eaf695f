"""Answers of `replay` and `replay_session`, made from sums and from played sessions.

Money is US dollars of the input of requests: input tokens, cache reads and cache writes. Answers of
models cost the same with and without bsd, and are not counted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Annotated, Any

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError
from bsd.planning.recorded import Beginning, Recording
from bsd.planning.replay import Played, PlayedCut
from bsd.planning.replay_settings import ReplayGrid, ReplaySetting
from bsd.planning.replay_sums import InputSums, ReplayState, SessionSums, SettingSums
from bsd.planning.replay_timeline import Timeline
from bsd.planning.timing_words import reason_words
from bsd.transcripts.agents.format import in_short


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedInput:
    """The input of requests as the sessions' programs recorded it."""

    input_tokens: Annotated[int, Field(description="Tokens of all requests with recorded usage")]
    cost: Annotated[
        float | None,
        Field(description="US dollars of these tokens; null: the price of no model is known"),
    ]
    deviation: Annotated[
        float | None,
        Field(
            description="Median difference between the recorded and the replayed tokens of a"
            " request without bsd, as a share of the recorded ones; null: no usage is recorded"
        ),
    ]
    calls: Annotated[int, Field(description="Requests with recorded usage")]


@dataclass(frozen=True, kw_only=True)
class ReplayedInput:
    """The input of all requests in a replay. `read` and `written` are parts of `tokens`."""

    tokens: int
    read: Annotated[int, Field(description="Tokens read from a cache")]
    written: Annotated[int, Field(description="Tokens written to a cache")]
    cost: Annotated[
        float | None,
        Field(
            description="US dollars, of the requests to models whose price is known; null: of none"
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ReplayedSetting(ReplayedInput, ReplaySetting):
    """The result of one setting. Shares are relative to no bsd: 1.0 is the same."""

    tokens_share: float | None
    cost_share: float | None
    worst_cost_share: Annotated[
        float | None, Field(description="`cost_share` of the session in which it is highest")
    ]
    cuts: int
    cuts_by_reason: Annotated[
        dict[str, int],
        Field(description="asked, no_cache, cold, step, pays: the reasons of the cuts"),
    ]
    rewritten_tokens: Annotated[
        int, Field(description="Tokens that were read from a cache before, and written again")
    ]
    left_values: Annotated[int, Field(description="Values that left the model's context")]
    left_tokens: Annotated[int, Field(description="Tokens by which contexts became smaller")]
    wanted_again: Annotated[
        int,
        Field(
            description="Values that had left and were used again: by the same call with the same"
            " arguments, or by a quotation that stood nowhere else in the context"
        ),
    ]
    wanted_again_tokens: int
    current: Annotated[bool, Field(description="True: these settings are in force")]


@dataclass(frozen=True, slots=True)
class SettingSuggestion:
    """The settings with the lowest cost whose values are rarely wanted again."""

    setting: ReplaySetting
    cost_share: float | None
    worst_cost_share: float | None
    tokens_share: float | None
    wanted_again_share: Annotated[
        float, Field(description="Values wanted again as a share of the values that left")
    ]
    bound: Annotated[float, Field(description="The largest share that a suggestion may have")]
    commands: Annotated[
        tuple[str, ...], Field(description="The commands that take over the settings")
    ]
    reason: Annotated[str, Field(description="Why these settings, in words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySums:
    """The result for a number of sessions."""

    sessions: int
    calls: int
    priced_calls: Annotated[int, Field(description="Calls to models whose price is known")]
    recorded: RecordedInput
    without: Annotated[ReplayedInput, Field(description="Without bsd")]
    settings: tuple[ReplayedSetting, ...]
    suggestion: Annotated[SettingSuggestion | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOfAgent(ReplaySums):
    """The result for the sessions of one agent's program."""

    agent: Annotated[str, Field(description="Name of the source, or openclaw")]


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """A session that was left out, and the reason."""

    session: str
    reason: str
    problem: Internal[BsdError | None] = None


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """The sessions that were chosen, the newest and the largest of each agent, and all sessions."""

    sessions: int
    bytes: int
    all_sessions: int
    all_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(ReplaySums):
    """The answer of `replay`."""

    agents: tuple[ReplayOfAgent, ...]
    sample: Annotated[
        ReplaySample | None,
        Field(description="If only a part of the sessions was chosen"),
        OMIT_EMPTY,
    ] = None
    left_out: Annotated[tuple[NotReplayed, ...], OMIT_EMPTY] = ()
    notes: Annotated[
        tuple[str, ...], Field(description="Limits of the figures, in words"), OMIT_EMPTY
    ] = ()
    stopped: Annotated[bool | None, Field(description="True if it ended early"), OMIT_EMPTY] = None
    cursor: Annotated[
        str | None,
        Field(
            description="Cursor of the next portion, if there is one. Figures include all portions"
            " so far"
        ),
        OMIT_EMPTY,
    ] = None
    read: Annotated[int | None, Field(description="Bytes read so far"), OMIT_EMPTY] = None
    total: Annotated[int | None, Field(description="Bytes of all sessions"), OMIT_EMPTY] = None


# --- one session, call by call ---


@dataclass(frozen=True, slots=True)
class CallsWithoutBsd:
    """The calls of a session as columns: each list has one item per call."""

    lines: Annotated[list[int], Field(description="0-based line numbers of the answers")]
    times: Annotated[list[float | None], Field(description="Epoch seconds")]
    models: list[str | None]
    recorded: Annotated[
        list[int | None], Field(description="Tokens of the request, as its program recorded them")
    ]
    tokens: Annotated[list[int], Field(description="Tokens of the request, as estimated")]
    read: Annotated[list[int], Field(description="Of these, tokens read from a cache")]
    cost: Annotated[list[float | None], Field(description="US dollars; null: no price is known")]
    cold: Annotated[list[bool], Field(description="True if the cache was not warm")]


@dataclass(frozen=True, slots=True)
class ReplayedCut:
    """A change of the session before a call. Numbers are tokens, except `values`."""

    call: Annotated[int, Field(description="Number of the first call after the cut, from 0")]
    time: Annotated[float | None, Field(description="Epoch seconds")]
    reason: Annotated[str, Field(description="asked, no_cache, cold, step or pays")]
    text: Annotated[str, Field(description="The reason in words")]
    values: int
    removed: int
    rewritten: Annotated[
        int, Field(description="Tokens that were in the cache, and had to be written again")
    ]


@dataclass(frozen=True, slots=True)
class WantedAgain:
    """A value that had left and was used again."""

    call: Annotated[int, Field(description="Number of the call that used it, from 0")]
    line: Annotated[int, Field(description="0-based line number of the value")]
    tokens: int


@dataclass(frozen=True, slots=True)
class CallsWithBsd:
    """The result of one setting: the calls as columns, the cuts, and the sums."""

    sums: ReplayedSetting
    tokens: list[int]
    read: list[int]
    cost: list[float | None]
    cuts: tuple[ReplayedCut, ...]
    wanted_again: tuple[WantedAgain, ...]


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A size of the prompt above which a model of the session charges the whole request more."""

    model: str | None
    above: Annotated[int, Field(description="Tokens")]
    factor: Annotated[float, Field(description="Factor of all input prices above this size")]


@dataclass(frozen=True, slots=True)
class SessionReplay:
    """The answer of `replay_session`."""

    session: str
    recorded: RecordedInput
    without: ReplayedInput
    calls: CallsWithoutBsd
    settings: tuple[CallsWithBsd, ...]
    steps: tuple[ReplayedStep, ...]
    compactions: Annotated[
        tuple[int, ...],
        Field(description="Numbers of the first calls after a compaction, or on another branch"),
    ]
    notes: Annotated[tuple[str, ...], Field(description="Limits of the figures, in words")] = ()


# --- from sums to answers ---

# Values wanted again, as a share of the values that left: the most that a suggestion may have.
BOUND = 0.1
# The most that a session may cost under a suggestion, relative to no bsd: what the rule promises.
_MOST_COST = 1.1
_WORTH = 0.01  # a suggestion that saves less than this share more is not worth a change


def answer_sums(sums: SessionSums, grid: ReplayGrid, *, suggests: bool) -> dict[str, Any]:
    """Return the members of `ReplaySums`."""
    settings = tuple(
        answer_setting(setting, one, sums, grid)
        for setting, one in zip(grid.settings, sums.settings, strict=True)
    )
    return {
        "sessions": sums.sessions,
        "calls": sums.calls,
        "priced_calls": sums.priced_calls,
        "recorded": answer_recorded(sums),
        "without": answer_input(sums.without, sums),
        "settings": settings,
        "suggestion": suggest(settings, grid) if suggests else None,
    }


def answer_recorded(sums: SessionSums) -> RecordedInput:
    """Return what the programs recorded."""
    return RecordedInput(
        input_tokens=sums.recorded_tokens,
        cost=_dollars(sums.recorded_cost) if sums.recorded_priced else None,
        deviation=sums.deviation,
        calls=sums.recorded_calls,
    )


def answer_input(found: InputSums, sums: SessionSums) -> ReplayedInput:
    """Return the input of requests; its cost is None if no price is known."""
    return ReplayedInput(**_input(found, sums))


def _input(found: InputSums, sums: SessionSums) -> dict[str, Any]:
    return {
        "tokens": round(found.tokens),
        "read": round(found.read),
        "written": round(found.written),
        "cost": _dollars(found.cost) if sums.priced_calls else None,
    }


def answer_setting(
    setting: ReplaySetting, found: SettingSums, sums: SessionSums, grid: ReplayGrid
) -> ReplayedSetting:
    """Return the result of a setting."""
    return ReplayedSetting(
        **asdict(setting),
        **_input(found, sums),
        tokens_share=_share(found.tokens, sums.without.tokens),
        cost_share=_share(found.cost, sums.without.cost),
        worst_cost_share=None if found.worst is None else round(found.worst, 4),
        cuts=sum(found.cuts.values()),
        cuts_by_reason=dict(sorted(found.cuts.items())),
        rewritten_tokens=round(found.rewritten),
        left_values=found.left_values,
        left_tokens=round(found.left_tokens),
        wanted_again=found.wanted,
        wanted_again_tokens=round(found.wanted_tokens),
        current=setting == grid.current,
    )


def _dollars(amount: float) -> float:
    return round(amount, 6)


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None


# --- the best settings ---


def suggest(settings: Sequence[ReplayedSetting], grid: ReplayGrid) -> SettingSuggestion | None:
    """Return the setting with the lowest cost of those whose values are rarely wanted again.

    A setting under which a session costs a tenth more than without bsd is left out. If no cost is
    known, the tokens count. None if no value would leave under any setting.
    """
    able = [one for one in settings if one.left_values and _is_able(one)]
    if not any(one.left_values for one in settings):
        return None
    if not able:
        least = min((one for one in settings if one.left_values), key=_wanted_share)
        reason = (
            f"Each setting has more than {BOUND * 100:.0f} % of its values wanted again, or a"
            f" session above {_MOST_COST * 100:.0f} %; this one has the fewest wanted again"
        )
        return _suggestion(least, grid, reason)
    best = min(able, key=_figure)
    present = next((one for one in able if one.current), None)
    by = "cost" if best.cost_share is not None else "tokens"
    if present is not None and _figure(present)[0] - _figure(best)[0] < _WORTH:
        reason = f"The settings in force; no other ones save {_WORTH * 100:.0f} % of the {by} more"
        return _suggestion(present, grid, reason)
    reason = f"The lowest {by} with at most {BOUND * 100:.0f} % of the values wanted again"
    if best.cost_share is not None:
        reason += f" and no session above {_MOST_COST * 100:.0f} %"
    return _suggestion(best, grid, reason)


def _is_able(one: ReplayedSetting) -> bool:
    return _wanted_share(one) <= BOUND and (one.worst_cost_share or 0.0) <= _MOST_COST


def _figure(one: ReplayedSetting) -> tuple[float, float]:
    tokens = one.tokens_share if one.tokens_share is not None else 1.0
    return (tokens if one.cost_share is None else one.cost_share), tokens


def _wanted_share(one: ReplayedSetting) -> float:
    return one.wanted_again / one.left_values if one.left_values else 0.0


def _suggestion(one: ReplayedSetting, grid: ReplayGrid, reason: str) -> SettingSuggestion:
    setting = ReplaySetting(
        keep_recent=one.keep_recent,
        min_value_length=one.min_value_length,
        trigger_types=one.trigger_types,
        when=one.when,
    )
    return SettingSuggestion(
        setting,
        one.cost_share,
        one.worst_cost_share,
        one.tokens_share,
        round(_wanted_share(one), 4),
        BOUND,
        commands(setting, grid.current),
        reason,
    )


def commands(setting: ReplaySetting, current: ReplaySetting) -> tuple[str, ...]:
    """Return the commands that change the settings in force to these."""
    found = []
    for name, value in asdict(setting).items():
        if value != getattr(current, name):
            written = json.dumps(value, separators=(",", ":")) if name == "trigger_types" else value
            found.append(f"bsd config set {name} {shlex.quote(str(written))}")
    return tuple(found)


# --- one session, call by call ---


def answer_calls(timeline: Timeline, without: Played) -> CallsWithoutBsd:
    """Return the calls of a session without bsd as columns."""
    calls, charged = timeline.recording.calls, timeline.charged
    return CallsWithoutBsd(
        lines=[timeline.recording.entries.lines[call.entry] for call in calls],
        times=[call.time for call in calls],
        models=[call.model for call in calls],
        recorded=[None if call.usage is None else call.usage.prompt for call in calls],
        tokens=_whole(without.tokens),
        read=_whole(without.read),
        cost=_known(without.cost),
        cold=[one.cached and (one.cold or number == 0) for number, one in enumerate(charged)],
    )


def answer_played(sums: ReplayedSetting, recording: Recording, played: Played) -> CallsWithBsd:
    """Return the calls of a session under one setting."""
    lines, values = recording.entries.lines, recording.values
    return CallsWithBsd(
        sums=sums,
        tokens=_whole(played.tokens),
        read=_whole(played.read),
        cost=_known(played.cost),
        cuts=tuple(map(_answer_cut, played.cuts)),
        wanted_again=tuple(
            WantedAgain(call, lines[values.entries[value]], round(tokens))
            for call, value, tokens in played.wanted
        ),
    )


def _answer_cut(cut: PlayedCut) -> ReplayedCut:
    return ReplayedCut(
        call=cut.call,
        time=cut.at,
        reason=cut.timing.cause.value,
        text=reason_words(cut.timing),
        values=cut.values,
        removed=round(cut.removed),
        rewritten=round(cut.rewritten),
    )


def _whole(column: Iterable[float]) -> list[int]:
    return [round(number) for number in column]


def _known(column: Iterable[float]) -> list[float | None]:
    return [None if isnan(number) else round(number, 8) for number in column]


def price_steps(timeline: Timeline) -> tuple[ReplayedStep, ...]:
    """Return the price steps of the models that the session used."""
    found = {
        (call.model, step.above, step.input): None
        for call, charged in zip(timeline.recording.calls, timeline.charged, strict=True)
        if charged.price is not None
        for step in charged.price.steps
    }
    return tuple(ReplayedStep(*one) for one in found)


def compactions(recording: Recording) -> tuple[int, ...]:
    """Return the numbers of the first calls of contexts that do not continue the one before."""
    first: dict[int, int] = {}
    for number, call in enumerate(recording.calls):
        first.setdefault(call.stretch, number)
    begins = (Beginning.COMPACTION, Beginning.BRANCH, Beginning.ROLL_BACK)
    return tuple(
        number for stretch, number in first.items() if recording.stretches[stretch].cause in begins
    )


# --- limits of the figures, in words ---

_MOST_MODELS = 5  # named in a note
_ROUGH = 0.1  # a larger deviation of the estimate is worth a word


def notes_of(
    state: ReplayState, grid: ReplayGrid, left_alone: str | None = None
) -> tuple[str, ...]:
    """Return sentences about what the figures leave out, or do not know.

    `left_alone`: why bsd does not edit the session, for one session.
    """
    notes = [] if left_alone is None else [f"bsd does not edit it: {left_alone}"]
    if state.on_resume:
        notes.append(
            f"Sessions whose programs read the file only when they are resumed: {state.on_resume:,}"
            "; their figures are those of a program that reads it before each call"
        )
    if state.models:
        named = sorted(state.models, key=lambda model: -state.models[model])
        more = len(named) - _MOST_MODELS
        listed = ", ".join(map(in_short, named[:_MOST_MODELS]))
        listed += f" and {more:,} more" if more > 0 else ""
        calls = sum(state.models.values())
        notes.append(
            f"The prices of {listed} are not known: no cost includes their {calls:,} calls"
            " (`[[prices]]` in bsd.toml, or --prices)"
        )
    if state.uncounted:
        notes.append(
            f"Sessions without recorded usage: {state.uncounted:,}. No cost includes them, since"
            " nothing shows whether they use a cache"
        )
    deviation = state.sums.deviation
    if deviation is not None and deviation > _ROUGH:
        notes.append(
            f"The estimated tokens differ from the recorded ones by {deviation * 100:.0f} %: the"
            " figures are rough"
        )
    if state.empty:
        notes.append(f"Sessions without an answer of a model: {state.empty:,}")
    if state.more_failed:
        notes.append(f"Further sessions that were left out: {state.more_failed:,}")
    if state.odd:
        odd = ", ".join(f"{words} ({count:,})" for words, count in sorted(state.odd.items()))
        notes.append(f"Odd input, left out or estimated: {odd}")
    if grid.has_rules:
        notes.append(
            "The setting trigger_rules decides which values leave; the other settings apply where"
            " a rule has no value of its own"
        )
    return tuple(notes)
