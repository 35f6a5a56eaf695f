"""Properties of every session: no loss, no other change, no repeated work."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.extract import plan_extraction
from bsd.transcripts.agents.entry import MARKER, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT
from bsd.transcripts.reader import BytesTranscript, parse_entry
from tests.planning.in_memory import NOW, Session, config, without_restored
from tests.planning.sessions import sessions
from tests.transcripts import nasty

ALL_TYPES = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
policies = st.fixed_dictionaries(
    {
        "trigger_types": st.sampled_from([ALL_TYPES, ["thinking", "tool_result"], ["user"]]),
        "min_value_length": st.sampled_from([0, 1, 20, 50]),
        "keep_recent": st.sampled_from([0, 0, 2]),
        "keep_chars": st.sampled_from([0, 0, 3, 30]),
    }
)
Given = tuple[bytes, TranscriptFormat]
EXAMPLES = int(os.environ.get("BSD_EXAMPLES", "10"))  # more, to look for trouble


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), policies)
def test_everything_comes_back_and_nothing_else_changes(
    given: Given, fields: dict[str, Any]
) -> None:
    session = Session(*given)
    first = session.extract(**fields)
    kept = {edit.offset for edit in first.edits}
    after = [line.raw for line in BytesTranscript(session.raw).lines()]
    for line, new in zip(BytesTranscript(given[0]).lines(), after, strict=True):
        assert (line.raw != new) is (line.offset in kept)

    second = session.extract(**fields)
    assert (second.edits, second.keeps) == ((), ())

    answers = session.restore_all()
    assert without_restored(session.raw) == without_restored(given[0])
    assert len(answers) == len(first.edits)
    assert not any(answer.unavailable or answer.changed for answer in answers)


_members = st.tuples(
    st.sampled_from([b"data", b"content", b"message", rb"\u0064ata", b"result"]),
    nasty.values,
    nasty.strings,
    nasty.spaces,
)


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(st.lists(_members, min_size=1, max_size=4), st.sampled_from([0, 1, 5]))
def test_odd_spellings_come_back(
    members: list[tuple[bytes, bytes, bytes, bytes]], min_value_length: int
) -> None:
    lines = [
        b'{%b"__id":"x%d",%b"type":"tool_result","%b":%b%b,"output":%b%b}\n'
        % (space, number, space, key, space, value, text, space)
        for number, (key, value, text, space) in enumerate(members)
    ]
    session = Session(b"".join(lines), FLAT)
    session.extract(keep_recent=0, min_value_length=min_value_length)
    assert not session.extract(keep_recent=0, min_value_length=min_value_length).edits
    assert not any(answer.unavailable for answer in session.restore_all())
    assert without_restored(session.raw) == b"".join(lines)


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), policies)
def test_a_dry_run_tells_what_a_run_does(given: Given, fields: dict[str, Any]) -> None:
    session = Session(*given)
    dry = plan_extraction(
        session.source, session.fmt, config(**fields), NOW, session.shelf, dry_run=True
    )
    assert (dry.edits, dry.keeps) == ((), ())
    assert dry.report == session.extract(**fields).report


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), policies)
def test_structure_stays(given: Given, fields: dict[str, Any]) -> None:
    """Ids, roles, types, and the number and order of blocks."""
    session = Session(*given)
    session.extract(**fields)
    for old, new in zip(
        BytesTranscript(given[0]).lines(), BytesTranscript(session.raw).lines(), strict=True
    ):
        before, after = parse_entry(old.raw), parse_entry(new.raw)
        if before is None or after is None:
            assert old.raw == new.raw
            continue
        info, now = session.fmt.info(before), session.fmt.info(after)
        assert (info.id, info.kind, info.role, info.calls) == (
            *(now.id, now.kind, now.role),
            now.calls,
        )
        assert [key for key in before if key != MARKER] == [key for key in after if key != MARKER]
        assert _blocks(before) == _blocks(after)


def _blocks(entry: dict[str, Any]) -> int | None:
    """The number of blocks of a message; None if its content is of another type."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return len(content) if isinstance(content, list) and entry["type"] == "message" else None


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(sessions(), st.data())
def test_any_order_of_extractions_and_partial_restores_composes(
    given: Given, data: st.DataObject
) -> None:
    session = Session(*given)
    now = NOW
    for _ in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.sampled_from([1, 700]))
        away = [
            (line.index, marker)
            for line in BytesTranscript(session.raw).lines()
            if (entry := parse_entry(line.raw)) and (marker := Marker.of(entry))
        ]
        restores: bool = bool(away) and data.draw(st.booleans())
        if restores:
            index, marker = away[data.draw(st.integers(0, len(away) - 1))]
            keys = data.draw(st.lists(st.sampled_from(marker.keys), min_size=1, unique=True))
            answer = session.restore(f"#{index}", keys, now)
            assert set(answer.keys_restored) >= set(keys)
        else:
            session.extract(now, **data.draw(policies))
    session.restore_all(now)
    assert without_restored(session.raw) == without_restored(given[0])
