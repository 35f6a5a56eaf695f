"""The tools for sessions: their descriptions for a model, and the parsing of their arguments."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from jsonschema_rs import validator_for
from mcp_types import ListToolsResult

from bsd.actions.read_extracted import ReadOut
from bsd.actions.search import ExtractedHits
from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Busy, Invalid, NotFound
from bsd.mcp.answers import fit_answer
from bsd.mcp.arguments import read_arguments
from bsd.mcp.calls import read_call
from bsd.mcp.scope import Scope
from bsd.mcp.server import add_session_tools
from bsd.mcp.tool_server import ToolServer
from bsd.mcp.tools import TOOLS, SessionTools, check_purge_control, error_answer
from bsd.mcp.transcript_answers import (
    NEEDED,
    describe_context,
    describe_error,
    describe_extractable,
    describe_hits,
    describe_restored,
    is_answered,
)
from bsd.planning.edit import ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.rules import own_tool
from bsd.planning.targets import ContextChanged, Refused, read_targets
from bsd.planning.view import Context, ContextEntry
from bsd.transcripts.agents.page_size import OTHERS

REPLACE = {"start": "START_VERBOSE_OUTPUT", "end": "END_VERBOSE_OUTPUT", "replacement": "…"}


def test_planners_know_all_our_tools_but_the_one_that_may_be_anybodys() -> None:
    assert [name for name in TOOLS if not own_tool(f"mcp__bsd__{name}")] == ["context"]


# Seed 001 §2, seed 000's tool design, seed 003's API: a call, and its arguments after parsing.
EXAMPLES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("restore", {"entry_id": "msg-456", "keys": ["content", "output"]}, {}),
    ("purge_control", {"action": "restore", "entry": "msg-456"}, {}),
    ("purge_control", {"action": "get_context"}, {}),
    ("purge_control", {"action": "set_extractable", "entry": "e", "value": False}, {}),
    ("purge_control", {"action": "set_extractable", "entry": "e", "value": "20"}, {"value": 20}),
    ("restore_remote", {"session": "abc", "entry": "ent_123"}, {}),
    ("restore_remote", {"session": "abc", "entry": "ent_123", "keys": "key1, key2"},
     {"keys": ["key1", "key2"]}),
    ("context", {"action": "replace", "targets": [REPLACE]}, {}),
    ("context", {"action": "discard", "targets": [["a1b2c3"]]}, {}),
    ("context", {"action": "distill", "targets": [["a1b2c3", "fine"]]}, {}),
    ("search_extracted", {"query": "refused"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "differently"), EXAMPLES)
def test_the_seeds_calls(tool: str, arguments: dict[str, Any], differently: dict[str, Any]) -> None:
    assert read_arguments(TOOLS[tool], arguments) == {**arguments, **differently}


def schemas(**options: Any) -> dict[str, dict[str, Any]]:
    server = ToolServer(**options)
    add_session_tools(server, SessionTools(cast("Any", None), Scope()))
    return {tool.name: tool.input_schema for tool in asyncio.run(server.list_tools())}


def test_the_schemas_allow_what_the_seeds_write() -> None:
    told = schemas()
    assert list(told) == list(TOOLS)
    for tool, arguments, _ in EXAMPLES:
        typed = {key: value for key, value in arguments.items() if value != "key1, key2"}
        validator_for(told[tool]).validate({"session": "s", **typed})


def test_a_server_for_one_session_has_no_parameter_session() -> None:
    for schema in schemas(hidden=("session",)).values():
        assert "session" not in schema["properties"]
        assert "session" not in schema.get("required", ())


def test_the_list_of_tools_is_short() -> None:
    """Programs send it with every request to their model."""
    server = ToolServer()
    add_session_tools(server, SessionTools(cast("Any", None), Scope()))
    tools = asyncio.run(server.list_tools())
    sent = ListToolsResult(tools=tools).model_dump_json(by_alias=True, exclude_none=True)
    assert len(sent.encode()) <= 4800


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ({"entry": "e"}, {"entry_id": "e"}),  # as purge_control calls it
        ({"entryId": "e"}, None),
        ({"entry_id": "e", "keys": []}, {"entry_id": "e", "keys": None}),
        ({"entry_id": "e", "keys": ""}, {"entry_id": "e", "keys": None}),
        ({"entry_id": "e", "keys": None}, {"entry_id": "e"}),
        ({"entry_id": "e", "offset": None, "inline": "true"}, {"entry_id": "e", "inline": True}),
        ({"entry_id": "e", "offset": " 70 "}, {"entry_id": "e", "offset": 70}),
    ],
)
def test_forms_that_models_write(arguments: dict[str, Any], read: dict[str, Any] | None) -> None:
    if read is None:
        with pytest.raises(Invalid):
            read_arguments(TOOLS["restore"], arguments)
    else:
        assert read_arguments(TOOLS["restore"], arguments) == read


@pytest.mark.parametrize(
    ("value", "meant"),
    [("true", True), ("FALSE", False), (True, True), (0, 0), ("7", 7), ("unset", "unset")],
)
def test_values_of_extractable(value: object, meant: object) -> None:
    given = {"action": "set_extractable", "entry": "e", "value": value}
    read = read_arguments(TOOLS["purge_control"], given)["value"]
    assert (type(read), read) == (type(meant), meant)


@pytest.mark.parametrize(
    ("tool", "arguments", "messages"),
    [
        ("restore", {}, ["entry_id parameter is required"]),
        ("restore", {"entry_id": ""}, ["entry_id parameter is required"]),
        ("restore", {"entry_id": "e", "entry": "f"}, ["entry is not a parameter of this tool"]),
        ("restore_remote", {"keys": 7, "x": 1},
         ["entry parameter is required", "keys must be a list of texts, not 7",
          "x is not a parameter of this tool"]),
        ("purge_control", {}, ["action parameter is required"]),
        ("purge_control", {"action": "set_extractable", "entry": "e", "value": -1},
         ['value must be true, false, a number or "unset", not -1']),
        ("search_extracted", {"query": "x", "limit": 0},
         ["limit must be a whole number from 1 to 100, not 0"]),
    ],
)  # fmt: skip
def test_everything_that_is_wrong_is_said(
    tool: str, arguments: dict[str, Any], messages: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        read_arguments(TOOLS[tool], arguments)
    assert [one.message for one in refused.value.errors] == messages
    assert refused.value.message == "; ".join(messages)


@pytest.mark.parametrize(
    ("action", "entry", "message"),
    [
        ("restore", None, "entry parameter is required for restore action"),
        ("set_extractable", "e",
         "value parameter is required for set_extractable action (true, false, or integer)"),
        ("prune", None,
         "Unknown action 'prune'. Valid actions: get_context, restore, set_extractable"),
    ],
)  # fmt: skip
def test_what_an_action_of_purge_control_needs(
    action: str, entry: str | None, message: str
) -> None:
    with pytest.raises(Invalid) as refused:
        check_purge_control(action, entry, None)
    assert refused.value.message == message


@pytest.mark.parametrize("arguments", ["oops", 7, ["e1"], [["entry", "e1"]]])
def test_arguments_that_are_no_object(arguments: object) -> None:
    with pytest.raises(Invalid, match="not a JSON object"):
        read_arguments(TOOLS["restore"], arguments)


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
    """Transcripts of earlier versions may hold answers with fewer members."""
    restored = Restored(entry_id="e")
    listing = Context("a/b", 0, 0, (), 0, 0, 0, None, ())
    pinned = ExtractableSet(updated=True, entry_id="e", extractable=3, previous=None, index=1)
    answers: dict[str, list[Any]] = {
        "restore": [restored],
        "restore_remote": [restored],
        "purge_control": [listing, restored, pinned],
        "context": [ContextChanged(action="discard", changed=(), tokens_saved=0)],
        "search_extracted": [ExtractedHits("a/b", "x", ())],
        "read_extracted": [ReadOut(session="a/b", entry_id="e", texts={})],
    }
    for tool, needed in NEEDED.items():
        members = [as_json(answer).keys() for answer in answers[tool]]
        assert all(any(names <= known for known in members) for names in needed), tool


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
    assert "nonsense!" in describe_error("context", answer)


@pytest.mark.parametrize(
    "text",
    ["", "Tool restore not found", "[]", "null", '{"error": {"code": 404}}', '{"restored": true}',
     '{"error": "no such tool", "code": 404}', "[" * 100_000],
)  # fmt: skip
def test_what_others_say_is_no_answer_of_ours(text: str) -> None:
    assert not is_answered("restore", text)


def test_a_long_listing_is_cut_to_its_largest_entries() -> None:
    rows = [{"index": n, "id": f"e{n}", "size_bytes": (n * 7) % 1000} for n in range(1000)]
    given = {"action": "get_context", "session": "s1"}

    def page(rows: list[dict[str, Any]]) -> dict[str, Any]:
        whole = {"total_entries": len(rows), "extracted_ids": [], "entries": rows}
        return fit_answer(whole, "purge_control", given, 0, OTHERS)

    shown = page(rows)
    assert shown["entries_left_out"] == 950
    assert shown["next"] == {"tool": "purge_control", **given, "offset": 50}
    assert [row["index"] for row in shown["entries"]] == sorted(
        row["index"] for row in shown["entries"]
    )
    assert min(row["size_bytes"] for row in shown["entries"]) == 950
    assert page(rows[:3]) == {"total_entries": 3, "extracted_ids": [], "entries": rows[:3]}
    restored = {"restored": True}
    assert fit_answer(restored, "purge_control", given, 0, OTHERS) == restored


def test_what_a_model_is_told_instead_of_a_result() -> None:
    again = Restored(
        restored=True,
        entry_id="e7",
        keys_restored=("output",),
        suggestion="consider setting _extractable: false on the entry.",
    )
    assert describe_restored(again) == (
        "[restored entry e7: output. consider setting _extractable: false on the entry]"
    )
    assert describe_restored(Restored(entry_id="e7", unavailable={"o": "gone"})) == "[o: gone]"
    unset = ExtractableSet(entry_id="e7", extractable=None, previous=3, index=1)
    assert describe_extractable(unset) == "[_extractable=unset for entry e7]"
    nothing = ExtractedHits("a/b", "x", ())
    assert describe_hits(nothing) == "[no extracted value contains x]"
    rows = tuple(ContextEntry(n, f"e{n}", "user", f"{n:06x}", False, None, n, 0) for n in range(99))
    listing = Context("a/b", 99, 60, tuple(f"e{n}" for n in range(60)), 0, 0, 0, None, rows)
    lines = describe_context(listing).splitlines()
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


def test_a_tool_whose_calls_are_not_carried_out_in_transcripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TOOLS, "star", SessionTools.restore)
    with pytest.raises(Invalid, match="a call of star in a transcript is not carried out"):
        read_call("star", {"entry_id": "e1"})
