"""Lines written several times, on disk: they leave, come back and are forgotten, each exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import NotFound
from bsd.maintenance.verify import verify
from bsd.store.contents import contents_of
from tests.actions import performed
from tests.maintenance.archiving import age, clean, kept
from tests.maintenance.test_forgetting import forgetting, said
from tests.openclaw_tree import set_idle
from tests.planning.test_lines_written_twice import RESULT, claude_code_turn_after, copied
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, away, without_restored

TYPES = EVERYTHING | {"trigger_types": ["tool_result"]}


@pytest.fixture(params=[True, False], ids=["branch", "replay"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A session in which the lines of three turns occur twice."""
    lines = claude_code_lines()
    first = copied(lines) if request.param else lines
    return Home.of(CLAUDE_CODE, tmp_path, [*first, *lines, *claude_code_turn_after(lines)])


def marked(home: Home, entry: str = RESULT) -> list[dict[str, Any]]:
    """The lines of an entry that have extracted values."""
    lines = map(json.loads, home.path.read_bytes().splitlines())
    return [line for line in lines if line.get("uuid") == entry and "_extracted" in line]


def test_they_leave_come_back_and_are_taken_back(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    result = caller.extract(home.name, overrides=TYPES)
    taken = home.path.read_bytes()
    assert away(old, taken) == result.values > 0
    assert len(marked(home)) == 2
    assert verify(home.layout).clean
    one = performed.restore(caller, home.name, RESULT)
    assert (one["restored"], marked(home)) == (True, [])
    assert verify(home.layout).clean
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == taken
    at = next(n for n, line in enumerate(taken.splitlines()) if RESULT.encode() in line)
    performed.restore(caller, home.name, f"#{at}")
    assert len(marked(home)) == 1
    performed.undo(caller, home.name)
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == old
    again = caller.extract(home.name, overrides=TYPES, by_hand=True)
    assert again.values == result.values
    performed.restore_all(caller, home.name, leaving=True)
    assert home.path.read_bytes() == old


def test_an_operation_whose_process_was_killed_is_known(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    caller.extract(home.name, overrides=TYPES)
    taken = home.path.read_bytes()
    [operation] = home.layout.history_dir(home.name).glob("*.jsonl")
    operation.rename(operation.with_suffix(".pending"))
    caller = make_caller(home.layout, clock)
    caller.recover_all()
    assert home.path.read_bytes() == taken
    [known] = performed.history_of(home.layout, home.name)
    assert (known.action, known.state) == ("extract", "done")
    performed.undo(caller, home.name)
    assert home.path.read_bytes() == old


def test_they_come_back_from_the_archive_and_without_an_index(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    caller.extract(home.name, overrides=TYPES)
    refs = {line["_extracted"]["ref"] for line in marked(home)}
    assert len(refs) == 2
    (home.layout.store_dir(home.name) / "index.json").unlink()
    contents_of(home.layout).changed()
    verify(home.layout, repair=True)
    assert verify(home.layout).clean
    age(home.layout, home.name)
    clean(home.layout)
    assert kept(home.layout, home.name)
    assert not list(home.layout.store_dir(home.name).glob("0*"))
    set_idle(home.path)
    assert verify(home.layout).clean
    assert performed.restore(caller, home.name, RESULT)["restored"]
    assert marked(home) == []
    performed.restore_all(caller, home.name)
    assert without_restored(home.path.read_bytes()) == old


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
def test_an_entry_is_forgotten_in_both(home: Home, clock: Clock, *, packed: bool) -> None:
    word = "zephyrine"
    lines = home.path.read_bytes().splitlines(keepends=True)
    lines = [
        line.replace(b"long", word.encode()) if RESULT.encode() in line else line for line in lines
    ]
    home.path.write_bytes(b"".join(lines))
    set_idle(home.path)
    caller = make_caller(home.layout, clock)
    caller.extract(home.name, overrides=TYPES)
    if packed:
        age(home.layout, home.name)
        clean(home.layout)
    assert said(home.layout, word)
    forgetting(home.layout, clock).entry(home.name, RESULT)
    assert said(home.layout, word) == []
    answer = performed.restore(caller, home.name, RESULT)
    assert not answer["restored"]
    assert "forgotten" in str(answer["unavailable"])
    assert len(marked(home)) == 2
    with pytest.raises(NotFound):
        forgetting(home.layout, clock).entry(home.name, RESULT)
