"""pi opens sessions after each of many operations in any order, and sees what we say is there."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from bsd.agents.openclaw.dialect import OPENCLAW
from bsd.foundation.layout import Layout, SessionName
from bsd.surgery.conversation import EntryTree
from bsd.surgery.view import outline_of
from bsd.text.reader import BytesTranscript
from tests.compat.any_order import Patient, Step
from tests.compat.made_up import made_up
from tests.compat.pi import Branch, Json, Seen, read
from tests.openclaw_tree import SHARED_DATA, add_session
from tests.sessions import sample

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]  # the first to come installs pi

SEEDS = int(os.environ.get("BSD_EXAMPLES", "8"))  # more, to look for trouble
STEPS = int(os.environ.get("BSD_STEPS", "10"))
_MOST = 120_000  # bytes of a recorded session
_FIRST = 18  # with some that redaction could break in the rarer ways


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
    if STEPS * SEEDS >= 80:  # what the default must reach
        assert {"entries removed", "branches", "append", "redact 0", "undo", "replace"} <= {*+done}


def operated(name: str, raw: bytes, root: Path) -> Patient:
    add_session(root, f"main/{name}", raw)
    copies = root / "copies"
    copies.mkdir()
    patient = Patient(Layout(root), SessionName("main", name), Random(name), copies)
    # What has expired is gone for good: only few sessions shall meet that.
    patient.operate(STEPS, without=[] if name.endswith("5") else ["expire"])
    if not patient.content_expired:
        patient.undo_all()
        assert patient.path.read_bytes() == b"".join(patient.written), str(patient)
    return patient


def compare(step: Step, now: Seen, before: Seen, where: str) -> None:
    """`before` is all that the owner wrote, with nothing done to it."""
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
    """What nothing that we do changes about an entry."""
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
    """What pi sends of this branch: all from the last compaction on, and what that one kept."""
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
    """Fail unless our own list of entries, and our own tree of them, tell what pi sees."""
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
    rows = {row.id: row for row in tree.rows}
    speaks = {entry["id"] for entry, message in zip(seen.entries, messages, strict=True) if message}
    for branch in seen.branches:
        theirs = [one for one in branch.path if one in speaks]
        here, ours = tree.message_before(rows[branch.path[-1]], ()), []
        while here is not None:
            ours.append(here.id)
            here = tree.message_before(here, ())
        if branch.path[-1] in speaks:
            ours.insert(0, branch.path[-1])
        # Where a parent is missing, or none is named, we go on by the order of the file.
        assert ours[: len(theirs)] == theirs[::-1], where


def calls(entry: Json) -> tuple[tuple[str, str], ...]:
    blocks = entry.get("message", {}).get("content")
    found = blocks if isinstance(blocks, list) else []
    return tuple((one["id"], one["name"]) for one in found if one["type"] == "toolCall")
