"""Members and elements are added to JSON files and removed again, without any other change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.setup.json_text import NotEditable, add, parse, take_away

SERVER = {"command": "/usr/bin/bsd", "args": ["mcp"]}
PATH = ("mcpServers", "bsd")

_KEYS = st.text(alphabet='abcµ"\\ \U0001f600', max_size=4)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=6,
)
_SPACE = st.text(alphabet=" \t\n\r", max_size=3)


def _write(draw: st.DrawFn, value: Any) -> str:
    """Write a value in any form that JSON allows."""

    def space() -> str:
        return draw(_SPACE)

    if isinstance(value, dict):
        members = [
            f"{space()}{json.dumps(key, ensure_ascii=draw(st.booleans()))}{space()}:{space()}"
            f"{_write(draw, inner)}{space()}"
            for key, inner in value.items()
        ]
        return "{" + (",".join(members) or space()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(space() + _write(draw, one) for one in value) or space()) + "]"
    return json.dumps(value)


@st.composite
def _files(draw: st.DrawFn) -> str:
    document = draw(st.dictionaries(_KEYS, _VALUES, max_size=4))
    servers = draw(st.one_of(st.none(), st.dictionaries(_KEYS, _VALUES, max_size=3)))
    if servers is not None:
        document["mcpServers"] = servers
    if draw(st.booleans()):
        document["hooks"] = {"Stop": draw(st.lists(_VALUES, max_size=3))}
    if draw(st.booleans()):
        text = json.dumps(document, indent=draw(st.sampled_from([None, 1, 2, 4, "\t"])))
        text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    else:
        text = _write(draw, document)
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return bom + draw(_SPACE) + text + draw(_SPACE)


@given(_files())
def test_a_member_comes_and_goes(text: str) -> None:
    new, added = add(text, PATH, SERVER)
    document = parse(text)
    assert parse(new) == {
        **document,
        "mcpServers": {**document.get("mcpServers", {}), "bsd": SERVER},
    }
    assert take_away(new, added) == text


@given(_files())
def test_several_additions_come_and_go(text: str) -> None:
    one, first = add(text, PATH, SERVER)
    two, second = add(one, ("hooks", "Stop"), {"hooks": [1]}, is_element=True)
    three, third = add(two, ("hooks", "SessionEnd"), {"hooks": [2]}, is_element=True)
    for added in (third, second, first):
        three = str(take_away(three, added))
    assert three == text


@given(_files(), st.sampled_from([None, 2, "\t"]), st.data())
def test_what_others_have_added_since_stays(text: str, indent: Any, data: st.DataObject) -> None:
    new, added = add(text, PATH, SERVER)
    changed = parse(new)
    changed["mcpServers"]["other"] = {"command": "x"}
    changed["later"] = data.draw(_VALUES)
    wanted = json.loads(json.dumps(changed))
    del wanted["mcpServers"]["bsd"]
    left = take_away(json.dumps(changed, indent=indent), added)
    assert parse(str(left)) == wanted


@given(_files(), st.sampled_from([None, 2, "\t"]))
def test_the_program_may_write_the_file_anew(text: str, indent: Any) -> None:
    new, added = add(text, PATH, SERVER)
    left = take_away(json.dumps(parse(new), indent=indent), added)
    assert parse(str(left)) == parse(text)


def test_it_is_written_as_the_file_is_written() -> None:
    text = '{\n    "a": 1,\n    "mcpServers": {\n        "x": {}\n    }\n}\n'
    new, _ = add(text, PATH, SERVER)
    assert new == (
        '{\n    "a": 1,\n    "mcpServers": {\n        "x": {},\n        "bsd": {\n'
        '            "command": "/usr/bin/bsd",\n            "args": [\n                "mcp"\n'
        "            ]\n        }\n    }\n}\n"
    )
    assert add('{"a": 1, "b": 2}', ("c",), [1])[0] == '{"a": 1, "b": 2, "c": [1]}'
    assert "\r\n\t" in add('{\r\n\t"a": 1\r\n}', ("c", "d"), 1)[0]
    assert add("", ("a",), 1)[0] == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, // mine\n"b": 2}',
        '{"a": 1,}',
        "[]",
        "null",
        '{"a": ',
        '{"mcpServers": []}',
        '{"mcpServers": null}',
        '{"mcpServers": {}, "mcpServers": {"x": 1}}',
        "[" * 100_000,
    ],
)
def test_what_is_not_plain_is_left_alone(text: str) -> None:
    with pytest.raises(NotEditable):
        add(text, PATH, SERVER)


def test_what_a_person_has_changed_stays() -> None:
    new, added = add("{}", PATH, SERVER)
    edited = new.replace('mcp"', 'mcp", "--session"')
    with pytest.raises(NotEditable, match="changed"):
        take_away(edited, added)
    assert take_away(edited, added, force=True) == "{}"
    assert take_away("{}", added) is None
    assert take_away('{"mcpServers": {"x": 1}}', added) is None


def test_an_object_that_was_there_stays() -> None:
    for text in ('{"mcpServers": {}}', '{"mcpServers": {\n}}', '{ "hooks": {"Stop": [ ]} }'):
        path, is_element = (PATH, False) if "mcp" in text else (("hooks", "Stop"), True)
        new, added = add(text, path, SERVER, is_element=is_element)
        assert take_away(new, added) == text
