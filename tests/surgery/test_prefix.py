"""What a signature covers: all that was sent with it, wherever reading begins, and for good."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.agents.entry import Entry
from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.store.state import Checkpoint
from bsd.surgery.sight import Prefix, id_hash
from tests.surgery.test_properties import EXAMPLES
from tests.text import nasty

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


def follow(session: list[Entry], start: int = 0) -> Prefix:
    ids = array("Q", (id_hash(entry["id"]) for entry in session[:start]))
    prefix = Prefix(binds, Checkpoint(0, start, 0, ids) if start else None)
    for index, entry in enumerate(session[start:], start):
        prefix.follow(index, OPENCLAW.facts(entry))
    return prefix


def covered(session: list[Entry], start: int = 0) -> set[int]:
    prefix = follow(session, start)
    return {index for index in range(start, len(session)) if prefix.covers(index)}


def sent_with_signatures(session: list[Entry]) -> set[int]:
    """All that their owner sends before a signature, found as it finds it: from the leaf back."""
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
        # Not from before the latest compaction: to know that, its ids are looked at.
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
