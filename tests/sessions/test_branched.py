"""A session branched off from another: its copied lines name files of the first session."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.verify import verify
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.session_files import HEADER, LONG, NAME, Clock, conversation, write

BRANCH, TWIG = SessionName("main", "branch"), SessionName("main", "twig")


def branch_off(layout: Layout, of: SessionName, name: SessionName) -> Path:
    """Branch off as pi does: a new header, and the branch's lines unchanged."""
    source = layout.session_file(of)
    lines = [json.loads(line) for line in source.read_bytes().splitlines()]
    header = {**HEADER, "id": name.session, "parentSession": str(source)}
    return write(layout, [header, *lines[1:]], name)


def texts(path: Path) -> dict[str, Any]:
    entries = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    return {one["id"]: one["message"]["content"][0]["text"] for one in entries}


def test_what_is_away_comes_back_in_the_branch(
    layout: Layout, caller: Caller, clock: Clock
) -> None:
    original = texts(write(layout, conversation(2)))
    caller.extract(NAME)
    branch_off(layout, NAME, BRANCH)
    path = branch_off(layout, BRANCH, TWIG)
    assert verify(layout).clean

    assert performed.extracted_content(caller, TWIG, "e1")["content"]
    assert performed.restore(caller, TWIG, "e1")["restored"] is True
    assert texts(path)["e1"] == original["e1"]
    set_idle(path)
    performed.undo(caller, TWIG)
    assert texts(path)["e1"] == "[[extracted-e1]]"
    set_idle(path)
    assert performed.restore_all(caller, TWIG).unavailable == {}
    assert texts(path) == original

    clock.sleep(700)
    set_idle(path)
    assert caller.extract(TWIG).values == 2
    layout.session_file(NAME).unlink()
    layout.session_file(BRANCH).unlink()
    set_idle(path)
    assert performed.restore_all(caller, TWIG).unavailable == {}, "by now it has files of its own"
    assert texts(path) == original


def test_a_file_of_the_same_name_in_the_branch_is_not_taken_for_it(
    layout: Layout, caller: Caller
) -> None:
    write(layout, conversation(1))
    caller.extract(NAME)
    path = branch_off(layout, NAME, BRANCH)
    store, own = layout.store_dir(NAME), layout.store_dir(BRANCH)
    (stored,) = store.glob("*_tool_result.json")
    own.mkdir(parents=True)
    (own / stored.name).write_bytes(b'{"id":"e9"}\n')
    assert performed.restore(caller, BRANCH, "e1")["restored"] is True
    assert texts(path)["e1"] == f"1 {LONG}"

    for _ in range(2):  # a value that leaves again becomes a file of the branch, under a free name
        set_idle(path)
        performed.undo(caller, BRANCH)
        assert texts(path)["e1"] == "[[extracted-e1]]"
        set_idle(path)
        assert performed.restore(caller, BRANCH, "e1")["restored"] is True
        assert texts(path)["e1"] == f"1 {LONG}"
    assert len(list(own.glob("*_tool_result*.json"))) == 2
    assert (own / stored.name).read_bytes() == b'{"id":"e9"}\n'


@pytest.mark.parametrize("ending", ["reset.2026-11-22T08-09-38.219Z", "bak-4711-1795334978219"])
def test_a_chain_goes_on_behind_a_session_that_the_gateway_put_aside(
    layout: Layout, caller: Caller, ending: str
) -> None:
    original = texts(write(layout, conversation(2)))
    caller.extract(NAME)
    middle = branch_off(layout, NAME, BRANCH)
    path = branch_off(layout, BRANCH, TWIG)
    middle.rename(f"{middle}.{ending}")
    assert verify(layout).clean
    assert performed.restore_all(caller, TWIG).unavailable == {}
    assert texts(path) == original


def test_a_file_of_its_own_is_not_damaged_when_that_of_its_parent_is_gone(
    layout: Layout, caller: Caller
) -> None:
    twin = [{**one, "id": f"f{one['id']}"} for one in conversation(1)[1:]]
    write(layout, conversation(1))
    caller.extract(NAME)
    path = branch_off(layout, NAME, BRANCH)
    shutil.rmtree(layout.store_dir(NAME))
    lines = path.read_bytes().splitlines(keepends=True)
    (away,) = [line for line in lines if b"[[extracted-" in line]
    path.write_bytes(lines[0] + b"".join(json.dumps(one).encode() + b"\n" for one in twin))
    set_idle(path)
    assert caller.extract(BRANCH).values == 1
    with path.open("ab") as stream:
        stream.write(away)
    set_idle(path)
    (own,) = layout.store_dir(BRANCH).glob("0*.json")
    assert own.stem == json.loads(away)["_extracted"]["ref"]
    assert {one.kind for one in verify(layout).findings} == {"missing_file"}
    assert performed.restore(caller, BRANCH, "e1")["unavailable"] == {
        "message.content[0].text": "[Content unavailable - extracted file missing]"
    }


def test_a_session_under_another_name_has_its_store_where_it_was(
    layout: Layout, caller: Caller
) -> None:
    lines = [{**HEADER, "id": NAME.session}, *conversation(1)[1:]]
    path = write(layout, lines)
    caller.extract(NAME)
    path = path.rename(path.with_name("other.jsonl"))
    set_idle(path)
    assert performed.restore(caller, SessionName("main", "other"), "e1")["restored"] is True
    assert texts(path)["e1"] == f"1 {LONG}"


def test_an_agent_under_another_name_has_its_stores_where_they_were(
    layout: Layout, caller: Caller
) -> None:
    original = texts(write(layout, conversation(2)))
    caller.extract(NAME)
    path = branch_off(layout, NAME, BRANCH)
    (layout.agents / "main").rename(layout.agents / "my_work")
    moved = SessionName("my_work", NAME.session)
    assert verify(layout).clean
    assert performed.restore(caller, moved, "e1")["restored"] is True
    path = layout.session_file(SessionName("my_work", BRANCH.session))
    set_idle(path)
    assert performed.restore_all(caller, SessionName("my_work", BRANCH.session)).unavailable == {}
    assert texts(path) == original


def test_a_store_of_the_same_session_that_leads_elsewhere_is_passed_over(
    layout: Layout, caller: Caller, tmp_path: Path
) -> None:
    write(layout, conversation(1))
    caller.extract(NAME)
    elsewhere = layout.store_dir(NAME).rename(tmp_path / "elsewhere")
    (layout.extracted / f"other_{NAME.session}").symlink_to(elsewhere)
    assert performed.restore(caller, NAME, "e1")["unavailable"]
