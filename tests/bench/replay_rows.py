"""The rows of the replay: its speed and memory, and the daemon's rule beside an oracle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from bsd.core.config import PruningConfig
from bsd.core.layout import SessionName
from bsd.core.prices import CacheLife, Price, PriceRow, PriceTable
from bsd.planning.recording_reader import read_recording
from bsd.planning.replay import play
from bsd.planning.replay_timeline import Conditions, Timeline
from bsd.planning.rules import Policy
from bsd.sample import session_lines
from bsd.sessions.session import Session
from bsd.transcripts.agents.programs import layout_of
from tests.bench.measure import bsd, run
from tests.bench.replay_oracle import best_cost
from tests.bench.row import Row, Rows
from tests.openclaw_tree import SHARED_DATA, add_session

_MB = 1 << 20
_SIZE = int(os.environ.get("BENCH_MB", "256")) * _MB
_SESSION = 32 * _MB
_SETTINGS = ("--keep-recent", "3,10,20", "--when", "pays,now")
_MOST_SECONDS = 180.0  # for a gigabyte
_MOST_MEMORY = 300 * _MB
# A cached token costs a twentieth, as with most models of autumn 2026.
_PRICE = Price(5.0, 25.0, 0.05, (CacheLife(300.0, 1.25),))


def replay(scratch: Path, _cache: Path) -> Rows:
    """Play made-up sessions back under six settings, and recorded ones beside an oracle."""
    for number in range(max(1, _SIZE // _SESSION)):
        path = add_session(scratch, f"main/session-{number:03}", b"")
        _write(path, session_lines(size=min(_SESSION, _SIZE), seed=number))
    size = sum(path.stat().st_size for path in scratch.rglob("*.jsonl"))
    cost = run(bsd("--root", str(scratch), "--json", "replay", "--all", *_SETTINGS))
    calls = json.loads(cost.output)["calls"]
    of_gigabyte = cost.cpu * 1024 * _MB / size
    yield Row(
        f"bsd replay, six settings, {size // _MB} MB, {calls:,} calls",
        f"{of_gigabyte:.0f} s for 1 GB",
        f"bound {_MOST_SECONDS:.0f} s",
        of_gigabyte / _MOST_SECONDS,
        "≤ 3 minutes for 1 GB",
        of_gigabyte <= _MOST_SECONDS,
    )
    yield Row(
        "the same, peak RSS",
        f"{cost.rss / _MB:.0f} MB",
        f"bound {_MOST_MEMORY / _MB:.0f} MB",
        cost.rss / _MOST_MEMORY,
        "≤ 300 MB",
        cost.rss <= _MOST_MEMORY,
    )
    yield from _beside_an_oracle(scratch)


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb", buffering=_MB) as file:
        file.writelines(lines)


def _beside_an_oracle(scratch: Path) -> Rows:
    """Compare what the daemon's rule saves with what is possible if all later calls are known."""
    table = PriceTable((PriceRow("", ".*", float("-inf"), _PRICE.lives, _PRICE),))
    conditions = Conditions(table, assume_cache=True)
    for real in sorted(SHARED_DATA.glob("openclaw-v3-[lm]*.jsonl")):
        add_session(scratch / "real", f"main/{real.stem}", real.read_bytes())
        layout = layout_of(scratch / "real", (), ())
        session = Session(layout, SessionName("main", real.stem))
        source, fmt = session.open()
        with source:
            recording = read_recording(source, fmt, [Policy.of(PruningConfig())], session.store)
        timeline, [leaves] = Timeline(recording, conditions), recording.leaves
        without = sum(play(timeline).cost)
        rule, best = sum(play(timeline, leaves, "pays").cost), best_cost(timeline, leaves)
        yield Row(
            f"input of {real.stem}, saved by the rule",
            f"{1 - rule / without:.1%}",
            f"oracle {1 - best / without:.1%}",
            (without - rule) / (without - best),
            "reported only: its share of the oracle's",
            met=True,
        )
