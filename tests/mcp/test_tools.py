"""The one definition of the tools: what a model is told, and what is made of what it writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import validator_for

from bsd.actions.models import answer_model
from bsd.actions.verbs import (
    GET_CONTEXT,
    RESTORE,
    SET_EXTRACTABLE,
    ChangeContext,
    GetContext,
    SearchExtracted,
    SetExtractable,
)
from bsd.core import verb_names
from bsd.core.errors import BsdError, Busy, Invalid, NotFound
from bsd.mcp.calls import GetContextCall, RestoreCall, SearchCall, SetExtractableCall
from bsd.mcp.restoring import RestoreInline
from bsd.mcp.tools import TOOLS, error_answer, in_short, read_call, reads_much
from bsd.mcp.transcript_calls import _NEEDED, is_answered, told, told_error
from bsd.planning.rules import own_tool
from bsd.planning.targets import Refused, read_targets

REPLACE = {"start": "START_VERBOSE_OUTPUT", "end": "END_VERBOSE_OUTPUT", "replacement": "…"}


def test_each_tool_is_named_with_its_verb() -> None:
    assert tuple(TOOLS) == verb_names.TOOLS


def test_planners_know_all_our_tools_but_the_one_that_may_be_anybodys() -> None:
    assert [name for name in TOOLS if not own_tool(f"mcp__bsd__{name}")] == ["context"]


@pytest.mark.parametrize(
    ("name", "arguments", "much"),
    [
        ("search_extracted", {"query": "refused"}, True),
        ("purge_control", {"action": "get_context"}, True),
        ("purge_control", {"action": "restore", "entry": "e1"}, False),
        ("read_extracted", {"entry": "e1"}, False),
        ("search_extracted", {}, False),  # it is refused at once
        ("memory_recall", {"query": "refused"}, False),
    ],
)
def test_what_reads_whole_sessions(name: str, arguments: dict[str, Any], much: bool) -> None:
    assert reads_much(name, arguments) is much


# Seed 001 §2, seed 000's tool design, seed 003's API.
EXAMPLES: list[tuple[str, dict[str, Any], object]] = [
    ("restore", {"entry_id": "msg-456", "keys": ["content", "output"]},
     RestoreInline("msg-456", ("content", "output"))),
    ("purge_control", {"action": "restore", "entry": "msg-456"}, RestoreInline("msg-456")),
    ("purge_control", {"action": "get_context"}, GetContext()),
    ("purge_control", {"action": "set_extractable", "entry": "e", "value": False},
     SetExtractable("e", False)),
    ("purge_control", {"action": "set_extractable", "entry": "e", "value": "20"},
     SetExtractable("e", 20)),
    ("restore_remote", {"session": "abc", "entry": "ent_123"}, RestoreInline("ent_123")),
    ("restore_remote", {"session": "abc", "entry": "ent_123", "keys": "key1, key2"},
     RestoreInline("ent_123", ("key1", "key2"))),
    ("context", {"action": "replace", "targets": [REPLACE]},
     ChangeContext("replace", [REPLACE])),
    ("context", {"action": "discard", "targets": [["a1b2c3"]]},
     ChangeContext("discard", [["a1b2c3"]])),
    ("context", {"action": "distill", "targets": [["a1b2c3", "fine"]]},
     ChangeContext("distill", [["a1b2c3", "fine"]])),
    ("search_extracted", {"query": "refused"}, SearchExtracted("refused", 10)),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "deed"), EXAMPLES)
def test_the_seeds_calls(tool: str, arguments: dict[str, Any], deed: object) -> None:
    call = read_call(tool, arguments)
    assert call.arguments == deed
    assert call.session == arguments.get("session")


@pytest.mark.parametrize(("tool", "arguments", "_"), EXAMPLES)
def test_the_schema_allows_what_the_seeds_write(
    tool: str, arguments: dict[str, Any], _: object
) -> None:
    typed = {key: value for key, value in arguments.items() if value not in ("20", "key1, key2")}
    validator_for(TOOLS[tool].schema(takes_session=True)).validate({"session": "s", **typed})
    typed.pop("session", None)
    alone = validator_for(TOOLS[tool].schema(takes_session=False))
    alone.validate(typed)
    assert not alone.is_valid({"session": "s", **typed})


@pytest.mark.parametrize(
    ("arguments", "deed"),
    [
        ({"entry": "e"}, RestoreInline("e")),  # as purge_control calls it
        ({"entry_id": "e", "keys": []}, RestoreInline("e")),
        ({"entry_id": "e", "keys": ""}, RestoreInline("e")),
        ({"entry_id": "e", "keys": None}, RestoreInline("e")),
    ],
)
def test_what_can_mean_only_one_thing_is_taken_as_that(
    arguments: dict[str, Any], deed: object
) -> None:
    assert read_call("restore", arguments).arguments == deed


@pytest.mark.parametrize(
    ("value", "meant"),
    [("true", True), ("FALSE", False), (True, True), (0, 0), ("7", 7), ("unset", None)],
)
def test_values_of_extractable(value: object, meant: object) -> None:
    call = read_call("purge_control", {"action": "set_extractable", "entry": "e", "value": value})
    assert isinstance(call.arguments, SetExtractable)
    assert call.arguments.value is meant


@pytest.mark.parametrize(
    ("tool", "arguments", "messages"),
    [
        ("restore", {}, ["entry_id parameter is required"]),
        ("restore", {"entry_id": ""}, ["entry_id parameter is required"]),
        ("restore", {"entry_id": "e", "entry": "f"}, ["entry is no parameter of this tool"]),
        ("restore_remote", {"keys": 7, "x": 1},
         ["entry parameter is required", "keys must be a list of texts, not 7",
          "x is no parameter of this tool"]),
        ("purge_control", {}, ["action parameter is required"]),
        ("purge_control", {"action": "restore"},
         ["entry parameter is required for restore action"]),
        ("purge_control", {"action": "set_extractable", "entry": "e"},
         ["value parameter is required for set_extractable action (true, false, or integer)"]),
        ("purge_control", {"action": "set_extractable", "entry": "e", "value": -1},
         ['value must be true, false, a number or "unset", not -1']),
        ("purge_control", {"action": "prune"},
         ["Unknown action 'prune'. Valid actions: get_context, restore, set_extractable"]),
        ("context", {"action": "compress", "targets": [["a"]]},
         ["Unknown action 'compress'. Valid actions: replace, discard, distill"]),
        ("search_extracted", {"query": "x", "limit": 0},
         ["limit must be a whole number from 1 to 100, not 0"]),
    ],
)  # fmt: skip
def test_everything_that_is_wrong_is_said(
    tool: str, arguments: dict[str, Any], messages: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        read_call(tool, arguments)
    assert [one.message for one in refused.value.errors] == messages
    assert refused.value.message == "; ".join(messages)


@pytest.mark.parametrize("arguments", ["oops", 7, ["e1"], [["entry", "e1"]]])
def test_arguments_that_are_no_object(arguments: object) -> None:
    with pytest.raises(Invalid, match="not a JSON object"):
        read_call("restore", arguments)


def test_a_tool_that_is_not_ours() -> None:
    with pytest.raises(Invalid, match="there is no tool read"):
        read_call("read", {})


ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("restore", {"restored": True, "entry_id": "e", "keys_restored": [], "sizes_bytes": {}}),
    ("purge_control", {"updated": True, "entry_id": "e", "extractable": 3, "previous": None}),
    ("purge_control", {"session": "a/b", "total_entries": 1, "extracted_entries": 1,
                       "extracted_ids": ["e"], "entries": []}),
    ("context", {"success": True, "replacements": [], "errors": []}),
    ("search_extracted", {"session": "a/b", "query": "x", "results": []}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "answer"), ANSWERS)
def test_an_answer_of_ours_is_known_again(tool: str, answer: dict[str, Any]) -> None:
    assert is_answered(tool, json.dumps(answer))
    assert not is_answered("search_extracted" if tool != "search_extracted" else "restore",
                           json.dumps(answer))  # fmt: skip


def test_what_an_answer_is_known_by_is_told() -> None:
    """Its type says what is in it; transcripts of earlier versions may hold less."""
    three = (RESTORE, SET_EXTRACTABLE, GET_CONTEXT)
    for name, tool in ((name, TOOLS[name]) for name in _NEEDED):
        answers = [verb.answer for verb in three] if name == "purge_control" else [tool.answer]
        told = [set(answer_model(one).model_json_schema()["required"]) for one in answers]
        assert all(any(known <= one for one in told) for known in _NEEDED[name]), name


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (NotFound("Entry not found in session", hint="bsd show"), True),
        (Busy("session a/b is in use: its lock is held"), False),
        (Invalid("two", errors=()), True),
    ],
)
def test_an_error_of_ours_is_an_answer_unless_it_says_later(error: BsdError, counts: bool) -> None:
    assert is_answered("restore", json.dumps(error_answer(error))) is counts


@pytest.mark.parametrize(
    "text",
    [
        "Restored 2 keys for entry e1\nKeys: a, b",
        "Set _extractable=false for entry e1",
        "Session: abc\nTotal entries: 3\nExtracted entries: 0",
        "Restore failed: Entry not found in session",
        "Error: entry parameter is required for restore action",
        "Error: Unknown action 'x'. Valid actions: get_context, restore, set_extractable",
    ],
)
def test_the_originals_words_are_answers(text: str) -> None:
    assert is_answered("purge_control", text)


def test_a_refusal_is_seed_003s_result() -> None:
    with pytest.raises(Refused) as refused:
        read_targets("discard", [["nonsense!"]])
    answer = error_answer(refused.value)
    assert (answer["success"], answer["replacements"]) == (False, [])
    assert is_answered("context", json.dumps(answer))
    assert "nonsense!" in told_error("context", answer)


@pytest.mark.parametrize(
    "text",
    ["", "Tool restore not found", "[]", "null", '{"error": {"code": 404}}', '{"restored": true}',
     '{"error": "no such tool", "code": 404}', "[" * 100_000],
)  # fmt: skip
def test_what_others_say_is_no_answer_of_ours(text: str) -> None:
    assert not is_answered("restore", text)


def test_a_long_listing_is_cut_to_its_largest_entries() -> None:
    rows = [{"index": n, "id": f"e{n}", "size_bytes": (n * 7) % 1000} for n in range(1000)]
    shown = in_short({"total_entries": 1000, "entries": rows})
    assert shown["entries_left_out"] == 950
    assert [row["index"] for row in shown["entries"]] == sorted(
        row["index"] for row in shown["entries"]
    )
    assert min(row["size_bytes"] for row in shown["entries"]) == 950
    few = {"total_entries": 3, "entries": rows[:3]}
    assert in_short(few) is few
    assert in_short({"restored": True}) == {"restored": True}


def test_what_a_model_is_told_instead_of_a_result() -> None:
    again = {
        "restored": True, "entry_id": "e7", "keys_restored": ["output"],
        "suggestion": "consider setting _extractable: false on the entry.",
    }  # fmt: skip
    assert told(RestoreCall("e7"), again) == (
        "[restored entry e7: output. consider setting _extractable: false on the entry]"
    )
    lost = {"restored": False, "entry_id": "e7", "keys_restored": [], "unavailable": {"o": "gone"}}
    assert told(RestoreCall("e7"), lost) == "[o: gone]"
    assert told(SetExtractableCall("e7", None), {"entry_id": "e7"}) == (
        "[_extractable=unset for entry e7]"
    )
    assert told(SearchCall("x", 3), {"results": []}) == "[nothing that was extracted holds x]"
    listing = {"session": "a/b", "total_entries": 99, "extracted_entries": 60,
               "extracted_ids": [f"e{n}" for n in range(60)],
               "entries": [{"hash": f"{n:06x}", "id": f"e{n}", "type": "user", "size_bytes": n}
                           for n in range(99)]}  # fmt: skip
    lines = told(GetContextCall(), listing).splitlines()
    assert lines[:5] == [
        "Session: a/b", "Total entries: 99", "Extracted entries: 60", "", "Extracted entry IDs:"
    ]  # fmt: skip
    assert lines[54:58] == [
        "  - e49",
        "  … and 10 more",
        "",
        "Largest entries (hash, id, type, bytes):",
    ]
    assert lines[58] == "  000062 e98 user 98"
    assert len(lines) == 78
