"""Check whether a session survived, from files and recorded writes alone, without bsd's code."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.sessions.commit.ledger import Ledger


@dataclass
class Oracle:
    """Conditions that hold, after everything is over, for a session that contained `original`."""

    root: Path
    path: Path
    original: bytes
    ledger: Ledger
    in_doubt: tuple[bytes, ...] = ()  # lines that may survive, but need not
    problems: list[str] = field(default_factory=list)
    is_over: bool = True

    def judge(self, *, is_over: bool = True) -> list[str]:
        """Every violation of the promise; empty if it is kept.

        Until it `is_over`, lines may still be in a displaced file that is watched.
        """
        self.problems = []
        self.is_over = is_over
        events = self.ledger.events()
        where = self._where(events)
        if where is not None and not where.exists():
            self._say(f"there is no session at {where.name}")
            where = None
        content = where.read_bytes() if where else b""
        if where is not None:
            self._is_whole(content)
        self._others_are_untouched(events, where)
        self._every_line_is_there(events, content)
        return self.problems

    def leftovers(self) -> list[str]:
        """Files of a commit that no process needs any more."""
        found = [*self.root.glob("**/inflight/*"), *self.root.glob("**/*probe*")]
        sessions = self.path.parent
        known = (".jsonl", ".lock", ".json", ".reset.2026-01-01")
        found += [file for file in sessions.iterdir() if not file.name.endswith(known)]
        # The files that a lock leaves are removed by the next process that finds their owner dead.
        found = [file for file in found if not file.name.startswith(".bsd-lock-")]
        return [str(file.relative_to(self.root)) for file in found if file.is_file()]

    def _say(self, problem: str) -> None:
        self.problems.append(problem)

    def _where(self, events: list[dict[str, Any]]) -> Path | None:
        where: Path | None = self.path
        for event in events:
            if event["event"] == "renamed":
                where = Path(event["to"])
            if event["event"] == "deleted":
                where = None
        return where

    def _is_whole(self, content: bytes) -> None:
        if not content.endswith(b"\n"):
            self._say(f"the last line is torn: …{content[-60:]!r}")
        for number, raw in enumerate(content.split(b"\n")[:-1]):
            if not _is_json(raw):
                self._say(f"line {number} is no JSON: {raw[:80]!r}…{raw[-80:]!r}")

    def _others_are_untouched(self, events: list[dict[str, Any]], where: Path | None) -> None:
        another = next((e["content"].encode() for e in events if e["event"] == "another"), None)
        if where == self.path:
            return
        if another is None and self.path.exists():
            self._say("a session that was deleted or renamed is back at its path")
        if another is not None and self.path.read_bytes() != another:
            self._say(f"another session was changed: {self.path.read_bytes()!r}")

    def _every_line_is_there(self, events: list[dict[str, Any]], content: bytes) -> None:
        wanted = {_id(raw): raw for raw in _lines(self.original)}
        order = list(wanted)
        written = [e["line"].encode() for e in events if e["event"] == "wrote"]
        wanted |= {_id(raw): raw for raw in written}
        dropped = {
            _id(raw.encode()) for e in events if e["event"] == "dropped" for raw in e["lines"]
        }
        optional = {_id(raw) for raw in self.in_doubt}
        sheltered = self._orphans()
        in_flight = {
            _id(raw)
            for file in self.root.glob("**/inflight/*.file")
            for raw in _lines(file.read_bytes())
        }
        has_place = not any(e["event"] in ("renamed", "deleted") for e in events)

        found = Counter(map(_id, _lines(content)))
        for identity, raw in wanted.items():
            times = found[identity]
            if times > 1:
                self._say(f"{identity} is there {times} times")
            if times or identity in dropped or identity in optional:
                continue
            if not sheltered[identity]:
                if self.is_over or identity not in in_flight:
                    self._say(f"{identity} is lost")
            elif has_place and not sheltered.is_rival(identity, set(map(_id, written)) - dropped):
                self._say(f"{identity} became an orphan although its session is there")
            elif sheltered.bytes[identity] != raw:
                self._say(f"{identity} is another line in its orphan")
        for raw in _lines(content):
            self._is_as_written(raw, wanted)
        present = [identity for identity in map(_id, _lines(content)) if identity in wanted]
        self._is_in_order("the session", present, order)
        self._is_in_order("the orphans", sheltered.order, [])

    def _is_as_written(self, raw: bytes, wanted: dict[str, bytes]) -> None:
        identity = _id(raw)
        if identity not in wanted:
            self._say(f"nobody wrote {raw[:80]!r}")
        elif raw != wanted[identity] and (kept := self._kept(raw)) != wanted[identity]:
            what = "cannot be restored" if kept is None else "would be restored wrongly"
            self._say(f"{identity} {what}")

    def _kept(self, raw: bytes) -> bytes | None:
        """The original of an edited line, by its marker; restored lines are their original."""
        entry = json.loads(raw)
        if marker := entry.get("_extracted"):
            for file in self.root.glob(f"extracted/*/{marker['ref']}.json"):
                data = file.read_bytes()
                if f"sha256:{hashlib.sha256(data).hexdigest()}" == marker["hash"]:
                    return data
            return None
        if entry.pop("_restored", None):
            for original in _lines(self.original):
                if json.loads(original) == entry:
                    return original
        return None

    def _is_in_order(self, where: str, ids: list[str], order: list[str]) -> None:
        known = [identity for identity in ids if identity in order]
        if known != [identity for identity in order if identity in set(known)]:
            self._say(f"the original lines of {where} are in another order")
        if known and ids[: len(known)] != known:
            self._say(f"lines were put between the original lines of {where}")
        numbers: dict[str, list[int]] = defaultdict(list)
        for identity in ids:
            if identity not in order:
                writer, _, number = identity.rpartition("-")
                numbers[writer].append(int(number))
        for writer, seen in numbers.items():
            if seen != sorted(seen):
                self._say(f"the lines of {writer} in {where} are in the order {seen}")

    def _orphans(self) -> _Sheltered:
        sheltered = _Sheltered()
        for about in sorted(self.root.glob(".brainsurgeon/orphans/*.json")):
            told = json.loads(about.read_bytes())
            if told["target"] != str(self.path):
                self._say(f"an orphan tells of {told['target']}")
            sheltered.add(about.with_suffix(".late").read_bytes())
        return sheltered


class _Sheltered:
    """Lines in orphan files."""

    def __init__(self) -> None:
        self.bytes: dict[str, bytes] = {}
        self.whole_files: list[set[str]] = []
        self.order: list[str] = []

    def add(self, content: bytes) -> None:
        lines = [raw for raw in _lines(content) if _is_json(raw)]
        whole_file = bool(lines) and json.loads(lines[0]).get("type") == "session"
        if whole_file:
            self.whole_files.append(set(map(_id, lines)))
        for raw in lines:
            self.bytes[_id(raw)] = raw
            if not whole_file:
                self.order.append(_id(raw))

    def __getitem__(self, identity: str) -> bool:
        return identity in self.bytes

    def is_rival(self, identity: str, written: set[str]) -> bool:
        """Whether the line is in a rewritten session that could not replace another.

        The other session holds lines that a program wrote and that this session lacks.
        """
        return any(identity in ids and written - ids for ids in self.whole_files)


def _lines(content: bytes) -> list[bytes]:
    return [raw + b"\n" for raw in content.split(b"\n")[:-1]]


@lru_cache(maxsize=10_000)
def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=10_000)  # the same few lines, at every crash
def _id(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["id"])
    except (ValueError, KeyError, TypeError):
        return f"unreadable {raw[:60]!r}"
