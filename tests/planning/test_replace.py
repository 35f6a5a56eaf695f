"""Seed 003's `replace`: its tests by name, its table of errors, its examples, and further tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.answers import as_json
from bsd.core.config import PruningConfig
from bsd.core.errors import Invalid
from bsd.planning.replace import plan_replace
from bsd.planning.rules import Policy
from bsd.planning.targets import Refused, Replacement, read_targets
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.planning.soundness import faults, shown
from tests.planning.test_undo import Patient
from tests.session_files import Talk, call, jsonl, text, thought
from tests.transcripts import nasty

FILLER = "something that takes some room here"


def replace(session: Patient, *targets: Any, **how: Any) -> dict[str, Any]:
    """Carry out a tool's request, in the seed's own words."""
    operations = [one for one in read_targets("replace", targets) if isinstance(one, Replacement)]
    plan, answer = plan_replace(session.source, session.fmt, operations, **how)
    session.carry_out(plan)
    return as_json(answer)


def op(start: str, end: str, replacement: str) -> dict[str, str]:
    return {"start": start, "end": end, "replacement": replacement}


def refusal(session: Patient, *targets: Any, **how: Any) -> Refused:
    before = session.raw
    with pytest.raises(Refused) as caught:
        replace(session, *targets, **how)
    assert session.raw == before
    assert caught.value.as_json()["success"] is False
    assert len(caught.value.as_json()["errors"]) == len(caught.value.errors)
    return caught.value


def session_of(*answers: str, asked: str = "please") -> Patient:
    """A finished conversation: each answer is an assistant message, e2, e4, …."""
    talk = Talk()
    for answer in answers:
        talk.user(asked)
        talk.says(text(answer))
    talk.user()
    talk.says(text("the latest answer"))
    return Patient(talk.raw, OPENCLAW)


def said(session: Patient, number: int = 2) -> str:
    words: str = session.entry(number)["message"]["content"][0]["text"]
    return words


# --- the seed's tests ----------------------------------------------------------------------------


def test_t1_replace_single_block_of_more_than_30_characters() -> None:
    session = session_of(f"a START_VERBOSE_OUTPUT {FILLER} END_VERBOSE_OUTPUT b")
    before = session.raw
    result = replace(session, op("START_VERBOSE_OUTPUT", "END_VERBOSE_OUTPUT", "…"))
    [done] = result["replacements"]
    assert done["originalLength"] == len(f"START_VERBOSE_OUTPUT {FILLER} END_VERBOSE_OUTPUT") > 30
    assert done["tokensSaved"] > 0
    assert done["newLength"] == 1
    assert done["messageId"] == "e2"
    assert done["operation"] == op("START_VERBOSE_OUTPUT", "END_VERBOSE_OUTPUT", "…")
    assert (result["success"], result["errors"]) == (True, [])
    assert said(session) == "a … b"
    session.undo()
    assert session.raw == before


def test_t2_reject_replacement_of_less_than_30_characters() -> None:
    with pytest.raises(Refused, match=r"minimum 30 characters"):
        replace(session_of("ab cd"), op("ab", "cd", "…"))


def test_t3_handle_multiple_replacements_in_batch() -> None:
    session = session_of(
        f"LOG_1_START {FILLER} LOG_1_END, LOG_2_START {FILLER} LOG_2_END", "another"
    )
    result = replace(
        session,
        op("LOG_1_START", "LOG_1_END", "[log1]"),
        op("LOG_2_START", "LOG_2_END", "[log2]"),
    )
    assert len(result["replacements"]) == 2
    assert said(session) == "[log1], [log2]"
    assert result["tokensSaved"] == sum(one["tokensSaved"] for one in result["replacements"])


def test_t4_detect_overlapping_patterns() -> None:
    session = session_of(f"A {FILLER} B {FILLER} C {FILLER} D")
    with pytest.raises(Refused, match=r"overlapping"):
        replace(session, op("A", "C", "…"), op("B", "D", "…"))


# --- its table of errors --------------------------------------------------------------------------


def test_pattern_not_found_suggests_what_is_similar() -> None:
    session = session_of(f"nothing {FILLER}", f"Detailed analysis of all 47 files: {FILLER}")
    error = refusal(session, op("Detailed analysis of all 46 files", "End of it", ""))
    assert 'Pattern not found: start="Detailed analysis of all 46 files"' in error.message
    assert 'Most similar: entry e4: "Detailed analysis of all 47 files' in error.message
    assert "Most similar" not in refusal(session, op("0123456789", "zzz", "")).message


def test_an_end_that_is_missing_after_its_start_is_named() -> None:
    session = session_of(f"finish, begin {FILLER} finisch")
    error = refusal(session, op("begin", "finish", ""))
    assert 'no end="finish" follows start="begin" in the same text' in error.message
    assert "entry e2" in error.message


def test_a_match_too_short_is_rejected_with_its_length() -> None:
    exactly = "<" + "x" * 28 + ">"
    replace(session_of(exactly), op("<", ">", ""))
    error = refusal(session_of(exactly.replace("x", "", 1)), op("<", ">", ""))
    assert "Match too short (29 characters, minimum 30 characters)" in error.message


def test_multiple_matches_are_all_listed() -> None:
    error = refusal(
        session_of(f"one <{FILLER}> two <{FILLER}>", f"three <{FILLER}>"), op("<", ">", "")
    )
    assert "Pattern appears 3 times" in error.message
    assert "Use more specific patterns to match exactly once" in error.message
    assert error.message.count("entry e2, characters") == 2
    assert error.message.count("entry e4, characters") == 1


def test_a_pattern_in_many_messages_is_ambiguous_and_they_are_named() -> None:
    error = refusal(session_of(*(f"{n} <{FILLER}>" for n in range(15))), op("<", ">", ""))
    assert "Pattern appears 15 times" in error.message
    assert error.message.endswith("; and 5 more")
    assert f'entry e6, characters 2–39: "2 <{FILLER}>"' in error.message


def test_overlapping_ranges_show_both() -> None:
    session = session_of(f"A {FILLER} B {FILLER} C {FILLER} D")
    error = refusal(session, op("A", "C", "…"), op("B", "D", "…"))
    assert [one.field for one in error.errors] == ["targets[1]"]
    assert "targets[0] (entry e2, characters 0–77" in error.message
    assert "targets[1] (entry e2, characters 38–115" in error.message


def test_every_range_inside_a_wide_one_overlaps_it() -> None:
    session = session_of(f"A {FILLER} B {FILLER} C {FILLER} D {FILLER} E {FILLER} F")
    error = refusal(session, op("A", "F", "…"), op("B", "C", "…"), op("D", "E", "…"))
    assert [one.field for one in error.errors] == ["targets[1]", "targets[2]"]
    assert all("targets[0]" in one.message for one in error.errors)


def test_what_is_wrong_for_itself_overlaps_all_the_same() -> None:
    session = session_of(f"A B {FILLER} C short D")
    error = refusal(session, op("B", "D", "…"), op("C", "D", "…"))
    assert [one.field for one in error.errors] == ["targets[1]", "targets[1]"]
    assert "too short" in error.message
    assert "overlapping" in error.message


def test_overlaps_are_told_with_everything_else() -> None:
    session = session_of(f"A {FILLER} B {FILLER} C {FILLER} D")
    error = refusal(session, op("A", "C", ""), op("B", "D", ""), op("nowhere", "never", ""))
    assert sorted(one.field for one in error.errors) == ["targets[1]", "targets[2]"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    session = session_of(f"<{FILLER}> ab cd", f"{{{FILLER}}} {{{FILLER}}}")
    error = refusal(
        session,
        op("ab", "cd", ""),
        op("nowhere", "never", ""),
        op("<", ">", "fine"),
        op("{", "}", ""),
        op("<", ">", "again"),
    )
    assert [one.field for one in error.errors] == [f"targets[{n}]" for n in (0, 1, 3, 4)]
    assert error.message.startswith("4 problems, nothing was changed:\n")


# --- its examples ---------------------------------------------------------------------------------


def test_its_example_of_one_replacement() -> None:
    report = f"Detailed analysis of all 47 files:\n{FILLER}\nEnd of file analysis report"
    session = session_of(f"Here is it.\n\n{report}\n\nRecommendation: refactor auth")
    replace(
        session,
        op(
            "Detailed analysis of all 47 files",
            "End of file analysis report",
            "[file analysis: 47 files reviewed]",
        ),
    )
    assert said(session) == (
        "Here is it.\n\n[file analysis: 47 files reviewed]\n\nRecommendation: refactor auth"
    )


def test_its_example_of_a_batch() -> None:
    log = f"START_DEBUG_LOG {FILLER} END_DEBUG_LOG"
    config = '```json\n{"verbose": true, "level": "all of them"\n}\n```'
    session = session_of(f"{log}\n{config}\nbye")
    replace(
        session,
        op("START_DEBUG_LOG", "END_DEBUG_LOG", "…"),
        op('```json\n{"verbose": true', "}\n```", "[verbose config]"),
    )
    assert said(session) == "…\n[verbose config]\nbye"


def test_its_example_of_mixed_operations_breaks_its_own_rule() -> None:
    session = session_of(
        "a quick brown fox jumps over; detailed stack trace of it all\n at processTicks"
    )
    mixed = (
        op("a quick brown fox", "jumps over", "a quick…jumps over"),
        op("detailed stack trace", "at processTicks", "[error occurred]"),
    )
    error = refusal(session, *mixed)
    assert [one.field for one in error.errors] == ["targets[0]"]
    assert "Match too short (28 characters" in error.message
    replace(session, mixed[1])
    assert said(session) == "a quick brown fox jumps over; [error occurred]"


@pytest.mark.parametrize(
    ("words", "target", "left"),
    [
        (
            f"x DEBUG: Starting request handler {FILLER} DEBUG: Request handler completed y",
            op(
                "DEBUG: Starting request handler",
                "DEBUG: Request handler completed",
                "[request handled]",
            ),
            "x [request handled] y",
        ),
        (
            f"npm install output: {FILLER} added 847 packages in 3s",
            op("npm install output:", "added 847 packages", "…"),
            "… in 3s",
        ),
        (
            "env\nAPI_KEY=sk-0123456789abcdef0123456789\nmore",
            op("API_KEY=", "\n", "[REDACTED]"),
            "env\n[REDACTED]more",
        ),
    ],
)
def test_its_guide(words: str, target: dict[str, str], left: str) -> None:
    session = session_of(words)
    replace(session, target)
    assert said(session) == left


# --- faults of the original ------------------------------------------------------------------


def test_the_same_replacement_twice_finds_nothing_the_second_time() -> None:
    session = session_of(f"pre <{FILLER}> post")
    replace(session, op("<", ">", "x"))
    assert "Pattern not found" in refusal(session, op("<", ">", "x")).message
    assert said(session) == "pre x post"
    error = refusal(session_of(f"<{FILLER}>"), op("<", ">", "x"), op("<", ">", "x"))
    assert "overlapping" in error.message


def test_overlapping_ranges_in_two_calls_are_matched_in_the_text_as_it_is() -> None:
    session = session_of(f"A {FILLER} B {FILLER} C {FILLER} D end")
    replace(session, op("A", "C", "[first]"))
    assert "Pattern not found" in refusal(session, op("B", "D", "…")).message
    replace(session, op("[first]", "D", "[both]"))
    assert said(session) == "[both] end"


# --- further properties ----------------------------------------------------------------------


def test_a_match_runs_to_the_first_end_and_the_search_goes_on_behind_it() -> None:
    session = session_of(f"< {FILLER} < {FILLER} > rest >")
    replace(session, op("<", ">", "x"))
    assert said(session) == "x rest >"


def test_ranges_may_touch_and_markers_are_literal() -> None:
    session = session_of(f"(.*) {FILLER} $&[a-z] {FILLER} \\1")
    replace(session, op("(.*)", "$", "$&"), op("&[a-z]", "\\1", "\\0"))
    assert said(session) == "$&\\0"


def test_nothing_in_place_of_a_whole_text_reads_as_such() -> None:
    session = session_of(f"<{FILLER}>", f"a <{FILLER}! b")
    replace(session, op("<", ">", ""), op("a <", "!", ""))
    assert said(session) == "[content discarded]"
    assert said(session, 4) == " b"


def test_only_texts_of_messages_are_looked_at() -> None:
    talk = Talk()
    talk.user(f"<{FILLER}>")
    talk.says(thought(f"<{FILLER}>"), call("c", "read", path=f"<{FILLER}>"))
    talk.answers("c", f"first <{FILLER}> last", "read")
    talk.entries[-1]["message"]["details"] = {"text": f"<{FILLER}>"}
    talk.note(customType="x", data=f"<{FILLER}>")
    talk.says(text("done"))
    talk.user()
    talk.says(text("latest"))
    session = Patient(talk.raw, OPENCLAW)
    result = replace(session, op("<", ">", "x"))
    assert result["replacements"][0]["messageId"] == "e3"
    assert said(session, 3) == "first x last"
    assert session.raw.count(FILLER.encode()) == 5
    assert faults(session.raw) == []


def test_what_the_user_wrote_is_changed_only_if_asked() -> None:
    session = session_of("answer", asked=f"<{FILLER}>")
    error = refusal(session, op("<", ">", "x"))
    assert "occurs only in text of the user (entry e1)" in error.message
    replace(session, op("<", ">", "x"), include_user=True)
    assert said(session, 1) == "x"


@pytest.mark.parametrize(
    ("change", "tools", "why"),
    [
        (lambda talk: talk.entries.__delitem__(slice(4, None)), [], "its turn is not over"),
        (lambda talk: talk.entries[3].update(_extractable=False), [], "it is pinned"),
        (lambda talk: None, ["read", "write"], "'Read' is a protected tool"),
    ],
)
def test_protected_entries_are_left(change: Any, tools: list[str], why: str) -> None:
    talk = Talk()
    talk.user()
    talk.says(text("I look"), call("c", "mcp__x__Read"))
    talk.answers("c", f"<{FILLER}>", "Read")
    talk.says(text("done"))
    change(talk)
    session = Patient(talk.raw, OPENCLAW)
    error = refusal(session, op("<", ">", ""), protected_tools=tools)
    assert f"Protected: {why}" in error.message


def test_an_entry_whose_call_has_no_result_yet_is_protected() -> None:
    talk = Talk()
    talk.user()
    talk.says(text(f"<{FILLER}>"), call("c", "read"))
    talk.user("again")
    talk.says(text("done"))
    error = refusal(Patient(talk.raw, OPENCLAW), op("<", ">", ""))
    assert "a tool call in it has no result yet" in error.message


def test_extracted_text_is_not_searched_and_the_hint_says_so() -> None:
    session = session_of(f"<{FILLER}>" * 20)
    session.extract(keep_recent=0, trigger_types=["assistant"])
    error = refusal(session, op("<", ">", ""))
    assert "Pattern not found" in error.message
    assert "restore its entry first" in (error.hint or "")


def test_values_of_flat_entries() -> None:
    session = Patient(
        jsonl(
            {"__id": "a", "type": "tool_result", "output": f"x <{FILLER}> y"},
            {"__id": "b", "type": "tool_result", "data": {"log": f"({FILLER})"}},
        ),
        FLAT,
    )
    replace(session, op("<", ">", "1"), op("(", ")", "2"))
    assert session.entry(0)["output"] == "x 1 y"
    assert session.entry(1)["data"] == {"log": "2"}


def test_a_line_that_cannot_be_edited_is_an_error_of_its_own() -> None:
    line = b'{"__id":"a","type":"tool_result","output":"x","output":"<%b>"}\n'
    error = refusal(Patient(line % FILLER.encode(), FLAT), op("<", ">", ""))
    assert "entry a cannot be edited safely" in error.message


def test_only_the_changed_values_get_new_bytes() -> None:
    line = b'{ "__id" : "a","type":"tool_result", "n":1e5 , "output":"\\u0041<%b>\\/" }\r\n'
    session = Patient(line % FILLER.encode(), FLAT)
    replace(session, op("<", ">", "é"))
    assert session.raw == (
        '{ "__id" : "a","type":"tool_result", "n":1e5 , "output":"Aé/" }\r\n'.encode()
    )
    session.undo()
    assert session.raw == line % FILLER.encode()


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "targets", "complaints"),
    [
        ("replace", [], ["No targets provided"]),
        ("replace", "abc", ["No targets provided"]),
        ("replace", None, ["No targets provided"]),
        ("replace", [["a", "b"]], ["expected {"]),
        ("replace", ["a"], ["expected {"]),
        ("replace", [{"start": "a"}], ["end is missing, replacement is missing"]),
        (
            "replace",
            [op("a", "b", "c") | {"regex": True}, op("", "b", "c"), op("a", "", "c")],
            ["regex is not known", "neither may be empty", "neither may be empty"],
        ),
        ("replace", [{"start": 1, "end": "b", "replacement": "c"}], ["all of them texts"]),
        ("discard", [["abc"]], ['Invalid hash format: "abc" (3 chars)']),
        ("discard", [["a1b2c3", "x"], 7], ["expected [hash]", "expected [hash]"]),
        ("distill", [["a1b2c3"]], ["Summary required for distill action: a1b2c3"]),
        ("distill", [["a1b2c3", "  "]], ["Summary required for distill action: a1b2c3"]),
        ("distill", [["a1b2c3", "x", "y", "z"]], ["expected [hash, summary]"]),
    ],
)
def test_targets_that_are_none_are_all_named(
    action: str, targets: object, complaints: Sequence[str]
) -> None:
    with pytest.raises(Refused) as caught:
        read_targets(action, targets)
    assert len(caught.value.errors) == len(complaints)
    for error, complaint in zip(caught.value.errors, complaints, strict=True):
        assert complaint in error.message


def test_an_unknown_action_is_named() -> None:
    with pytest.raises(Invalid, match=r"Unknown action 'compress'. Valid actions: replace, "):
        read_targets("compress", [["a1b2c3"]])


def test_targets_may_come_in_any_form_of_the_seed() -> None:
    assert read_targets("replace", [["a", "b", "c"]]) == read_targets(
        "replace", [op("a", "b", "c")]
    )
    forms: list[object] = [["A1B2C3"], ("a1b2c3",), "a1b2c3", {"hash": "a1b2c3"}]
    assert len({read_targets("discard", [form]) for form in forms}) == 1
    assert read_targets("distill", [["a1b2c3", "s"]]) == read_targets(
        "distill", [{"hash": "a1b2c3", "summary": "s"}]
    )


@settings(nasty.unhurried, max_examples=40)
@given(st.lists(st.text(alphabet="ab<>é😀\n", max_size=50), min_size=1, max_size=4), st.data())
def test_it_replaces_what_a_plain_search_would(words: list[str], data: st.DataObject) -> None:
    session = session_of(*words)
    start = data.draw(st.sampled_from(["<", "ab", "é"]))
    end = data.draw(st.sampled_from([">", "😀", "\n"]))
    ranges = []
    for number, one in enumerate(words):
        at = one.find(start)
        while at >= 0 and (found := one.find(end, at + len(start))) >= 0:
            ranges.append((number, at, found + len(end)))
            at = one.find(start, found + len(end))
    if len(ranges) == 1 and ranges[0][2] - ranges[0][1] >= 30:
        [(number, at, until)] = ranges
        replace(session, op(start, end, "-"))
        assert said(session, 2 + 2 * number) == words[number][:at] + "-" + words[number][until:]
    else:
        refusal(session, op(start, end, "-"))
    assert len(shown(session.raw)) == 2 * len(words) + 2


# --- answers of bsd's tools, and signatures -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "searched"),
    [
        ("context", {"action": "replace", "targets": []}, False),
        ("mcp__bsd__context", {"action": "discard"}, False),
        ("search_extracted", {}, False),
        ("context", {"action": "of somebody else"}, True),
        ("exec", {}, True),
    ],
)
def test_an_earlier_refusal_that_quotes_the_markers_is_no_second_match(
    name: str, arguments: dict[str, Any], searched: bool
) -> None:
    talk = Talk()
    talk.user()
    talk.says(text(f"a <{FILLER}> b"))
    talk.user()
    talk.says(call("c", name, **arguments))
    talk.answers("c", f'Pattern appears twice: "a <{FILLER}> b"', name)
    talk.says(text("again, then"))
    session = Patient(talk.raw, OPENCLAW)
    if searched:
        assert "Pattern appears 2 times" in refusal(session, op("<", ">", "")).message
    else:
        replace(session, op("<", ">", "x"))
        assert said(session) == "a x b"


def signed(compacted: bool) -> Patient:
    talk = Talk()
    talk.user()
    talk.says(text(f"a <{FILLER}> b"))
    kept = talk.user()
    if compacted:
        talk.note(type="compaction", summary="s", firstKeptEntryId=kept)
    talk.says(thought("hm") | {"thinkingSignature": "x"}, text("b"), model="claude-opus-6")
    talk.user()
    talk.says(text(f"({FILLER})"))
    talk.user()
    talk.says(text("latest"))
    return Patient(talk.raw, OPENCLAW)


@pytest.mark.parametrize(
    ("target", "compacted", "warned"),
    [
        (op("<", ">", ""), False, True),
        (op("<", ">", ""), True, False),
        (op("(", ")", ""), False, False),
    ],
)
def test_what_a_later_signature_covers_is_changed_with_a_warning(
    target: dict[str, str], compacted: bool, warned: bool
) -> None:
    binds = Policy.of(PruningConfig()).binds
    result = replace(signed(compacted), target, binds=binds)
    assert [warning.split(":")[0] for warning in result["warnings"]] == ["entry e2"] * warned
    assert replace(signed(compacted), target)["warnings"] == []


def test_empty_markers_are_refused_even_if_no_door_has_read_them() -> None:
    session = session_of(f"START {FILLER} END")
    before = session.raw
    targets = [Replacement("START", "", ""), Replacement("", "END", ""), Replacement("", "", "")]
    with pytest.raises(Refused) as caught:
        plan_replace(session.source, session.fmt, targets)
    assert [one.field for one in caught.value.errors] == ["targets[0]", "targets[1]", "targets[2]"]
    assert session.raw == before
