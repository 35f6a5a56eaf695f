"""`discard` and `distill`: whole entries, by the hash that `bsd context` lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.config import PruningConfig
from bsd.planning.discard import plan_discard
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.targets import DISCARDED, Discard, Refused, Replacement, read_targets
from bsd.planning.tokens import family_of
from bsd.planning.view import line_hash, views
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.soundness import faults
from tests.planning.test_undo import Patient
from tests.session_files import Talk, call, jsonl, text, thought

LONG = "long " * 200
IMAGE = {"type": "image", "data": "A" * 800, "mimeType": "image/png"}


def hash_of(session: Patient, index: int) -> str:
    return next(view.hash for view in views(session.source, session.fmt, start=index))


def change(session: Patient, action: str, targets: Sequence[Any], **how: Any) -> dict[str, Any]:
    wanted = [one for one in read_targets(action, targets) if isinstance(one, Discard)]
    plan, answer = plan_discard(session.source, session.fmt, wanted, **how)
    session.carry_out(plan)
    return as_json(answer)


def discard(session: Patient, *hashes: str, **how: Any) -> dict[str, Any]:
    return change(session, "discard", [[one] for one in hashes], **how)


def refusal(session: Patient, *hashes: str, **how: Any) -> str:
    before = session.raw
    with pytest.raises(Refused) as caught:
        discard(session, *hashes, **how)
    assert session.raw == before
    return caught.value.message


def content(session: Patient, index: int) -> Any:
    return session.entry(index)["message"]["content"]


@pytest.fixture
def session() -> Patient:
    talk = Talk()
    talk.user()
    talk.says(thought("hm"), text(LONG), call("c", "read", path="a"), text("more"))
    talk.answers("c", LONG, "read")
    talk.entries[-1]["message"]["content"].append(IMAGE)
    talk.entries[-1]["message"]["details"] = {"full": LONG}
    talk.says(text("one"))
    talk.user()
    talk.says(text("latest"))
    return Patient(talk.raw, OPENCLAW)


def test_a_discarded_result_says_so_and_can_be_undone(session: Patient) -> None:
    before = session.raw
    result = discard(session, hash_of(session, 3))
    assert content(session, 3) == [text(DISCARDED), text(DISCARDED)]
    assert session.entry(3)["message"]["details"] == {"full": LONG}
    [done] = result["replacements"]
    assert done["messageId"] == "e3"
    assert done["originalLength"] == len(LONG) + 800
    rate = family_of("claude-opus-4-5").characters  # the session records no tokens
    saved = int((len(LONG) - len(DISCARDED)) / rate)
    assert done["tokensSaved"] == result["tokensSaved"] == saved
    assert result["action"] == "discard"
    assert faults(session.raw) == []
    session.undo()
    assert session.raw == before


def test_thinking_and_calls_of_a_message_stay(session: Patient) -> None:
    discard(session, hash_of(session, 2).upper())
    blocks = [thought("hm"), text(DISCARDED), call("c", "read", path="a"), text(DISCARDED)]
    assert content(session, 2) == blocks


def test_the_summary_of_a_distilled_entry_is_kept_in_place(session: Patient) -> None:
    before = session.raw
    targets = [[hash_of(session, 3), "a file of 200 words"], [hash_of(session, 2), "it looked"]]
    result = change(session, "distill", targets)
    assert content(session, 3)[0] == text("a file of 200 words")
    assert content(session, 2)[1] == text("it looked")
    assert [one["operation"] for one in result["replacements"]] == [
        {"hash": hash_, "summary": summary} for hash_, summary in targets
    ]
    session.undo()
    assert session.raw == before


def test_a_discard_after_an_earlier_edit_takes_effect(session: Patient) -> None:
    old = hash_of(session, 3)
    discard(session, hash_of(session, 4))
    discard(session, old)
    assert content(session, 4) == [text(DISCARDED)]
    assert content(session, 3)[0] == text(DISCARDED)
    operation = Replacement("[content", "discarded]", "gone")
    with pytest.raises(Refused, match="times"):
        plan_replace(session.source, OPENCLAW, [operation])
    assert "Hash(es) not found" in refusal(session, old)
    assert "it has this text already" in refusal(session, hash_of(session, 3))


def test_a_hash_stays_good_when_its_entry_is_extracted(session: Patient) -> None:
    told = hash_of(session, 3)
    session.extract(keep_recent=0, min_value_length=500)
    extracted = session.raw
    marker = Marker.of(session.entry(3))
    assert marker
    discard(session, told)
    assert content(session, 3) == [text(DISCARDED), text(DISCARDED)]
    left = Marker.of(session.entry(3))
    assert left
    assert left.keys == ("message.details.full",)
    session.undo()
    assert session.raw == extracted
    session.restore("e3")
    assert content(session, 3) == [text(LONG), IMAGE]


def test_without_anything_left_in_the_store_the_marker_goes() -> None:
    session = Patient(jsonl({"__id": "a", "type": "tool_result", "output": LONG}), FLAT)
    before = session.raw
    session.extract(keep_recent=0)
    change(session, "distill", [[hash_of(session, 0), "short"]])
    assert session.entry(0) == {"__id": "a", "type": "tool_result", "output": "short"}
    session.undo()
    session.undo()
    assert session.raw == before


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (0, "it is not a message (session)"),
        (1, "the user wrote it"),
        (6, "Protected: its turn is not over, or it is the latest answer"),
        (3, "'read' is a protected tool"),
    ],
)
def test_what_is_left_alone_says_why(session: Patient, index: int, why: str) -> None:
    assert why in refusal(session, hash_of(session, index), protected_tools=["READ"])


def test_pinned_entries_and_calls_without_words_are_left(session: Patient) -> None:
    session.pin("e4", False)
    assert "it is pinned" in refusal(session, hash_of(session, 4))
    talk = Talk()
    talk.user()
    talk.says(call("c", "read"))
    talk.answers("c")
    talk.says(text("done"))
    other = Patient(talk.raw, OPENCLAW)
    assert "it has no text" in refusal(other, hash_of(other, 2))


def test_what_the_user_wrote_is_discarded_only_if_asked(session: Patient) -> None:
    discard(session, hash_of(session, 1), include_user=True)
    assert content(session, 1) == [text(DISCARDED)]


def test_one_bad_hash_stops_all_and_all_are_named(session: Patient) -> None:
    good = hash_of(session, 3)
    message = refusal(session, good, "ffffff", hash_of(session, 0), good)
    assert message.startswith("3 problems")
    assert "targets[1]: Hash(es) not found: ffffff" in message
    assert "targets[2]: entry s " in message
    assert "targets[3]: entry e3" in message
    assert "targets[0] names the same entry" in message


def colliding() -> Patient:
    """A session in which two entries have the same first six digits."""
    known: dict[str, int] = {}
    lines = []
    for number in range(100_000):
        line = jsonl({"__id": f"m{number}", "type": "tool_result", "output": "x" * 40})
        lines.append(line)
        first = known.setdefault(line_hash(line)[:6], number)
        if first != number:
            return Patient(lines[first] + lines[0] + lines[number], FLAT)
    raise AssertionError("no collision")


def test_hashes_that_collide_are_listed_longer_and_work() -> None:
    session = colliding()
    one, _, other = (view.hash for view in views(session.source, FLAT))
    assert one[:6] == other[:6]
    assert len(one) == len(other) == 12
    message = refusal(session, one[:6])
    assert f"Hash {one[:6]} means 2 entries; use one of" in message
    suggested = message.split("use one of ")[1].split(" ")[0]
    for hash_, index in ((one, 0), (other, 2)):
        discard(session, hash_)
        assert session.entry(index)["output"] == DISCARDED
    session.undo_all()
    discard(session, suggested)
    assert session.entry(0)["output"] == DISCARDED
    assert session.entry(2)["output"] == "x" * 40


def test_objects_keep_their_short_leaves() -> None:
    data = {"exit": "no", "out": LONG, "err": LONG, "code": 0}
    session = Patient(jsonl({"__id": "a", "type": "tool_result", "data": data}), FLAT)
    change(session, "distill", [[hash_of(session, 0), "it ran"]])
    assert session.entry(0)["data"] == {
        "exit": "no",
        "out": "it ran",
        "err": DISCARDED,
        "code": 0,
    }


def test_what_a_later_signature_covers_is_discarded_with_a_warning(session: Patient) -> None:
    for index, entries in ((3, ["entry e3"]), (4, [])):
        binds = Policy.of(PruningConfig()).binds
        entry = session.entry(4)
        entry["message"]["model"] = "claude-opus-6"
        entry["message"]["content"] = [thought("hm") | {"thinkingSignature": "x"}, text("one")]
        lines = session.raw.splitlines(keepends=True)
        other = Patient(b"".join([*lines[:4], jsonl(entry), *lines[5:]]), OPENCLAW)
        result = discard(other, hash_of(other, index), binds=binds)
        assert [warning.split(":")[0] for warning in result["warnings"]] == entries
