"""replay and replay_session: play recorded sessions back call by call under other settings.

Both read sessions and the originals of their extracted values, and change nothing. `replay` adds up
many sessions; with a cursor it answers in portions, as the page asks. `replay_session` returns the
calls of one session one by one, for a plot. Money is US dollars of the input of requests (input
tokens, cache reads and writes); answers cost the same with and without bsd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Unavailable
from bsd.core.layout import SessionName

When = Literal["pays", "now", "cold"]


@dataclass(frozen=True, kw_only=True)
class ReplaySetting:
    """The settings of config.json under which sessions are played back."""

    keep_recent: int
    min_value_length: int
    trigger_types: tuple[str, ...]
    when: When


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
    tokens_share: float | None
    wanted_again_share: Annotated[
        float, Field(description="Tokens wanted again as a share of the tokens that left")
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
    notes: tuple[str, ...] = ()


def replay(
    context: ActionContext,
    sessions: tuple[SessionName, ...] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    everything: bool = False,
    suggest: bool = False,
    cursor: str | None = None,
) -> Replay:
    """Play sessions back under several settings; without names a sample of all sessions.

    If `context.stopping()` becomes true, the answer has the sessions that were read so far.

    Args:
        settings: lists of values of `keep_recent`, `min_value_length`, `trigger_types` and `when`,
            by name. Each combination is played back. A missing name stands for the value in force.
        everything: all sessions instead of a sample.
        suggest: also return the best settings for each agent.
        cursor: `cursor` of the answer before; "" begins an answer in portions.

    Raises:
        Invalid: a setting or the cursor is not valid.
        NotFound: there is no such session.
        ConfigError: the prices in bsd.toml cannot be read.
    """
    raise Unavailable("sessions cannot be played back yet")


def replay_session(
    context: ActionContext,
    session: SessionName,
    *,
    settings: Mapping[str, Any] | None = None,
) -> SessionReplay:
    """Play one session back under several settings, and return its calls one by one.

    Args:
        settings: as `replay`.

    Raises:
        Invalid: a setting is not valid.
        NotFound: there is no such session.
        LeftAlone: bsd does not know the format of its lines.
        ConfigError: the prices in bsd.toml cannot be read.
    """
    raise Unavailable("sessions cannot be played back yet")
