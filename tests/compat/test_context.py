"""pi opens sessions whose calls were redacted and whose texts were replaced, at every step."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.planning.locate import entries
from bsd.planning.redact import CallToRedact, RedactionKind
from bsd.planning.targets import Refused
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from tests.actions import performed
from tests.actions.performed import Caller, history_of
from tests.compat.pi import assert_sendable, read
from tests.mcp.conftest import LONG, Agent, Desk
from tests.openclaw_tree import set_idle

pytestmark = pytest.mark.compat


class Patient:
    """A session, of which a copy is kept after every step."""

    def __init__(self, root: Path, name: SessionName, copies: Path) -> None:
        layout = Layout(root)
        self.name = name
        self.path = layout.session_file(name)
        self.caller = Caller(
            layout=layout,
            config=ConfigService(layout.config_file),
            actor="test",
            budget=RetryBudget(wait=0.0),
        )
        self._layout = layout
        self._copies = copies
        self.steps: list[Path] = []
        self.keep()

    def keep(self) -> None:
        copy = self._copies / f"{self.name.session}-{len(self.steps)}.jsonl"
        shutil.copyfile(self.path, copy)
        self.steps.append(copy)
        set_idle(self.path)

    def calls(self) -> list[CallToRedact]:
        """Every call in the session, to be removed by either way."""
        source, fmt = Session(self._layout, self.name).open()
        with source:
            found = [
                (one.name, one.id, seen.info.id)
                for seen in entries(source.lines(), fmt)
                for one in seen.info.calls
            ]
        kinds = [RedactionKind.CONSUMED, RedactionKind.CONSUMED, RedactionKind.MARKED]
        return [
            CallToRedact(name, kinds[number % len(kinds)], call_id, entry_id)
            for number, (name, call_id, entry_id) in enumerate(found)
        ]

    def hashes(self, kinds: set[str]) -> list[str]:
        return [
            entry["hash"]
            for entry in performed.context(self.caller, self.name)["entries"]
            if entry["type"] in kinds
        ]


def operate(patient: Patient, chance: Random) -> dict[str, int]:
    """Redact, discard, distill, extract and undo all of it; return the number of operations."""
    caller, name = patient.caller, patient.name
    calls = patient.calls()
    redacted = performed.redact(caller, name, chance.sample(calls, min(40, len(calls))))
    patient.keep()
    discarded = 0
    results = patient.hashes({"tool_result"})
    for hash_ in chance.sample(results, min(3, len(results))):
        with suppress(Refused):  # protected
            performed.change_context(caller, name, "discard", [[hash_]])
            discarded += 1
        patient.keep()
    results = patient.hashes({"tool_result"})
    with suppress(Refused):
        summaries = [[hash_, "a summary"] for hash_ in results[:1]]
        performed.change_context(caller, name, "distill", summaries)
    patient.keep()
    caller.extract(name, overrides={"keep_recent": 0})
    patient.keep()
    again = performed.redact(caller, name, patient.calls()[:40])
    patient.keep()
    while any(
        one.undoes is None and one.state != "undone" for one in history_of(caller.layout, name)
    ):
        performed.undo(caller, name)
        set_idle(patient.path)
    patient.keep()
    how = [one["how"] for one in (*redacted["redacted"], *again["redacted"])]
    return {
        "consumed": how.count("consumed"),
        "marked": how.count("marked"),
        "cut": discarded,
        "removed": len(redacted["entries_removed"]),
    }


def test_it_opens_them_at_every_step(node: str, openclaw_root: Path, tmp_path: Path) -> None:
    names = [
        SessionName("main", path.stem)
        for path in sorted(openclaw_root.glob("agents/main/sessions/*.jsonl"))
        if path.stem in {"sample", "medium", "small"}
    ]
    patients = [Patient(openclaw_root, name, tmp_path) for name in names]
    removed = []
    for patient in patients:
        before = patient.path.read_bytes()
        done = operate(patient, Random(7))
        removed.append(done["removed"])
        assert patient.path.read_bytes() == before
        if patient.name.session == "sample":
            assert min(done.values()) > 0, done
    looks = iter(read(node, [copy for patient in patients for copy in patient.steps]))
    for patient, gone in zip(patients, removed, strict=True):
        seen = [next(looks) for _ in patient.steps]
        first = seen[0]
        for number, one in enumerate(seen):
            where = f"{patient.name}, step {number}"
            assert (one.lost, one.rewritten) == (0, False), where
            assert one.header == first.header
            assert one.leaf == first.leaf, where
            one.assert_no_worse_than(first, where)
        assert seen[-1].context == first.context
        assert len(seen[1].entries) == len(first.entries) - gone


# --- after its calls were carried out, a session is still read and sent by pi ---


UNKNOWN = "Tool not found"


def test_a_session_in_which_an_agent_has_called_us(node: str, tmp_path: Path) -> None:
    desk = Desk(Layout(tmp_path / "root"))
    desk.path.parent.mkdir(parents=True)
    agent = Agent(desk)
    old = agent.past()
    desk.look()
    pin = {"action": "set_extractable", "entry": old, "value": False}
    agent.user("what was in the file?")
    agent.calls(("c1", "restore_remote", {"entry": old}), ("c2", "purge_control", pin))
    agent.result("c1", "restore_remote", UNKNOWN, error=True)
    agent.result("c2", "purge_control", UNKNOWN, error=True)
    agent.calls(("c3", "restore_remote", {"entry": "nowhere"}))
    agent.result("c3", "restore_remote", UNKNOWN, error=True)
    agent.says("well")
    agent.user("and?")
    agent.calls(("c5", "restore", {"entry_id": old}))
    agent.result("c5", "restore", UNKNOWN, error=True)
    agent.says("that is all")
    assert desk.look()
    assert LONG in desk.path.read_text()
    [seen] = read(node, [desk.path])
    assert (seen.lost, seen.rewritten) == (0, False)
    assert_sendable(seen)
    assert seen.unanswered() == []
    assert seen.unasked() == []
