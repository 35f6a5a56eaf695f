"""All operations on a session, in any order: it stays sound, and everything can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import Conflict, Invalid
from bsd.planning.discard import plan_discard
from bsd.planning.locate import entries
from bsd.planning.plan import Plan
from bsd.planning.redact import CallToRedact, RedactionKind, plan_redact
from bsd.planning.replace import plan_replace, texts_of
from bsd.planning.restore import plan_restore
from bsd.planning.targets import ContextChanged, Discard, Replacement
from bsd.planning.view import line_hash
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.in_memory import NOW, data
from tests.planning.soundness import faults
from tests.planning.test_undo import Patient
from tests.session_files import Talk, call, jsonl, sample, text, thought
from tests.transcripts import nasty

EXAMPLES = int(os.environ.get("BSD_EXAMPLES", "12"))  # more, to look for trouble
TOOLS = ("restore_remote", "restore", "purge_control", "exec", "read")
ALL_TYPES = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]


class Surgery:
    """Does random things to a session, and checks it after each."""

    def __init__(self, raw: bytes, fmt: TranscriptFormat, chance: Random) -> None:
        self.session = Patient(raw, fmt)
        self.fmt = fmt
        self.chance = chance
        self.original = raw
        self.known_faults = set(faults(raw, fmt))
        self.now = NOW
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """Perform an operation; a refused operation leaves everything as it was."""
        name, act = self.chance.choice(list(self.acts().items()))
        self.now += 700
        before = self.session.raw
        try:
            act()
        except (Conflict, Invalid):
            assert self.session.raw == before
            return
        self.done[name] = self.done.get(name, 0) + (self.session.raw != before)
        assert set(faults(self.session.raw, self.fmt)) <= self.known_faults

    def acts(self) -> dict[str, Callable[[], object]]:
        return {
            "extract": self.extract,
            "restore": self.restore,
            "pin": lambda: self.session.pin(self.entry(), self.chance.choice([True, False, 2])),
            "edit": lambda: self.session.edit(self.entry(), "note", self.chance.random()),
            "replace": self.replace,
            "discard": lambda: self.discard(None),
            "distill": lambda: self.discard("what it was about"),
            "redact": self.redact,
            "undo": lambda: self.session.undo(
                self.chance.choice([None, None, *self.numbers()]), self.chance.choice([1, 1 << 26])
            ),
        }

    def undo_all(self) -> None:
        self.session.undo_all()
        assert self.session.raw == self.original

    def numbers(self) -> list[int]:
        return [operation.number for operation in self.session.memory.operations()]

    def entry(self) -> str:
        index, _ = self.chance.choice(self.session.entries())
        return f"#{index}"

    def extract(self) -> None:
        fields = {"keep_recent": self.chance.choice([0, 2]), "min_value_length": 60}
        self.session.extract(self.now, trigger_types=ALL_TYPES, **fields)

    def restore(self) -> None:
        away = [f"#{n}" for n, one in self.session.entries() if Marker.of(one)]
        if away:
            session, entry = self.session, self.chance.choice(away)
            plan, _ = plan_restore(session.source, self.fmt, entry, None, self.now, session.shelf)
            session.carry_out(plan)

    def replace(self) -> None:
        texts = [
            words
            for seen in entries(self.session.source.lines(), self.fmt)
            for _, words in texts_of(seen, self.fmt)
            if words and len(words) > 40
        ]
        operations = []
        for words in self.chance.sample(texts, min(len(texts), self.chance.choice([1, 1, 2]))):
            at = self.chance.randrange(len(words) - 35)
            operations.append(
                Replacement(words[at : at + 16], words[at + 16 : at + 33], self.chance.choice("…x"))
            )
        if operations:
            self.carry_out(plan_replace(self.session.source, self.fmt, operations))

    def discard(self, summary: str | None) -> None:
        index, _ = self.chance.choice(self.session.entries())
        raw = next(line.raw for line in self.session.source.lines() if line.index == index)
        target = Discard(line_hash(raw), summary)
        self.carry_out(plan_discard(self.session.source, self.fmt, [target]))

    def carry_out(self, planned: tuple[Plan, ContextChanged]) -> None:
        plan, answer = planned
        self.session.carry_out(plan)
        assert len(plan.edits) <= len(answer.changed)

    def redact(self) -> None:
        calls = [
            CallToRedact(one.name, self.chance.choice(list(RedactionKind)), one.id)
            for seen in entries(self.session.source.lines(), self.fmt)
            for one in seen.info.calls
        ]
        session, some = self.session, self.chance.sample(calls, min(len(calls), 3))
        plan, answer = plan_redact(session.source, self.fmt, some, session.shelf)
        session.carry_out(plan)
        assert len(answer.redacted) + len(answer.left) == len(some)
        gone = {"id": set(answer.entries_removed)}
        assert not gone["id"] & {one.get("id") for _, one in session.entries()}


def talk(chance: Random) -> bytes:
    """A conversation as OpenClaw writes them: turns with calls, branches, notes, crashes."""
    talk = Talk()
    number = 0
    for turn in range(chance.randrange(1, 5)):
        begun = talk.user(f"question {turn} " * chance.choice([1, 9]))
        for _ in range(chance.randrange(3)):
            blocks = chance.sample([thought("hm " * 30), text(f"I look {number} " * 9)], 2)
            calls = range(number, number + chance.choice([1, 1, 2]))
            number = calls.stop
            names = {f"c{one}": chance.choice(TOOLS) for one in calls}
            mine = [
                call(one, name, action="restore", entry="e1", keys="a")
                for one, name in names.items()
            ]
            talk.says(*blocks[: chance.randrange(3)], *mine)
            for one, name in names.items():
                talk.answers(one, f"result {one} " * chance.choice([1, 40]), name)
                if chance.random() < 0.2:
                    talk.note(customType="x", data={"n": number})
        if chance.random() < 0.9:  # else it crashed
            talk.says(thought("so " * 30), text(f"answer {turn} " * chance.choice([1, 20])))
        if chance.random() < 0.2:
            talk.note(type="label", targetId=f"e{chance.randrange(1, len(talk.entries))}")
        if chance.random() < 0.15:
            talk.back_to(begun)
            talk.says(text(f"another answer {turn}"))
    return talk.raw


def flat(chance: Random) -> bytes:
    entries: list[dict[str, Any]] = []
    for number in range(chance.randrange(1, 5)):
        entries.append({"__id": f"u{number}", "type": "user", "content": f"question {number}"})
        if chance.random() < 0.8:
            arguments = {"action": "restore", "entry": "u0", "keys": "a"}
            name = chance.choice(TOOLS)
            entries += [
                {"__id": f"c{number}", "type": "tool_call", "name": name, "arguments": arguments},
                {"__id": f"r{number}", "type": "tool_result", "output": f"result {number} " * 30},
            ]
            entries[-1] |= chance.choice([{}, {"toolCallId": f"c{number}"}])
        if chance.random() < 0.5:
            entries.append({"type": "tool_result", "output": "nameless and always the same " * 3})
    return jsonl(*entries)[: chance.choice([None, -1])]


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize(("write", "fmt"), [(talk, OPENCLAW), (flat, FLAT)])
def test_made_up_sessions(
    write: Callable[[Random], bytes], fmt: TranscriptFormat, chance: Random
) -> None:
    surgery = Surgery(write(chance), fmt, chance)
    for _ in range(chance.randrange(1, 12)):
        surgery.step()
    surgery.undo_all()


def recorded(name: str) -> bytes:
    """A recorded session, or a made-up session of the same length."""
    if name == "sample":
        return sample(5, 3)
    return _beginning(data(f"openclaw-v3-{name}.jsonl"), 600_000 if name == "long" else 250_000)


def _beginning(raw: bytes, most: int) -> bytes:
    """A beginning of a recorded session that is short enough to be checked again and again."""
    end = raw.find(b"\n", most)
    return raw if end < 0 else raw[: end + 1]


@pytest.mark.parametrize("name", ["small", "schema-drift", "medium", "long", "sample"])
def test_recorded_sessions(name: str) -> None:
    surgery = Surgery(recorded(name), OPENCLAW, Random(name))
    for _ in range(int(os.environ.get("BSD_STEPS", "25"))):
        surgery.step()
    if name != "schema-drift":
        assert surgery.done.get("redact", 0) + surgery.done.get("discard", 0) > 0
    surgery.undo_all()
