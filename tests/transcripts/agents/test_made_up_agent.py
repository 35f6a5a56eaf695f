"""A made-up program: this file holds everything that bsd needs to know about it.

Its entries, files, lock and list have names that no other program uses. Code that works here
therefore cannot know those names from another source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from bsd.core.errors import Busy, Invalid
from bsd.core.layout import SessionName
from bsd.daemon.scan import Scan
from bsd.maintenance import catalog
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.mcp.inband import InBand
from bsd.planning.edit import setting
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.entry import Entry, first_entries, text_of
from bsd.transcripts.agents.format import (
    TIES,
    EntryInfo,
    NotOurs,
    Rank,
    Title,
    ToolCall,
    TranscriptFormat,
    Turn,
    Value,
    named,
)
from bsd.transcripts.agents.program import (
    ENDING,
    AgentProgram,
    PutBack,
    Registered,
    Registry,
    SourceKind,
)
from bsd.transcripts.agents.programs import KINDS
from bsd.transcripts.agents.values import leaf_values, text_value
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import tree
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, Home, raw, without_restored

# --- declarations of a new agent ---

_TYPES = {"person": "user", "quill": "assistant", "gear": "tool_result"}


class Quill(TranscriptFormat):
    """Lines of a scroll: a person, the quill, or one of its gears says something."""

    name = "quill"
    parent_key = "after"
    ties = TIES | {"nr", "after", "who", "answers", "ask", "gear"}

    def info(self, entry: Entry) -> EntryInfo:
        who = text_of(entry.get("who"))
        calls = tuple(
            ToolCall(one["ask"], one["gear"], ("asks", at), ("asks", at, "with"))
            for at, one in enumerate(entry.get("asks", ()))
        )
        return EntryInfo(
            id=text_of(entry.get("nr")),
            kind=_TYPES.get(who or "", "scroll"),
            is_message=who is not None,
            parent=text_of(entry.get("after")),
            names_parent="after" in entry,
            is_header="scroll" in entry,
            is_assistant=who == "quill",
            turn=_turn(who, entry),
            role={"person": "user", "quill": "assistant", "gear": "toolResult"}.get(who or ""),
            calls=calls,
            result_of=text_of(entry.get("answers")),
            result_tool=text_of(entry.get("gear")),
        )

    def values(self, entry: Entry, at_least: int = 0) -> list[Value]:
        values: list[Value] = []
        for at, one in enumerate(entry.get("asks", ())):
            values += leaf_values(one["with"], ("asks", at, "with"), "tool_call", at_least)
        if says := text_of(entry.get("says")):
            values.append(text_value(("says",), says, _TYPES.get(entry.get("who", ""))))
        return values

    def title(self, entry: Entry) -> Title | None:
        return named(entry.get("scroll"), Rank.GIVEN)


def _turn(who: str | None, entry: Entry) -> Turn:
    if who == "person":
        return Turn.STARTS
    return Turn.CLOSES if entry.get("over") else Turn.OPEN if who else Turn.NONE


QUILL = Quill()


@dataclass(frozen=True, slots=True)
class Desk(AgentProgram):
    """A desk: `scrolls/<desk>/scroll-<n>.jsonl`; `contents` lists them."""

    scrolls: Path
    directory: Path

    def is_session_file(self, name: str) -> bool:
        return name.startswith("scroll-") and name.endswith(ENDING)

    def detect(self, first_lines: Iterable[bytes]) -> TranscriptFormat | NotOurs:
        first = next(first_entries(first_lines), {})
        return QUILL if "scroll" in first else NotOurs("no scroll")

    def is_named(self, entry: Entry) -> bool:
        return "nr" in entry

    def in_use(self, session: str) -> str | None:
        return "its ink is wet" if (self.directory / f"{session}.wet").exists() else None

    @contextmanager
    def _sanded(self, path: Path) -> Iterator[None]:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise Busy("somebody has strewn sand on it", hint="again later") from None
        yield
        path.unlink()

    def lock(
        self,
        name: SessionName,
        transcript: Path,
        wait: float = 0.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> AbstractContextManager[object]:
        return self._sanded(transcript.with_suffix(".sand"))

    @property
    def _contents(self) -> Path:
        return self.directory / "contents"

    def registry(self) -> Registry:
        rows = [line.split("|") for line in self._contents.read_text().splitlines()]
        return Registry(
            Registered(key, session, None, "shelved", parent or None)
            for key, session, parent in rows
        )

    def unlist(self, session: str, keep: Callable[[str], None], *, wait: float) -> None:
        lines = self._contents.read_text().splitlines()
        mine = [line for line in lines if line.split("|")[1] == session]
        if mine:
            keep(orjson.dumps({line.split("|")[0]: line for line in mine}).decode())
            self._contents.write_text("".join(f"{one}\n" for one in lines if one not in mine))

    def list_again(self, excerpt: str, *, wait: float) -> PutBack:
        lines: dict[str, str] = orjson.loads(excerpt)
        with self._contents.open("a") as contents:
            contents.writelines(f"{line}\n" for line in lines.values())
        return PutBack(tuple(lines))


KIND = SourceKind(routes=((None,),), called="scrolls", program=Desk)

# --- the whole way of a session ---


def scroll(turns: int = 4) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"quill": 1, "scroll": "about ducks"}]
    for turn in range(turns):
        lines += turn_of(turn, "look", {"what": LONG}, LONG)
    return lines


def turn_of(turn: int, gear: str, given: dict[str, Any], answer: str) -> list[dict[str, Any]]:
    nrs = [f"n{4 * turn + number}" for number in range(-1, 4)]
    lines: list[dict[str, Any]] = [
        {"who": "person", "says": "look at it"},
        {"who": "quill", "asks": [{"ask": f"a{turn}", "gear": gear, "with": given}]},
        {"who": "gear", "answers": f"a{turn}", "gear": gear, "says": answer},
        {"who": "quill", "says": f"It is so ({turn}).", "over": True},
    ]
    pairs = zip(nrs[1:], [None if turn == 0 else nrs[0], *nrs[1:]], lines, strict=False)
    return [{"nr": nr, "after": after, **line} for nr, after, line in pairs]


MADE_UP = tree.Kind(
    kind="quill",
    sessions=".quill/scrolls",
    directory="at the window",
    session="scroll-1",
    lines=scroll,
    recorded="",
    reads=lambda _: [],
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(KINDS, QUILL.name, __name__)
    home = Home.of(MADE_UP, tmp_path, scroll())
    (home.path.parent / "contents").write_text("first|scroll-1|\nsecond|scroll-2|scroll-1\n")
    return home


def test_it_is_found_and_listed(home: Home) -> None:
    [info] = catalog.sessions(home.layout)
    assert (info.name, info.title) == (home.name, "about ducks")
    assert (info.label, info.status) == ("first", "shelved")
    assert home.name.agent == "quill:at+20the+20window"
    [(name, seen)] = Scan(home.layout).step()
    assert (name, seen and seen.size) == (home.name, home.path.stat().st_size)


def test_what_leaves_comes_back_to_the_byte(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    beside, old = set(home.path.parent.iterdir()), home.path.read_bytes()
    result = caller.extract(home.name, overrides=EVERYTHING)
    assert (result.status, result.reason) == (Status.EXTRACTED, None)
    assert tree.away(old, home.path.read_bytes()) == result.values == 8
    assert set(home.path.parent.iterdir()) == beside
    assert verify(home.layout).clean
    assert performed.restore(caller, home.name, "n2")["keys_restored"] == ["says"]
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == old
    set_idle(home.path)
    assert performed.restore_all(caller, home.name, leaving=True).status is Status.RESTORED
    assert home.path.read_bytes() == old


def test_it_keeps_bsd_out_in_its_own_way(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock, wait=0.0)
    old = home.path.read_bytes()
    for ending, why in ((".wet", "ink is wet"), (".sand", "strewn sand")):
        sign = home.path.with_suffix(ending)
        sign.touch()
        result = caller.extract(home.name, overrides=EVERYTHING)
        assert result.status is Status.BUSY
        assert why in (result.reason or "")
        assert home.path.read_bytes() == old
        sign.unlink()
    assert caller.extract(home.name, overrides=EVERYTHING).status is Status.EXTRACTED


def test_what_ties_its_lines_together_is_not_edited(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    with pytest.raises(Invalid, match="after"):
        performed.edit(caller, home.name, "n1", setting([(("after",), "n7")]))


def test_calls_in_its_sessions_are_carried_out_and_leave(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    caller.extract(home.name, overrides=EVERYTHING)
    lines = turn_of(4, "restore_remote", {"entry": "n2"}, "there is no such gear")
    with home.path.open("ab") as file:
        file.write(raw(lines))
    set_idle(home.path)
    assert InBand(caller, home.name).carry_out()
    content = home.path.read_bytes()
    assert b"restore_remote" not in content
    assert b"no such gear" not in content
    entries = {one["nr"]: one for one in map(orjson.loads, content.splitlines()[1:])}
    assert entries["n2"]["says"] == LONG
    assert {one["after"] for one in entries.values()} <= {None, *entries}, "one follows nobody"
    assert verify(home.layout).clean


def test_it_goes_into_the_trash_with_its_children_and_comes_back(home: Home, clock: Clock) -> None:
    child = home.path.with_name("scroll-2.jsonl")
    child.write_bytes(raw(scroll(1)))
    set_idle(child)
    contents = home.path.parent / "contents"
    old, listed = home.path.read_bytes(), set(contents.read_text().splitlines())
    make_caller(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    taken = home.path.read_bytes()
    set_idle(home.path)
    trash = Trash(home.layout, "14d", budget=RetryBudget(clock=clock.now, sleep=clock.sleep))
    deleted = trash.delete(home.name)
    assert [item.name.session for item in deleted.items] == ["scroll-1", "scroll-2"]
    assert not home.path.exists()
    assert not child.exists()
    assert contents.read_text() == ""
    trash.restore(deleted.items[0].id)
    assert home.path.read_bytes() == taken
    assert child.exists()
    assert set(contents.read_text().splitlines()) == listed
    set_idle(home.path)
    performed.restore_all(make_caller(home.layout, clock), home.name, leaving=True)
    assert home.path.read_bytes() == old
