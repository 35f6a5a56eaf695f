"""A signature covers everything sent with it, wherever reading begins, and for good."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.context_window import ContextWindow, id_hash
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import Entry
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from tests.planning.in_memory import Session
from tests.planning.test_properties import EXAMPLES
from tests.session_files import HEADER, jsonl, text, thought
from tests.transcripts import nasty

BINDING = "claude-opus-6"
_SIGNED = {"type": "thinking", "thinking": "t" * 40, "thinkingSignature": "s" * 9}


@st.composite
def entries(draw: st.DrawFn, *, branches: bool = True) -> list[Entry]:
    """Signatures of models that cover what is before them and of others, and compactions."""
    found: list[Entry] = []
    kinds = st.sampled_from(["result", "signed", "signed", "plain", "user", "compaction"])
    for number in range(draw(st.integers(1, 12))):
        kind = draw(kinds)
        entry: Entry = {"type": "message", "id": f"e{number}"}
        if number:
            entry["parentId"] = f"e{number - 1}"
        if branches and draw(st.integers(0, 3)) == 0:
            entry["parentId"] = draw(_earlier(number) | st.sampled_from([None, "nobody"]))
        if kind == "compaction":
            kept = draw(_earlier(number) | st.sampled_from([None, "nobody"]))
            entry |= {"type": "compaction", "summary": "s", "firstKeptEntryId": kept}
        else:
            entry["message"] = _message(kind)
        found.append(entry)
    return found


def _earlier(number: int) -> st.SearchStrategy[str]:
    return st.integers(0, max(number - 1, 0)).map("e{}".format)


def _message(kind: str) -> dict[str, Any]:
    if kind == "result":
        content = [{"type": "text", "text": "x" * 40}]
        return {"role": "toolResult", "content": content, "details": {"diff": "d" * 40}}
    if kind == "user":
        return {"role": "user", "content": "go on"}
    return {
        "role": "assistant",
        "api": "anthropic-messages",
        "model": BINDING if kind == "signed" else "claude-opus-4-5",
        "stopReason": "stop",
        "content": [_SIGNED],
    }


def binds(model: str) -> bool:
    return model == BINDING


def follow(session: list[Entry], start: int = 0) -> ContextWindow:
    ids = array("Q", (id_hash(entry["id"]) for entry in session[:start]))
    prefix = ContextWindow(binds, Checkpoint(0, start, 0, ids) if start else None)
    for index, entry in enumerate(session[start:], start):
        prefix.follow(index, OPENCLAW.info(entry))
    return prefix


def covered(session: list[Entry], start: int = 0) -> set[int]:
    prefix = follow(session, start)
    return {index for index in range(start, len(session)) if prefix.covered(index - start)}


def sent_with_signatures(session: list[Entry]) -> set[int]:
    """All entries that their program sends before a signature, found as the program finds them:
    from the leaf back.
    """
    lines = {entry["id"]: index for index, entry in enumerate(session)}
    sent: set[int] = set()
    for index, entry in enumerate(session):
        if entry.get("message", {}).get("model") != BINDING:
            continue
        path: list[int] = []
        at = lines.get(entry.get("parentId", ""))
        while at is not None and at not in path:
            path.insert(0, at)
            at = lines.get(session[at].get("parentId") or "")
        for place, one in reversed(list(enumerate(path))):
            if session[one]["type"] == "compaction":
                kept = lines.get(session[one]["firstKeptEntryId"] or "")
                before = path[path.index(kept) : place] if kept in path[:place] else []
                path = [*before, *path[place + 1 :]]
                break
        sent |= {one for one in path if one < index}
    return {one for one in sent if session[one]["type"] != "compaction"}


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries(), st.data())
def test_where_reading_begins_makes_no_difference(
    session: list[Entry], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(session)))
    assert covered(session, start) == {one for one in covered(session) if one >= start}


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries(), st.data())
def test_what_is_covered_stays_covered(session: list[Entry], data: st.DataObject) -> None:
    then = data.draw(st.integers(0, len(session)))
    assert covered(session[:then]) <= covered(session)


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries())
def test_all_that_was_sent_is_covered(session: list[Entry]) -> None:
    assert sent_with_signatures(session) <= covered(session)


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries(branches=False))
def test_without_branches_nothing_else_is_covered(session: list[Entry]) -> None:
    conversation = {i for i, entry in enumerate(session) if entry["type"] != "compaction"}
    assert covered(session) & conversation == sent_with_signatures(session)


def test_a_compaction_may_keep_what_an_earlier_one_took() -> None:
    session: list[Entry] = [{"type": "message", "id": f"e{n}"} for n in range(3)]
    for number, kept in enumerate(("e2", "e1"), 3):
        session.append({"type": "compaction", "id": f"e{number}", "firstKeptEntryId": kept})
    session.append({"type": "message", "id": "s", "message": _message("signed")})
    assert covered(session) == {1, 2, 3, 4}


def test_each_compaction_has_its_own_before() -> None:
    session: list[Entry] = [{"type": "message", "id": "e0"}]
    for number in (1, 2):
        session.append({"type": "compaction", "id": f"c{number}"})
        session.append({"type": "message", "id": f"a{number}", "parentId": f"c{number}"})
        # Not from before the latest compaction: its ids are needed to know that.
        session.append({"type": "message", "id": f"b{number}", "parentId": f"c{number}"})
    session.append({"type": "message", "id": "s", "parentId": "b1", "message": _message("signed")})
    assert covered(session) == set(range(7))


def test_a_compaction_may_keep_and_a_branch_go_on_from_what_is_before_the_checkpoint() -> None:
    start: list[Entry] = [{"type": "message", "id": f"e{n}"} for n in range(3)]
    signed: Entry = {"type": "message", "id": "s", "message": _message("signed")}
    compaction = {"type": "compaction", "id": "c", "firstKeptEntryId": "e1"}
    assert covered([*start, compaction, signed], 2) == {2, 3}
    compaction = {"type": "compaction", "id": "c"}
    assert covered([*start, compaction, {**signed, "parentId": "c"}], 2) == {3}
    assert covered([*start, compaction, {**signed, "parentId": "e1"}], 2) == {2, 3}


# --- a compaction frees the earlier entries only for later entries on its own branch ---


SIGNED = thought("hm") | {"thinkingSignature": "s"}


def message(id: str, parent: str | None, role: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    about = {"type": "message", "id": id, "parentId": parent}
    return {**about, "message": {"role": role, "content": list(blocks), **more}}


def answer(id: str, parent: str, *blocks: Any) -> dict[str, Any]:
    return message(id, parent, "assistant", *blocks, model="claude-opus-6", stopReason="stop")


@pytest.mark.parametrize(
    ("goes_on_from", "taken"),
    [
        ("c", True),  # from the compaction: its signature does not reach back to e1
        ("e2", False),  # from before it: its signature covers e1
        (None, True),  # anew: no earlier entry is sent any more
        ("nobody", True),  # recorded sessions name parents that are not there
    ],
)
def test_a_compaction_counts_on_its_own_branch(goes_on_from: str | None, taken: bool) -> None:
    session = Session(
        jsonl(
            HEADER,
            message("u0", None, "user", text("please")),
            message("e1", "u0", "toolResult", text("x" * 600)),
            answer("e2", "e1", text("so")),
            message("u1", "e2", "user", text("and?")),
            answer("e3", "u1", text("so")),
            {"type": "compaction", "id": "c", "parentId": "e3", "firstKeptEntryId": "u1"},
            message("u2", goes_on_from, "user", text("again")),
            answer("e4", "u2", SIGNED, text("so")),
            message("u3", "e4", "user", text("well")),
            answer("e5", "u3", text("so")),
        )
    )
    plan = session.extract(keep_recent=0)
    assert [keep.entry_id for keep in plan.keeps] == (["e1"] if taken else [])


def test_a_branch_that_was_left_frees_nothing_though_it_was_signed_first() -> None:
    session = Session(
        jsonl(
            HEADER,
            message("u0", None, "user", text("please")),
            message("e1", "u0", "toolResult", text("x" * 600)),
            answer("e2", "e1", text("so")),
            message("u1", "e2", "user", text("and?")),
            {"type": "compaction", "id": "c", "parentId": "u1", "firstKeptEntryId": "u1"},
            answer("e3", "c", SIGNED, text("after the compaction")),
            message("u2", "e2", "user", text("again, from before")),
            answer("e4", "u2", SIGNED, text("so")),
            message("u3", "e4", "user", text("well")),
            answer("e5", "u3", text("so")),
        )
    )
    assert not session.extract(keep_recent=0).keeps
