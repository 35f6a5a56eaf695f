"""`make cost-table`: what cuts cost and save on recorded sessions, for `contrib/docs/cost.md`.

The sessions are the transcripts and the skeletons of `../shared/data`, which are not part of bsd.
Each is played back as if its provider had a cache, at each price of SPEC §3a, and as if bsd had
arrived in the middle of it. Costs are those of prompts from that moment on, relative to changing
nothing. The tables replace the text between the page's markers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from textwrap import fill

from bsd.core.prices import CacheLife, Price, PriceRow, PriceStep, PriceTable
from bsd.planning.recorded import LeaveColumns, Recording
from bsd.planning.recording_reader import read_recording
from bsd.planning.replay import Played, play
from bsd.planning.replay_timeline import Conditions, Timeline
from bsd.planning.rules import Policy
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from tests.bench.replay_oracle import best_cost
from tests.planning.in_memory import DATA, Shelf, config
from tests.planning.skeletons import recording_of_skeleton

PAGE = Path(__file__).parents[2] / "contrib" / "docs" / "cost.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
TRANSCRIPTS = {
    "claude-code-long": CLAUDE_CODE,
    "claude-code-short": CLAUDE_CODE,
    "codex-rollout": CODEX,
    "codex-rollout-images": CODEX,
    "openclaw-v3-long": OPENCLAW,
    "openclaw-v3-medium": OPENCLAW,
}
STARTS = (0.0, 0.5, 0.8, 0.9, 0.95)  # shares of a session's calls before bsd's arrival
KEEPS, LENGTHS = (3, 5, 10, 20), (200, 500, 1000, 2000)
MOMENTS = ("now", "cold", "pays")
ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class Prices:
    """Relative prices of a cache, for all models."""

    read: float
    write: float
    life: float  # seconds
    steps: tuple[PriceStep, ...] = ()

    @property
    def table(self) -> PriceTable:
        lives = (CacheLife(self.life, self.write),)
        price = Price(1.0, 5.0, self.read, lives, self.steps)
        return PriceTable(rows=(PriceRow("", ".*", -inf, lives, price),))

    def __str__(self) -> str:
        hours = self.life / 3600
        life = f"{hours:g} h" if hours >= 1 else f"{self.life / 60:g} min"
        steps = (f", {step.input:g} times above {step.above // 1000}k" for step in self.steps)
        return f"{self.read:g}, {self.write:g}, {life}{''.join(steps)}"


PRICES = (
    Prices(0.1, 1.25, 300),
    Prices(0.05, 1.25, 300),
    Prices(0.05, 2, 3600),
    Prices(0.025, 1.25, 300),
    Prices(0.05, 2.5, 43_200),
)
WITH_A_STEP = Prices(0.1, 1.25, 300, (PriceStep(100_000, 5, 5),))


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session to play back."""

    name: str
    recording: Recording
    has_text: bool  # a skeleton has none: nothing tells which values are wanted again


@dataclass(slots=True)
class Shares:
    """Costs of sessions relative to changing nothing."""

    cost: float = 0.0
    without: float = 0.0
    worst: float = 0.0  # share of a single session

    def add(self, cost: float, without: float) -> None:
        if without:
            self.cost += cost
            self.without += without
            self.worst = max(self.worst, cost / without)

    @property
    def share(self) -> float:
        return self.cost / self.without if self.without else 1.0

    def __str__(self) -> str:
        return f"{self.share:.3f} / {self.worst:.2f}"


def sessions(policies: Sequence[Policy], names: Iterable[str] = ()) -> Iterator[RecordedSession]:
    """Yield the recorded sessions, or those with some names; none if there is no data."""
    wanted = set(names)
    for path in sorted((*DATA.glob("*.jsonl"), *(DATA / "replay").glob("*.jsonl"))):
        fmt = TRANSCRIPTS.get(path.stem)
        is_skeleton = path.parent.name == "replay"
        if (fmt is None and not is_skeleton) or (wanted and path.stem not in wanted):
            continue
        if fmt is None:
            recording = recording_of_skeleton(path, policies)
        else:
            source = BytesTranscript(path.read_bytes())
            recording = read_recording(source, fmt, policies, Shelf())
        # The prices of the table decide how long a cache lives.
        recording.calls[:] = [call._replace(life=None) for call in recording.calls]
        yield RecordedSession(path.stem, recording, has_text=not is_skeleton)


def policy(keep_recent: int, min_value_length: int) -> Policy:
    return Policy.of(config(keep_recent=keep_recent, min_value_length=min_value_length))


def timeline(session: RecordedSession, prices: Prices, start: float) -> Timeline:
    conditions = Conditions(prices.table, arrival=start, assume_cache=True)
    return Timeline(session.recording, conditions)


def shares_by_rule(
    found: Sequence[RecordedSession],
    prices: Prices,
    start: float,
    rules: Iterable[str] = (*MOMENTS, ORACLE),
) -> dict[str, Shares]:
    """Return the shares of settings `when`, and of an oracle, under the first policy."""
    shares = {rule: Shares() for rule in rules}
    for session in found:
        line, leaves = timeline(session, prices, start), session.recording.leaves[0]
        without = sum(play(line).cost)
        for rule, share in shares.items():
            is_oracle = rule == ORACLE
            cost = best_cost(line, leaves) if is_oracle else sum(play(line, leaves, rule).cost)
            share.add(cost, without)
    return shares


def rules_table(found: Sequence[RecordedSession]) -> Iterator[str]:
    """Yield the lines of the table of the rule, beside the others."""
    yield "| read, write, life | bsd arrives at | now | cold | pays | oracle |"
    yield "|---|---|---|---|---|---|"
    sums: dict[str, list[float]] = {}
    for prices in (*PRICES, WITH_A_STEP):
        for start in STARTS:
            shares = shares_by_rule(found, prices, start)
            yield f"| {prices} | {start:.0%} | {' | '.join(map(str, shares.values()))} |"
            for name, share in shares.items():
                if prices is not WITH_A_STEP:
                    sums.setdefault(name, []).append(share.share)
    means = " | ".join(f"{sum(values) / len(values):.3f}" for values in sums.values())
    yield f"| mean of the rows without a step | | {means} |"


@dataclass(slots=True)
class Effects:
    """The effects of a setting at some prices, apart from the cost of all sessions.

    `with_text` and what follows are about the sessions whose text is recorded.
    """

    prices: Prices
    tokens: Shares = field(default_factory=Shares)
    cuts: int = 0
    left: int = 0  # values
    with_text: Shares = field(default_factory=Shares)
    back: Shares = field(default_factory=Shares)  # if all values that were wanted had come back
    left_with_text: int = 0
    removed: float = 0.0  # tokens
    wanted: int = 0
    wanted_tokens: float = 0.0

    def add(self, session: RecordedSession, played: Played, without: Played) -> None:
        self.tokens.add(sum(played.tokens), sum(without.tokens))
        self.cuts += len(played.cuts)
        left = sum(cut.values for cut in played.cuts)
        self.left += left
        if session.has_text:
            cost = sum(played.cost)
            self.with_text.add(cost, sum(without.cost))
            self.back.add(cost + self._return_cost(played), sum(without.cost))
            self.left_with_text += left
            self.removed += sum(cut.removed for cut in played.cuts)
            self.wanted += len(played.wanted)
            self.wanted_tokens += sum(tokens for _, _, tokens in played.wanted)

    def _return_cost(self, played: Played) -> float:
        """Return the cost of values that come back: a further call each, and they stay for good."""
        total = 0.0
        for call, _, tokens in played.wanted:
            at = call - played.first
            later = len(played.tokens) - at
            total += self.prices.read * (played.tokens[at] + later * tokens)
            total += self.prices.write * tokens
        return total / 1e6

    def __str__(self) -> str:
        share = self.wanted_tokens / self.removed if self.removed else 0.0
        return (
            f"{self.tokens.share:.3f} | {self.cuts} | {self.left}"
            f" | {self.wanted} of {self.left_with_text} ({share:.1%})"
            f" | {self.with_text.share:.3f}; {self.back.share:.3f}"
        )


def settings_table(
    found: Sequence[RecordedSession],
    rows: Iterable[tuple[str, Callable[[Recording], LeaveColumns], str]],
) -> Iterator[str]:
    """Yield the lines of a table of settings, each with its words, its values, and `when`."""
    shown = PRICES[:3]
    costs = " | ".join(f"cost at {prices}" for prices in shown)
    effects_named = "tokens | cuts | left | wanted again | cost without and with them"
    yield f"| keep_recent, min_value_length, when | {costs} | {effects_named} |"
    yield "|---|" + "---|" * (len(shown) + 5)
    lines = [[timeline(session, prices, 0.0) for prices in shown] for session in found]
    without = [[play(one) for one in each] for each in lines]
    for words, leaves_of, when in rows:
        shares, effects = [Shares() for _ in shown], Effects(shown[1])
        for session, each, never in zip(found, lines, without, strict=True):
            leaves = leaves_of(session.recording)
            played = [play(one, leaves, when) for one in each]
            for share, one, other in zip(shares, played, never, strict=True):
                share.add(sum(one.cost), sum(other.cost))
            effects.add(session, played[1], never[1])
        yield f"| {words} | {' | '.join(map(str, shares))} | {effects} |"


def document(found: Sequence[RecordedSession], policies: Sequence[tuple[int, int]]) -> str:
    """Return the text between the markers.

    Args:
        policies: keep_recent and min_value_length of each policy of the recordings. The first is
            that of the default settings.
    """

    def of(number: int) -> Callable[[Recording], LeaveColumns]:
        return lambda recording: recording.leaves[number]

    default = ", ".join(map(str, policies[0]))
    moments = ((f"{default}, {when}", of(0), when) for when in MOMENTS)
    grid = sorted((pair, number) for number, pair in enumerate(policies))
    others = ((f"{keep}, {least}, pays", of(number), "pays") for (keep, least), number in grid)
    calls = sum(len(session.recording.calls) for session in found)
    with_text = sum(session.has_text for session in found)
    about_rules = (
        "**When to cut.** Cost of the prompts from bsd's arrival on: all sessions together / the"
        f" worst single session. The settings are the defaults ({default}). The prices of the cache"
        " are factors on the input price, followed by its life. The oracle knows all later calls;"
        " its cuts take out all values that are due."
    )
    about_settings = (
        "**Which values.** bsd is there from the start. Tokens, cuts and values are those at the"
        f" prices {PRICES[1]}. Values that are wanted again can be counted in {with_text} sessions,"
        " whose text is recorded. The last column is the cost of these sessions without the wanted"
        " values, and the cost if each of them had come back with a further call and had stayed to"
        " the end of its session."
    )
    paragraphs = (
        f"Made by `make cost-table` from {len(found)} recorded sessions with {calls:,} calls.",
        about_rules,
        "\n".join(rules_table(found)),
        about_settings,
        "\n".join(settings_table(found, (*moments, *others))),
    )
    wrapped = (text if text.startswith("|") else fill(text, 120) for text in paragraphs)
    return "\n\n".join((BEGIN, *wrapped, END))


def main() -> int:
    default = config()
    pairs = [(default.keep_recent, default.min_value_length)]
    pairs += [pair for keep in KEEPS for least in LENGTHS if (pair := (keep, least)) != pairs[0]]
    policies = [
        Policy.of(config(keep_recent=keep, min_value_length=least)) for keep, least in pairs
    ]
    found = list(sessions(policies))
    if not found:
        print(f"There are no recorded sessions in {DATA}.", file=sys.stderr)
        return 1
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, marker, after = rest.partition(END)
    if not marker:
        print(f"{PAGE} has no markers {BEGIN} and {END}.", file=sys.stderr)
        return 1
    PAGE.write_text(before + document(found, pairs) + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
