"""Any calls of agents, in any order: carried out once, valid for providers, undoable."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.layout import Layout
from tests.actions import performed
from tests.actions.performed import history_of
from tests.mcp.conftest import LONG, NAME, Agent, Desk

NOISE = "BEGIN OF LOG " + "noise " * 20 + "END OF LOG"

_entries = st.sampled_from(["e3", "e3", "e5", "e12", "nowhere", "", "#3"])
_sessions = st.sampled_from([{}, {}, {"session": "s1"}, {"session": "other/s9"}])
_targets = st.sampled_from(
    [
        [{"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": "[log]"}],
        [{"start": "BEGIN OF LOG", "end": "END OF LOG", "replacement": f"<{NOISE}>"}],
        [{"start": "BEGIN", "end": "LOG", "replacement": ""}],
        [["ffffff"]],
        [],
    ]
)
_calls: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(
        st.just("restore_remote"),
        st.builds(lambda e, s: {"entry": e, **s}, _entries, _sessions),
    ),
    st.tuples(
        st.just("bsd__restore"),
        st.builds(lambda e, s: {"entry_id": e, **s}, _entries, _sessions),
    ),
    st.tuples(
        st.just("purge_control"),
        st.builds(
            lambda a, e, v: {"action": a, "entry": e, "value": v},
            st.sampled_from(["restore", "get_context", "set_extractable", "x"]),
            _entries,
            st.sampled_from([True, False, 3, "maybe"]),
        ),
    ),
    st.tuples(
        st.just("context"),
        st.builds(
            lambda a, t: {"action": a, "targets": t},
            st.sampled_from(["replace", "discard", "distill"]),
            _targets,
        ),
    ),
    st.tuples(st.just("restore"), st.sampled_from(["oops", {}, 7, {"snapshot": "x"}])),
    st.tuples(st.just("read"), st.just({"path": "log"})),
    st.tuples(
        st.just("exec"),
        st.sampled_from(
            [
                {"command": "bsd restore_remote --session s1 --entry e3"},
                {"command": "date; bsd purge_control restore e3"},
                {"command": "ls"},
            ]
        ),
    ),
)
_answers = st.sampled_from(
    [
        *("?", NOISE, "Restored 1 keys for entry e3", "Error: session main/s1 is in use: busy"),
        json.dumps({"error": "in use", "busy": True}),
        json.dumps({"restored": True, "entry_id": "e3", "keys_restored": [], "sizes_bytes": {}}),
    ]
)
_turns = st.lists(
    st.lists(
        st.lists(st.tuples(_calls, _answers, st.booleans()), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=3,
)


def play(agent: Agent, turn: list[list[tuple[tuple[str, Any], str, bool]]], begin: int) -> int:
    """A turn: messages that call, with their results."""
    agent.user("go on")
    for message in turn:
        ids = [f"c{begin + n}" for n in range(len(message))]
        begin += len(message)
        agent.calls(*((i, n, a) for i, ((n, a), _, _) in zip(ids, message, strict=True)))
        for call_id, ((name, _), answer, error) in zip(ids, message, strict=True):
            agent.result(call_id, name, answer, error=error)
    agent.says("well")
    return begin


def check(desk: Desk) -> None:
    """Check the requirements of a provider and of the program."""
    header, *entries = desk.entries()
    assert header["type"] == "session"
    ids = [entry["id"] for entry in entries]
    assert len(set(ids)) == len(ids)
    assert [entry["parentId"] for entry in entries] == [None, *ids[:-1]]
    waiting: list[str] = []
    role = ""
    for entry in entries:
        message = entry["message"]
        if message["role"] == "toolResult":
            assert message["toolCallId"] == waiting.pop(0)
        else:
            assert not waiting
            assert message["role"] != role, "user and assistant take turns"
        role = message["role"]
        assert message["content"]
        waiting += [one["id"] for one in message["content"] if one["type"] == "toolCall"]
    assert not waiting


def operations(desk: Desk) -> list[str]:
    """The session's operations, newest first."""
    return [one.action for one in history_of(desk.caller().layout, NAME)]


@settings(max_examples=int(os.environ.get("BSD_EXAMPLES", "8")), deadline=None)
@given(_turns, st.booleans(), st.booleans())
def test_calls_of_all_kinds(
    turns: list[list[list[tuple[tuple[str, Any], str, bool]]]], remote: bool, others: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        desk = Desk(Layout(Path(directory)))
        desk.path.parent.mkdir(parents=True)
        desk.settings(keep_restore_remote_calls=remote, keep_purge_control_calls=others)
        agent = Agent(desk)
        agent.past()
        desk.look()
        assert LONG not in desk.path.read_text()
        number = 1
        for turn in turns:
            number = play(agent, turn, number)
            before, known = desk.path.read_bytes(), len(operations(desk))
            changed = desk.look()
            new = operations(desk)[: len(operations(desk)) - known]
            # An old answer may have left meanwhile.
            assert new in ([], ["in_band"], ["extract"], ["extract", "in_band"])
            assert changed == ("in_band" in new)
            assert new or desk.path.read_bytes() == before
            check(desk)
            assert not desk.look()
            desk.rest()
        done = [one for one in history_of(desk.caller().layout, NAME) if one.action == "in_band"]
        if done and history_of(desk.caller().layout, NAME)[0] == done[0] and changed:
            performed.undo(desk.caller(), NAME)
            assert desk.path.read_bytes() == before
            desk.rest()
            assert not desk.look(), "a person has taken it back"
