"""Editing one entry: only what was changed gets new bytes, and nothing that ties entries does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import Conflict, Invalid, NotFound
from bsd.planning.edit import (
    Edited,
    Wish,
    becoming,
    plan_edit,
    read_assignment,
    read_document,
    setting,
    show_entry,
    write_document,
)
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from bsd.transcripts.reader import BytesTranscript, parse_entry
from bsd.transcripts.spans import format_path
from tests.planning.in_memory import NOW, Session
from tests.planning.sessions import sessions
from tests.planning.test_properties import EXAMPLES
from tests.session_files import HEADER, jsonl
from tests.transcripts import nasty

ENTRY = (
    rb'{ "type":"message", "id" : "e1","parentId":null,"big": 12345678901234567890123,'
    rb'"n":1e5, "message":{"role":"assistant","api":"x","stopReason":"stop", "content": [ '
    rb'{"type":"text","text":"A\u0041\/"} , {"type":"toolCall","id":"c1","name":"t",'
    rb'"arguments":{ "id":"7", "path":"\u00e9" }} ] } }' + b"\r\n"
)


def session(*lines: bytes) -> Session:
    return Session(jsonl(HEADER) + b"".join(lines or (ENTRY,)), OPENCLAW)


def edit(one: Session, wish: Wish, entry: str = "e1", seen: str | None = None) -> Edited:
    plan, answer = plan_edit(one.source, one.fmt, entry, wish, seen)
    one.carry_out(plan)
    assert len(plan.touched) == len(plan.edits) == bool(answer.changed)
    return answer


def sets(*assignments: str) -> Wish:
    return setting([read_assignment(text) for text in assignments])


def test_only_the_changed_value_gets_new_bytes() -> None:
    one = session()
    answer = edit(one, sets('message.content[0].text="new é"'))
    assert answer.changed == ("message.content[0].text",)
    assert one.raw == jsonl(HEADER) + ENTRY.replace(rb'"A\u0041\/"', '"new é"'.encode())


def test_what_is_shown_and_written_back_changes_nothing() -> None:
    one = session()
    shown = show_entry(one.source, one.fmt, "e1")
    assert '  "n": 1e5,\n' in shown.text
    assert '"path": "é"' in shown.text
    assert not edit(one, becoming(shown.text), seen=shown.seen).changed


def test_members_come_and_go_where_the_document_has_them() -> None:
    one = session()
    document = read_document(show_entry(one.source, one.fmt, "e1").text)
    del document["n"]
    arguments = {"first": True, **document["message"]["content"][1]["arguments"]}
    document["message"]["content"][1]["arguments"] = arguments
    document["big"] = None
    answer = edit(one, becoming(write_document(document)))
    assert set(answer.changed) == {"n", "big", "message.content[1].arguments.first"}
    assert one.raw == jsonl(HEADER) + ENTRY.replace(b'"n":1e5, ', b"").replace(
        b"12345678901234567890123,", b"null, "
    ).replace(b'{ "id":"7"', b'{ "first":true,"id":"7"')


def test_elements_that_stay_in_an_array_keep_their_bytes() -> None:
    one = session()
    document = read_document(show_entry(one.source, one.fmt, "e1").text)
    document["message"]["content"].insert(1, {"type": "text", "text": "more"})
    assert edit(one, becoming(write_document(document))).changed == ("message.content",)
    assert rb'[{"type":"text","text":"A\u0041\/"},{"type":"text","text":"more"},{"t' in one.raw
    assert rb'"arguments":{ "id":"7", "path":"\u00e9" }}] } }' in one.raw
    document["message"]["content"].pop()
    with pytest.raises(Invalid, match="calls"):
        edit(one, becoming(write_document(document)))


@pytest.mark.parametrize(
    "assignment",
    [
        *('id="e2"', '__id="x"', 'type="custom"', 'parentId="e0"', 'message.role="user"'),
        *('message.content[1].id="c2"', 'message.content[0].type="thinking"', 'customType="x"'),
        *('_extracted={"ref":"x"}', 'message.content[1].name="u"', "message.content=[]"),
        *('message.toolCallId="c9"', "message=1"),
    ],
)
def test_what_ties_entries_together_cannot_be_edited(assignment: str) -> None:
    one = session()
    before = one.raw
    with pytest.raises(Invalid):
        edit(one, sets(assignment))
    assert one.raw == before


def test_an_argument_that_is_called_id_can_be_edited() -> None:
    one = session()
    edit(one, sets('message.content[1].arguments.id="8"'))
    assert one.raw == jsonl(HEADER) + ENTRY.replace(b'"id":"7"', b'"id":"8"')


def test_a_header_cannot_be_edited() -> None:
    for name in ("s", "#0", "0"):
        with pytest.raises(NotFound):
            edit(session(), sets("x=1"), name)


def test_a_placeholder_must_stay_and_the_rest_may_change() -> None:
    long = {"type": "text", "text": "x" * 900}
    message = {"role": "toolResult", "content": [{"type": "text", "text": "short"}, long]}
    result = {"type": "message", "id": "r", "message": message}
    answer = {"role": "assistant", "content": [], "stopReason": "stop"}
    last = {"type": "message", "id": "a", "message": answer}
    original = jsonl(result, last)
    one = session(original)
    one.extract(NOW, keep_recent=0)
    extracted = one.raw
    for assignment in (
        'message.content[1].text="mine"',
        'message.content=[{"type":"text","text":"short"}]',
        "_extracted=null",
    ):
        with pytest.raises(Invalid):
            edit(one, sets(assignment), "r")
    document = json.loads(show_entry(one.source, one.fmt, "r").text)
    del document["_extracted"]
    with pytest.raises(Invalid, match="_extracted"):
        edit(one, becoming(json.dumps(document)), "r")
    assert one.raw == extracted
    edit(one, sets('message.content[0].text="other"'), "r")
    one.restore("r")
    assert one.entry(1)["message"]["content"] == [{"type": "text", "text": "other"}, long]


def test_a_key_that_stands_twice_is_left_alone() -> None:
    one = session(b'{"type":"message","id":"e1","message":{"role":"user"},"x":1,"x":2,"y":[1]}\n')
    before = one.raw
    with pytest.raises(Conflict, match="twice"):
        edit(one, sets("x=3"))
    assert one.raw == before
    edit(one, sets("y=[1,2]"))
    assert one.raw == before.replace(b"[1]", b"[1,2]")


def test_an_entry_that_changed_since_it_was_shown() -> None:
    one = session()
    shown = show_entry(one.source, one.fmt, "e1")
    one.raw = one.raw.replace(b"1e5", b"2e5")
    with pytest.raises(Conflict, match="changed meanwhile"):
        edit(one, becoming(shown.text), seen=shown.seen)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1]", "one JSON object"),
        ('{"a":1,"a":2}', "occurs twice"),
        ('{"a":NaN}', "NaN"),
        ('{\n"a":tru}', "line 2, column 5"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON|too deeply"),
    ],
)
def test_text_that_is_no_entry_says_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(Invalid, match=what):
        becoming(text)


def test_assignments() -> None:
    assert read_assignment('["a=b"].c[0]={"x":1.0}') == (("a=b", "c", 0), {"x": "1.0"})
    for text in ("x", "=1", "x=", "x=word"):
        with pytest.raises(Invalid):
            read_assignment(text)
    for place in ("nowhere.x=1", "message.content[9]=1", "id.x=1", "message[0]=1"):
        with pytest.raises(Invalid, match="has no value at"):
            edit(session(), sets(place))


def test_numbers_and_strings_are_different_things() -> None:
    one = session(b'{"type":"message","id":"e1","message":{"role":"user"},"x":1}\n')
    assert not edit(one, sets("x=1")).changed
    for value in (b'"1"', b"1.0", b"true", b"null", b"[1]", b"-0"):
        assert edit(one, sets(f"x={value.decode()}")).changed == ("x",)
        assert one.raw.endswith(b'"x":' + value + b"}\n")


def test_lone_surrogates_are_kept() -> None:
    one = session(rb'{"type":"message","id":"e1","message":{"role":"user"},"x":"\ud83d"}' + b"\n")
    shown = show_entry(one.source, one.fmt, "e1")
    assert r"\ud83d" in shown.text
    document = json.loads(shown.text) | {"y": [{"\udc00": "\ud83d"}]}
    edit(one, becoming(write_document(document)))
    assert one.entry(1)["y"] == [{"\udc00": "\ud83d"}]


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(nasty.values)
def test_documents_are_written_as_they_were_read(raw: bytes) -> None:
    try:
        text = raw.decode()
        document = read_document(text)
    except (Invalid, UnicodeDecodeError):
        return
    for indent in (None, 2):
        assert read_document(write_document(document, indent)) == document


_values = st.sampled_from(['"x"', "1.50", "[]", '{"a":[1,{"b":null}]}', "true", '"é\\n"'])


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), st.data())
def test_an_edit_says_what_was_wished_and_touches_nothing_else(
    given: tuple[bytes, TranscriptFormat], data: st.DataObject
) -> None:
    one = Session(*given)
    found = [
        (line.index, path)
        for line in one.source.lines()
        if (entry := parse_entry(line.raw)) and not one.fmt.info(entry).is_header
        for path in _paths(entry, ())
    ]
    if not found:
        return
    index, path = data.draw(st.sampled_from(found))
    text = data.draw(_values)
    before = [line.raw for line in one.source.lines()]
    try:
        answer = edit(one, sets(f"{format_path(path)}={text}"), f"#{index}")
    except (Invalid, Conflict):
        assert one.raw == given[0]
        return
    after = [line.raw for line in BytesTranscript(one.raw).lines()]
    assert [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == (
        [index] if answer.changed else []
    )
    value: Any = parse_entry(after[index])
    for step in path:
        value = value[step]
    assert value == json.loads(text)
    assert one.fmt in (FLAT, OPENCLAW)


def _paths(value: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    members: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    found = [path] if path else []
    return found + [deep for step, member in members for deep in _paths(member, (*path, step))]
