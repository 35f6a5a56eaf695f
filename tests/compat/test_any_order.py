"""pi opens sessions after each of many operations in any order, and sees the same as bsd."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.conversation import EntryTree
from bsd.planning.edit import setting
from bsd.planning.locate import entries
from bsd.planning.redact import CallToRedact, RedactionKind
from bsd.planning.replace import texts_of
from bsd.planning.view import EntryView, outline_of
from bsd.sessions.idle import RetryBudget
from bsd.sessions.session import Session
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript
from bsd.transcripts.spans import parse_path
from tests.actions import performed
from tests.actions.performed import Caller, history_of
from tests.compat.made_up import Author, made_up
from tests.compat.pi import Branch, Json, Seen, read
from tests.openclaw_tree import SHARED_DATA, add_session
from tests.session_files import sample

pytestmark = pytest.mark.compat


ALL_TYPES = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
_LATER = 700.0  # seconds from one step to the next: protection has ended, and no turn is open
_MUCH_LATER = 30 * 86_400.0


# --- all operations on a session, in any order; a copy of its file is kept each time ---


@dataclass(frozen=True)
class Step:
    """The file as an operation left it."""

    what: str
    copy: Path
    written: Path  # all lines that the session's program had written by then, unchanged


class Patient:
    """A session under test; its first `steps` entry is the original."""

    def __init__(self, layout: Layout, name: SessionName, chance: Random, copies: Path) -> None:
        self.name = name
        self.path = layout.session_file(name)
        self.steps: list[Step] = []
        self.written = [self.path.read_bytes()]  # the lines of its program, none of bsd
        self.content_expired = False
        self._layout = layout
        self._chance = chance
        self._copies = copies
        self._now = time.time() + _LATER
        budget = RetryBudget(wait=0.0, clock=lambda: self._now)
        config = ConfigService(layout.config_file)
        self._surgeon = Caller(layout=layout, config=config, actor="test", budget=budget)
        self._keep("as it came")

    def operate(self, steps: int, without: Sequence[str] = ()) -> None:
        """Perform this number of operations; a refused operation leaves the file as it is."""
        acts = {name: act for name, act in self._acts().items() if name not in without}
        for what in self._chance.choices(list(acts), k=steps):
            self._later()
            before = self.path.read_bytes()
            try:
                acts[what]()
            except Busy:
                raise
            except (Conflict, Invalid):
                assert self.path.read_bytes() == before, f"{what} was refused, and changed {self}"
                continue
            if self.path.read_bytes() != before:
                self._keep(what)

    def undo_all(self) -> None:
        """Undo all operations, the newest first."""
        while any(
            one.undoes is None and one.state != "undone"
            for one in history_of(self._surgeon.layout, self.name)
        ):
            self._later()
            performed.undo(self._surgeon, self.name)
        self._keep("undo all")

    def _acts(self) -> dict[str, Callable[[], object]]:
        return {
            "extract": self._extract,
            "restore": self._restore,
            "restore all": lambda: performed.restore_all(self._surgeon, self.name),
            "pin": self._pin,
            "edit": self._edit,
            "replace": self._replace,
            "discard": self._discard,
            "distill": self._distill,
            **{f"redact {number}": self._redact for number in range(3)},
            "undo": self._undo,
            "append": self._append,
            "trash": self._trash,
            "verify": lambda: verify(self._layout, repair=True, clock=lambda: self._now),
            "expire": self._expire,
        }

    def _extract(self) -> None:
        self._surgeon.extract(
            self.name,
            overrides={
                "trigger_types": self._chance.choice([ALL_TYPES, ["thinking", "tool_result"]]),
                "keep_recent": self._chance.choice([0, 2]),
                "min_value_length": 60,
                "keep_chars": self._chance.choice([0, 0, 20]),
            },
        )

    def _restore(self) -> None:
        away = [one for one in self._entries() if one.extracted]
        if away:
            entry = self._chance.choice(away)
            keys = self._chance.choice([None, entry.keys[:1]])
            performed.restore(
                self._surgeon, self.name, f"#{entry.index}", list(keys) if keys else None
            )

    def _pin(self) -> None:
        value = self._chance.choice([True, False, 2, None])
        performed.set_extractable(self._surgeon, self.name, self._entry(), value)

    def _edit(self) -> None:
        path, value = self._chance.choice(
            [("note", 1), ("message.content[0].text", "edited"), ("message.isError", True)]
        )
        performed.edit(
            self._surgeon, self.name, self._entry(), setting([(parse_path(path), value)])
        )

    def _replace(self) -> None:
        source, fmt = Session(self._layout, self.name).open()
        with source:
            texts = [
                words
                for seen in entries(source.lines(), fmt)
                for _, words in texts_of(seen, fmt)
                if words and len(words) > 40
            ]
        operations = []
        for words in self._chance.sample(texts, min(len(texts), self._chance.choice([1, 1, 2]))):
            at = self._chance.randrange(len(words) - 35)
            start, end = words[at : at + 16], words[at + 16 : at + 33]
            operations.append([start, end, self._chance.choice(["…", "", "cut"])])
        if operations:
            performed.change_context(
                self._surgeon, self.name, "replace", operations, include_user=True
            )

    def _distill(self) -> None:
        summaries = [[one, "what it was about"] for one in self._hashes()]
        performed.change_context(self._surgeon, self.name, "distill", summaries)

    def _discard(self) -> None:
        hashes = [[one] for one in self._hashes()]
        performed.change_context(self._surgeon, self.name, "discard", hashes, include_user=True)

    def _hashes(self) -> list[str]:
        entries = [one for one in self._entries() if one.role]
        return [one.hash for one in self._chance.sample(entries, min(len(entries), 1))]

    def _redact(self) -> None:
        calls = [
            CallToRedact(called.name, self._chance.choice(list(RedactionKind)), called.id, one.id)
            for one in self._entries()
            for called in one.calls
        ]
        some = self._chance.sample(calls, min(len(calls), self._chance.choice([1, 3, 100])))
        performed.redact(self._surgeon, self.name, some)

    def _undo(self) -> None:
        numbers = [one.operation for one in history_of(self._surgeon.layout, self.name)]
        performed.undo(self._surgeon, self.name, self._chance.choice([None, None, *numbers]))

    def _append(self) -> None:
        """Its program continues it, from its current end."""
        author = Author(self._chance, map(json.loads, self.path.read_bytes().splitlines()))
        author.turn()
        with self.path.open("ab") as file:
            file.write(author.lines)
        self.written.append(author.lines)

    def _trash(self) -> None:
        trash = Trash(
            self._layout,
            "never",
            actor="test",
            budget=RetryBudget(wait=0.0, clock=lambda: self._now),
        )
        trash.delete(self.name)
        assert not self.path.exists()
        [item] = trash.items()
        trash.restore(item.id)

    def _expire(self) -> None:
        cleaned = RetentionRun(
            self._layout, actor="test", clock=lambda: self._now + _MUCH_LATER
        ).clean_store("24h")
        self.content_expired |= cleaned.cleaned > 0

    def _entries(self) -> list[EntryView]:
        return performed.entries(self._surgeon, self.name, start=1)

    def _entry(self) -> str:
        return f"#{self._chance.choice(self._entries()).index}"

    def _later(self) -> None:
        self._now += _LATER

    def _keep(self, what: str) -> None:
        copy = self._copies / f"{len(self.steps)}.jsonl"
        shutil.copyfile(self.path, copy)
        written = self._copies / f"written-{len(self.written)}.jsonl"
        if not written.exists():
            written.write_bytes(b"".join(self.written))
        self.steps.append(Step(what, copy, written))

    def __str__(self) -> str:
        return f"{self.name} after {', '.join(step.what for step in self.steps)}"


SEEDS = int(os.environ.get("BSD_EXAMPLES", "8"))  # more, to look for trouble
STEPS = int(os.environ.get("BSD_STEPS", "10"))
_MOST = 120_000  # bytes of a recorded session
_FIRST = 18  # with some that redaction could damage in the rarer ways


def sessions() -> dict[str, bytes]:
    found = {f"made-up-{seed}": made_up(seed) for seed in range(_FIRST, _FIRST + SEEDS)}
    found["sample"] = sample(3, 5)
    for name in ("small", "medium"):
        path = SHARED_DATA / f"openclaw-v3-{name}.jsonl"
        if path.is_file():
            raw = path.read_bytes()
            found[name] = raw[: raw.find(b"\n", _MOST) + 1] if len(raw) > _MOST else raw
    return found


def test_it_opens_them_whatever_was_done(node: str, tmp_path: Path) -> None:
    patients = [operated(name, raw, tmp_path / name) for name, raw in sessions().items()]
    steps = [step for patient in patients for step in patient.steps]
    copies = list({copy for step in steps for copy in (step.copy, step.written)})
    looks = dict(zip(copies, read(node, copies), strict=True))
    done: Counter[str] = Counter()
    for patient in patients:
        for number, step in enumerate(patient.steps):
            now, before = looks[step.copy], looks[step.written]
            where = f"{patient.name}, step {number}: {step.what}"
            compare(step, now, before, where)
            done[step.what] += 1
            done["entries removed"] += len(before.entries) - len(now.entries)
            done["branches"] += len(now.branches) - 1
    if STEPS * SEEDS >= 80:  # cases that the default must reach
        assert {"entries removed", "branches", "append", "redact 0", "undo", "replace"} <= {*+done}


def operated(name: str, raw: bytes, root: Path) -> Patient:
    add_session(root, f"main/{name}", raw)
    copies = root / "copies"
    copies.mkdir()
    patient = Patient(Layout(root), SessionName("main", name), Random(name), copies)
    # An expired value is gone for good: only few sessions may have any.
    patient.operate(STEPS, without=[] if name.endswith("5") else ["expire"])
    if not patient.content_expired:
        patient.undo_all()
        assert patient.path.read_bytes() == b"".join(patient.written), str(patient)
    return patient


def compare(step: Step, now: Seen, before: Seen, where: str) -> None:
    """`before` is the program's whole session, without any operation."""
    assert (now.lost, now.rewritten) == (0, False), where
    assert now.header == before.header, where
    assert now.leaf == before.leaf, where
    present = {entry["id"] for entry in now.entries}
    kept = [entry for entry in before.entries if entry["id"] in present]
    assert list(map(identity, now.entries)) == list(map(identity, kept)), where
    written = {entry["id"]: entry for entry in before.entries}
    for branch in now.branches:
        was = Branch(path := way(written, branch.path[-1]), sent(written, path))
        assert branch.path == [one for one in was.path if one in present], where
        assert branch.sends == [one for one in was.sends if one in {None, *present}], where
        now.along(branch).assert_no_worse_than(before.along(was), where)
    assert_as_we_say(step.copy.read_bytes(), now, where)


def identity(entry: Json) -> list[object]:
    """The properties of an entry that no operation of bsd changes."""
    message = entry.get("message", {})
    fields = ("role", "toolCallId", "toolName", "model", "timestamp")
    return [entry["type"], entry["id"], entry["timestamp"], *map(message.get, fields)]


def way(entries: dict[str, Json], end: str | None) -> list[str]:
    """From the beginning to this entry."""
    found = []
    while end is not None and end in entries:
        found.append(end)
        end = entries[end]["parentId"]
    return found[::-1]


def sent(entries: dict[str, Json], path: list[str]) -> list[str | None]:
    """The texts that pi sends of this branch: all from the last compaction on, and those that it
    kept.
    """
    compactions = [at for at, one in enumerate(path) if entries[one]["type"] == "compaction"]
    if not compactions:
        return _texts(entries, path)
    last = compactions[-1]
    kept, after = path[:last], path[last + 1 :]
    first = entries[path[last]]["firstKeptEntryId"]
    kept = kept[kept.index(first) :] if first in kept else []
    return [None, *_texts(entries, kept), *_texts(entries, after)]


def _texts(entries: dict[str, Json], path: list[str]) -> list[str | None]:
    made = {"message": False, "custom_message": True, "branch_summary": True}
    kinds = [(one, made.get(entries[one]["type"])) for one in path]
    return [None if made_by_pi else one for one, made_by_pi in kinds if made_by_pi is not None]


def assert_as_we_say(raw: bytes, seen: Seen, where: str) -> None:
    """Fail unless bsd's list and tree of entries match pi's view."""
    source = BytesTranscript(raw)
    outline = outline_of(source, OPENCLAW)
    views = list(outline.views(source, OPENCLAW, range(1, outline.lines)))
    assert [view.id for view in views] == [entry["id"] for entry in seen.entries], where
    messages = [entry["type"] in {"message", "custom_message"} for entry in seen.entries]
    after = [sum(messages[number + 1 :]) for number in range(len(messages))]
    assert [view.position for view in views] == after, where
    assert [tuple((one.id, one.name) for one in view.calls) for view in views] == [
        calls(entry) for entry in seen.entries
    ], where
    answers = [entry.get("message", {}).get("toolCallId") for entry in seen.entries]
    assert [view.result_of for view in views] == answers, where

    tree = EntryTree(source, OPENCLAW)
    rows = {place.info.id: place for place in tree.places}
    speaks = {entry["id"] for entry, message in zip(seen.entries, messages, strict=True) if message}
    for branch in seen.branches:
        theirs = [one for one in branch.path if one in speaks]
        here, ours = tree.message_before(rows[branch.path[-1]], ()), []
        while here is not None:
            ours.append(here.info.id)
            here = tree.message_before(here, ())
        if branch.path[-1] in speaks:
            ours.insert(0, branch.path[-1])
        # Where a parent is missing or not named, bsd uses the order of the file.
        assert ours[: len(theirs)] == theirs[::-1], where


def calls(entry: Json) -> tuple[tuple[str, str], ...]:
    blocks = entry.get("message", {}).get("content")
    found = blocks if isinstance(blocks, list) else []
    return tuple((one["id"], one["name"]) for one in found if one["type"] == "toolCall")
