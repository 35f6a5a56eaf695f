from __future__ import annotations

from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Conflict, Invalid, NotFound
from bsd.core.formatting import iso_utc
from bsd.planning.restore import plan_restore_all
from bsd.store.originals import Missing
from tests.planning.in_memory import NOW, Session, without_restored
from tests.planning.test_extract import LONG, SIGNATURE, message, session

KEYS = (
    "message.content[0].thinking",
    "message.content[1].arguments.text",
    "message.content[2].text",
    "message.details.text",
)
EVERY = ["thinking", "tool_call", "tool_result", "assistant"]


def extracted() -> tuple[Session, bytes]:
    """An entry with four extracted values, and the session as it was."""
    content = [
        {"thinkingSignature": SIGNATURE, "type": "thinking", "thinking": LONG},
        {"type": "toolCall", "id": "c", "name": "write", "arguments": {"text": LONG}},
        {"type": "text", "text": LONG},
    ]
    entry = message("e1", "assistant", content, api="anthropic-messages", details={"text": LONG})
    whole = session(entry, message("e2", "toolResult", "small"))
    raw = whole.raw
    whole.extract(trigger_types=EVERY)
    assert tuple(whole.entry(1)["_extracted"]["keys"]) == KEYS
    return whole, raw


def test_everything_at_once() -> None:
    old, raw = extracted()
    answer = old.restore("e1")
    assert as_json(answer) == {
        "restored": True,
        "entry_id": "e1",
        "keys_restored": list(KEYS),
        "sizes_bytes": {key: len(LONG) for key in KEYS} | {KEYS[0]: len(LONG)},
    }
    assert without_restored(old.raw) == raw
    assert old.entry(1)["_restored"] == iso_utc(NOW)
    assert "_extracted" not in old.entry(1)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ([], KEYS),
        (["message"], KEYS),
        (["thinking"], KEYS[:1]),
        (["content"], KEYS[:3]),
        (["text"], KEYS[1:]),
        (["content[2]"], KEYS[2:3]),
        (["message.content[2].text"], KEYS[2:3]),
        (["details", "arguments"], (KEYS[1], KEYS[3])),
        (["arguments", "message.content[1].arguments.text"], KEYS[1:2]),
    ],
)
def test_keys_are_paths_or_segments(names: list[str], keys: tuple[str, ...]) -> None:
    old, raw = extracted()
    assert old.restore("e1", names).keys_restored == keys
    left = [key for key in KEYS if key not in keys]
    assert old.entry(1).get("_extracted", {"keys": []})["keys"] == left
    old.restore_all()
    assert without_restored(old.raw) == raw


@pytest.mark.parametrize(
    "name", ["output", "message.content", "tex", "2", "message.content[2]", ""]
)
def test_unknown_keys_name_the_known_ones(name: str) -> None:
    old, _ = extracted()
    before = old.raw
    with pytest.raises(Invalid, match="has no extracted key") as problem:
        old.restore("e1", ["thinking", name])
    assert problem.value.hint == f"its keys: {', '.join(KEYS)}"
    assert old.raw == before


def test_the_signature_comes_back_with_its_thinking_only() -> None:
    old, raw = extracted()
    old.restore("e1", ["text"])
    assert "thinkingSignature" not in old.entry(1)["message"]["content"][0]
    old.restore("e1", ["thinking"])
    assert list(old.entry(1)["message"]["content"][0]) == ["thinkingSignature", "type", "thinking"]
    assert without_restored(old.raw) == raw


def test_a_signature_that_somebody_put_there_stays() -> None:
    old, _ = extracted()
    old.raw = old.raw.replace(
        b'"thinking": "[[extracted-e1]]"',
        b'"thinking": "[[extracted-e1]]", "thinkingSignature": "new"',
    )
    old.restore("e1")
    block = old.entry(1)["message"]["content"][0]
    assert (block["thinking"], block["thinkingSignature"]) == (LONG, "new")


def test_a_second_restoration_says_so() -> None:
    old, raw = extracted()
    old.restore("e1", now=NOW)
    old.extract(NOW + 600, trigger_types=EVERY)
    answer = as_json(old.restore("e1", now=NOW + 700))
    assert answer["previous_restored_at"] == iso_utc(NOW)
    assert answer["suggestion"].endswith("consider setting _extractable: false on the entry.")
    assert old.entry(1)["_restored"] == iso_utc(NOW + 700)
    assert without_restored(old.raw) == raw


def test_a_missing_file_leaves_the_line_as_it_is() -> None:
    old, _ = extracted()
    before = old.raw
    old.shelf.files.clear()
    answer = old.restore("e1", ["thinking"])
    assert answer.missing is Missing.GONE
    assert answer.ref == "0001_thinking"
    assert as_json(answer) == {
        "restored": False,
        "entry_id": "e1",
        "keys_restored": [],
        "sizes_bytes": {},
        "unavailable": {KEYS[0]: "[Content unavailable - extracted file missing]"},
    }
    assert old.raw == before


@pytest.mark.parametrize("content", [b"other bytes", b""])
def test_a_damaged_file_leaves_the_line_as_it_is(content: bytes) -> None:
    old, _ = extracted()
    before = old.raw
    old.shelf.files["0001_thinking"] = content
    answer = old.restore("e1")
    assert answer.missing is Missing.CORRUPT
    assert set(answer.unavailable.values()) == {"[Content unavailable - extracted file corrupted]"}
    assert tuple(answer.unavailable) == KEYS
    assert old.raw == before


def test_a_value_that_was_changed_since_is_not_overwritten() -> None:
    old, _ = extracted()
    old.raw = old.raw.replace(b'"text": "[[extracted-e1]]"}]', b'"text": "[[extracted-e1]] new"}]')
    assert as_json(old.restore("e1", ["content[2]"]))["changed"] == [KEYS[2]]
    answer = old.restore("e1")
    assert answer.keys_restored == (KEYS[0], KEYS[1], KEYS[3])
    assert answer.changed == (KEYS[2],)
    assert old.entry(1)["message"]["content"][2]["text"] == "[[extracted-e1]] new"
    assert "_extracted" not in old.entry(1)


def test_nothing_to_restore() -> None:
    old, _ = extracted()
    with pytest.raises(Conflict, match=r"^Entry exists but has no extracted content$"):
        old.restore("e2")
    old.restore("e1")
    with pytest.raises(Conflict, match=r"^Entry was previously restored but content is not curr"):
        old.restore("e1")
    with pytest.raises(NotFound, match=r"^Entry not found in session$"):
        old.restore("nobody")


def test_an_entry_whose_values_were_all_changed_has_nothing_away() -> None:
    old, _ = extracted()
    old.raw = old.raw.replace(b"[[extracted-e1]]", b"gone")
    with pytest.raises(Conflict, match="no extracted content") as problem:
        old.restore("e1")
    assert "changed since extraction" in (problem.value.hint or "")


def test_entries_by_index() -> None:
    numbered = message("7", "toolResult", LONG)
    old = session(message("2", "toolResult", LONG), message("e", "toolResult", LONG), numbered)
    old.extract()
    assert old.restore("7").index == 3  # an id comes before a line number
    assert old.restore("2").entry_id == "2"
    old.extract(NOW + 700)
    assert old.restore("#2").entry_id == "e"
    assert old.restore("3", now=NOW + 700).entry_id == "7"
    for name in ("#0", "0", "#99", "99", "#x", "#"):
        with pytest.raises(NotFound):
            old.restore(name)


def test_an_id_spelled_with_escapes_is_found() -> None:
    line = (
        b'{"type":"message","id":"\\u0065\\u0031","message":{"role":"toolResult","content":"%b"}}\n'
    )
    old = session(line % LONG.encode())
    old.extract()
    assert old.restore("e1").index == 1


def test_an_id_that_became_ambiguous() -> None:
    old, raw = extracted()
    twin = b'{"type":"message","id":"e1"}\n'
    old.raw += twin
    assert old.restore("e1").index == 1
    assert without_restored(old.raw) == raw + twin
    with pytest.raises(Conflict, match="several entries") as problem:
        old.restore("e1")
    assert "#1" in (problem.value.hint or "")


def test_a_line_that_can_no_longer_be_edited() -> None:
    old, _ = extracted()
    old.raw = old.raw.replace(b'"details": {"text"', b'"details": {}, "details": {"text"')
    with pytest.raises(Conflict):
        old.restore("e1")
    [answer] = old.restore_all()
    assert answer.keys_restored == ()
    assert set(answer.unavailable) == set(KEYS)
    assert all("cannot be edited" in text for text in answer.unavailable.values())


def test_a_key_that_the_file_lacks_stays_away() -> None:
    old, _ = extracted()
    old.raw = old.raw.replace(b'"' + KEYS[3].encode() + b'"', b'"message.role"').replace(
        b'"role": "assistant"', b'"role": "assistant", "extra": "[[extracted-e1]]"'
    )
    old.raw = old.raw.replace(b'"message.role"', b'"message.extra"')
    answer = old.restore("e1")
    assert answer.keys_restored == KEYS, "the last by its placeholder, which no marker names"
    assert answer.unavailable == {
        "message.extra": "[Content unavailable - not in the extracted file]"
    }
    assert old.entry(1)["_extracted"]["keys"] == ["message.extra"]


def test_restore_all_within_a_budget() -> None:
    old = session(*(message(f"e{number}", "toolResult", LONG) for number in range(5)))
    raw = old.raw
    old.extract()
    rounds: list[int] = []
    complete = False
    while not complete:
        plan, answers = plan_restore_all(old.source, old.fmt, NOW, old.shelf, budget_bytes=1000)
        old.carry_out(plan)
        rounds.append(len(answers))
        complete = plan.complete
    assert rounds == [2, 2, 1]
    assert without_restored(old.raw) == raw


def test_restore_all_reports_what_cannot_come_back() -> None:
    old = session(message("e1", "toolResult", LONG), message("e2", "toolResult", LONG))
    old.extract()
    del old.shelf.files["0001_tool_result"]
    answers = old.restore_all()
    assert [(answer.entry_id, answer.missing) for answer in answers] == [
        ("e1", Missing.GONE),
        ("e2", None),
    ]
    assert old.entry(1)["message"]["content"] == "[[extracted-e1]]"
    assert old.entry(2)["message"]["content"] == LONG


@pytest.mark.parametrize(
    "marker", [True, {"ref": "0001_x"}, {"ref": 1, "hash": "h", "keys": ["a"]}]
)
def test_a_foreign_member_of_our_markers_name_is_nobodys_business(marker: Any) -> None:
    old = session(message("e1", "toolResult", LONG) | {"_extracted": marker})
    before = old.raw
    assert old.restore_all() == ()
    with pytest.raises(Conflict):
        old.restore("e1")
    assert old.raw == before
