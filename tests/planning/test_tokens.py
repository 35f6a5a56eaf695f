"""Tokens are estimated from the session's recorded usage, if there is any; unsent values cost
none.
"""

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.planning.discard import plan_discard
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Rate
from bsd.planning.replace import plan_replace
from bsd.planning.result import SessionResult, Status
from bsd.planning.targets import Discard, Replacement
from bsd.planning.tokens import Meter
from bsd.planning.view import line_hash
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.entry import Entry, sent_tokens
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from tests.planning.in_memory import Session, config
from tests.session_files import HEADER, jsonl

TEXT = "x" * 3000


def rate_of(session: list[Entry], fmt: TranscriptFormat = OPENCLAW) -> Rate:
    meter = Meter()
    for entry in session:
        meter.follow(entry, fmt.info(entry), fmt.values(entry, 500))
    return meter.rate()


def result(name: str, text: str = TEXT, **more: Any) -> Entry:
    content = [{"type": "text", "text": text}]
    said = {"role": "toolResult", "toolCallId": "c", "content": content, **more}
    return {"type": "message", "id": name, "message": said}


def answer(name: str, **usage: int) -> Entry:
    said = {"role": "assistant", "content": [], "stopReason": "stop", "usage": usage}
    return {"type": "message", "id": name, "message": said}


def charged(*sent: int) -> list[Entry]:
    """Answers with the given input tokens, each after a result of 3,000 characters."""
    found: list[Entry] = []
    for number, tokens in enumerate(sent):
        found += [result(f"r{number}"), answer(f"a{number}", input=10, cacheRead=tokens - 10)]
    return found


def test_characters_between_two_answers_and_their_tokens_tell() -> None:
    assert rate_of(charged(5000, 6000, 7000)) == Rate(3.0, measured=True)
    assert rate_of(charged(5000, 7000, 9000)) == Rate(1.5, measured=True)


def test_what_is_never_sent_does_not_count() -> None:
    session = charged(5000, 6000, 7000)
    for entry in session[::2]:
        entry["message"]["details"] = {"log": "y" * 5000}
    assert rate_of(session) == Rate(3.0, measured=True)


def test_one_answer_before_which_much_was_added_unseen_does_not_spoil_it() -> None:
    assert rate_of(charged(5000, 6000, 46000, 47000, 48000)) == Rate(3.0, measured=True)


def test_without_usage_it_is_the_rule_of_thumb() -> None:
    for session in ([], [result("r")] * 9, charged(5000), charged(5000, 6000)):
        assert rate_of(session) == Rate(4.0, measured=False)
    assert rate_of(charged(9000, 8000, 7000)) == Rate(4.0)  # ever fewer: no pair can be compared
    # a provider with these counts counts in another way
    assert rate_of(charged(5000, 5001, 5002)) == Rate(4.0)


@pytest.mark.parametrize(
    "between",
    [
        {"type": "compaction", "id": "k"},
        result("m", "x" * 9000) | {"_extracted": {"ref": "r"}},
        {
            "type": "message",
            "id": "i",
            "message": {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x" * 9000},
                    {"type": "image", "data": "AAAA"},
                ],
            },
        },
    ],
    ids=["compaction", "extracted", "image"],
)
def test_what_cannot_be_compared_is_left_out(between: Entry) -> None:
    session = [*charged(5000, 6000, 7000), between, *charged(9000, 10000)]
    assert rate_of(session) == Rate(3.0, measured=True)


def test_an_answer_of_several_lines_was_sent_once() -> None:
    session: list[Entry] = []
    for number in range(3):
        block = {"type": "tool_result", "tool_use_id": "c", "content": TEXT}
        session.append(
            {"type": "user", "uuid": f"r{number}", "message": {"role": "user", "content": [block]}}
        )
        usage = {
            "input_tokens": 10,
            "cache_read_input_tokens": 990 * number,
            "cache_creation_input_tokens": 10 * number,
            "output_tokens": 700,
        }
        said = {"role": "assistant", "id": f"m{number}", "content": [], "usage": usage}
        parts = (f"a{number}", f"b{number}")
        session += [{"type": "assistant", "uuid": name, "message": said} for name in parts]
    assert rate_of(session, CLAUDE_CODE) == Rate(3.0, measured=True)


def test_codex_notes_its_tokens_after_the_answer() -> None:
    session: list[Entry] = []
    for number in range(3):
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": TEXT}
        session.append({"type": "response_item", "payload": output})
        usage = {
            "input_tokens": 900 + 1000 * number,
            "cached_input_tokens": 800,
            "output_tokens": 300,
            "reasoning_output_tokens": 200,
        }
        count = {"type": "token_count", "info": {"last_token_usage": usage}}
        session += [{"type": "event_msg", "payload": count}] * 2  # and once more when limits change
    assert rate_of(session, CODEX) == Rate(3.0, measured=True)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input": 10, "cacheRead": 5, "cacheWrite": 3, "output": 99}, 18),
        ({"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}, 18),
        ({"prompt_tokens": 10, "cached_input_tokens": 5}, 10),
        ({"input": 0, "output": 5}, None),
        ({"input": "10"}, None),
        ("many", None),
        (None, None),
    ],
)
def test_what_was_sent(usage: Any, tokens: int | None) -> None:
    found = sent_tokens({"type": "message", "message": {"role": "assistant", "usage": usage}})
    assert (found.tokens if found else None) == tokens


def test_what_is_known_before_a_checkpoint_holds_after_it() -> None:
    asked = {"type": "message", "id": "u", "message": {"role": "user", "content": "go on"}}
    session = Session(jsonl(HEADER, *charged(5000, 6000, 7000), asked))
    fields: dict[str, Any] = {"keep_recent": 0}
    since = session.extract(**fields).checkpoint
    assert since is not None
    session.raw += jsonl(result("late"), answer("b"), {**asked, "id": "v"})
    plan = plan_extraction(
        session.source, OPENCLAW, config(**fields), 1.8e9, session.shelf, since=since
    )
    assert plan.report.rate == Rate(3.0, measured=True)
    assert plan.report.tokens_saved == (3000 - len("[[extracted-late]]")) // 3


def test_values_out_of_sight_free_bytes_and_no_tokens() -> None:
    before = [result("r0"), answer("a0")]
    end: Entry = {"type": "message", "id": "u", "message": {"role": "user", "content": "go"}}
    compaction: Entry = {"type": "compaction", "id": "k", "firstKeptEntryId": "r1"}
    session = Session(jsonl(HEADER, *before, result("r1"), answer("a1"), compaction, end))
    report = session.extract(keep_recent=0).report
    saving = report.savings["tool_result"]
    gone = 3000 - len("[[extracted-r0]]")
    assert (saving.values, saving.bytes, saving.tokens) == (2, 2 * gone, gone // 4)


def test_context_tools_count_as_extraction_does() -> None:
    texts = [chr(ord("a") + n) * 3000 for n in range(6)]
    entries = charged(5000, 6000, 7000, 8000)
    for text, entry in zip(texts, entries[::2], strict=False):
        entry["message"]["content"][0]["text"] = text
    end: Entry = {"type": "message", "id": "u", "message": {"role": "user", "content": "go"}}
    whole = Session(jsonl(HEADER, *entries, end))
    kept: Entry = {"type": "compaction", "id": "k", "firstKeptEntryId": "r1"}
    cut = Session(jsonl(HEADER, *entries, kept, end))
    for session, expected in ((whole, 2990 // 3), (cut, 0)):
        first = Replacement("a" * 1500, "a" * 1490, "")
        _, answer_ = plan_replace(session.source, OPENCLAW, [first])
        assert [one.tokens_saved for one in answer_.changed] == [expected]
        hash_ = line_hash(session.raw.splitlines(keepends=True)[1])
        plan, answer_ = plan_discard(session.source, OPENCLAW, [Discard(hash_)])
        note = len("[content discarded]")
        assert plan.report.tokens_saved == (expected and (3000 - note) // 3)
        assert plan.report.rate == Rate(3.0, measured=True)


def test_images_and_what_is_never_sent_cost_nothing() -> None:
    shown = result("r", details={"log": "y" * 3000})
    shown["message"]["content"] = [{"type": "image", "data": "A" * 3000}]
    end: Entry = {"type": "message", "id": "u", "message": {"role": "user", "content": "go"}}
    saving = Session(jsonl(HEADER, shown, end)).extract(keep_recent=0).report.savings["tool_result"]
    assert (saving.values, saving.tokens) == (2, 0)


def test_the_estimate_is_named() -> None:
    charged = as_json(SessionResult("a/b", Status.UNCHANGED, rate=Rate(2.718, measured=True)))
    assert (charged["characters_per_token"], charged["tokens_by"]) == (2.72, "usage")
    guessed = as_json(SessionResult("a/b", Status.UNCHANGED))
    assert (guessed["characters_per_token"], guessed["tokens_by"]) == (4.0, "rule_of_thumb")
