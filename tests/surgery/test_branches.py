"""A compaction frees what is before it only for those who come after it on their own branch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sessions import HEADER, jsonl
from tests.surgery.calls import text, thought
from tests.surgery.in_memory import Session

SIGNED = thought("hm") | {"thinkingSignature": "s"}


def message(id: str, parent: str | None, role: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    about = {"type": "message", "id": id, "parentId": parent}
    return {**about, "message": {"role": role, "content": list(blocks), **more}}


def answer(id: str, parent: str, *blocks: Any) -> dict[str, Any]:
    return message(id, parent, "assistant", *blocks, model="claude-opus-6", stopReason="stop")


@pytest.mark.parametrize(
    ("goes_on_from", "taken"),
    [
        ("c", True),  # from the compaction: what was signed does not reach back to e1
        ("e2", False),  # from before it: what was signed covers e1
        (None, True),  # anew: nothing before it is sent any more
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
