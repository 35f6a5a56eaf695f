"""Values in context stay while the provider's prompt cache is warm, and for how long it is warm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Plan
from bsd.planning.prompt_cache import PromptCache, life_seconds
from bsd.planning.timing import Cause
from bsd.store.state import CacheSeen, Checkpoint
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.entry import Usage
from bsd.transcripts.agents.format import CacheUse, EntryInfo, TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.agents.pi import PI
from tests.planning.in_memory import NOW, Session, config
from tests.planning.test_prefix import entries
from tests.planning.test_properties import EXAMPLES
from tests.session_files import HEADER, jsonl
from tests.transcripts import nasty
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.codex import codex_line, codex_lines

MINUTE, HOUR = 60.0, 3600.0
LONG = "long text " * 100


def time_of(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def claude_usage(**more: Any) -> dict[str, Any]:
    return {"input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 7, **more}


def answer(used: float, usage: dict[str, Any] | None, model: str = "m") -> EntryInfo:
    line = claude_code_line(1, "assistant", [{"type": "text", "text": "t"}])
    line["message"] |= {"usage": usage, "model": model}
    return CLAUDE_CODE.info(line | {"timestamp": time_of(used)})


def written_for(life: str) -> dict[str, Any]:
    tokens = {f"ephemeral_{one}_input_tokens": 3 * (one == life) for one in ("5m", "1h", "12h")}
    return claude_usage(cache_creation_input_tokens=3, cache_creation=tokens)


# --- fields of usage ---


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (claude_usage(), (True, None, Usage(5, 900, 0, 7))),
        (written_for("5m"), (True, 5 * MINUTE, Usage(5, 900, 3, 7))),
        (written_for("1h"), (True, HOUR, Usage(5, 900, 3, 7))),
        (written_for("12h"), (True, 12 * HOUR, Usage(5, 900, 3, 7))),
        ({"cache_creation_input_tokens": 3}, (True, None, Usage(0, 0, 3, 0))),
        ({"input_tokens": 5, "cache_read_input_tokens": 0}, (False, None, Usage(5, 0, 0, 0))),
        (
            {"cache_read_input_tokens": 3, "cache_creation": ["odd"]},
            (True, None, Usage(0, 3, 0, 0)),
        ),
        ("odd", None),
        (None, None),
    ],
)
def test_what_claude_code_says_of_the_cache(usage: Any, expected: Any) -> None:
    use = expected and CacheUse("m", expected[0], expected[1], None, expected[2])
    assert answer(NOW, usage).cache == use


@pytest.mark.parametrize("fmt", [OPENCLAW, PI])
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"cacheRead": 3, "cacheWrite": 0}, (True, None, Usage(0, 3, 0, 0))),
        ({"cacheRead": 0, "cacheWrite": 3}, (True, None, Usage(0, 0, 3, 0))),
        (
            {"cacheRead": 0, "cacheWrite": 3, "cacheWrite1h": 0},
            (True, 5 * MINUTE, Usage(0, 0, 3, 0)),
        ),
        ({"cacheWrite": 3, "cacheWrite1h": 3}, (True, HOUR, Usage(0, 0, 3, 0))),
        ({"input": 3, "cacheRead": 0, "cacheWrite": 0}, (False, None, Usage(3, 0, 0, 0))),
        ({"input": 0, "cacheRead": 0}, None),
        (None, None),
    ],
)
def test_what_pi_and_openclaw_say_of_the_cache(
    fmt: TranscriptFormat, usage: Any, expected: Any
) -> None:
    message = {"role": "assistant", "content": [], "model": "m", "provider": "p", "usage": usage}
    use = expected and CacheUse("m", expected[0], expected[1], "p", expected[2])
    assert fmt.info({"type": "message", "id": "a", "message": message}).cache == use


def test_what_codex_says_of_the_cache() -> None:
    def said(**tokens: int) -> CacheUse | None:
        info = {"last_token_usage": {"input_tokens": 9, **tokens}}
        return CODEX.info(codex_line(1, "event_msg", type="token_count", info=info)).cache

    assert said(cached_input_tokens=3) == CacheUse(in_use=True, usage=Usage(6, 3, 0, 0))
    assert said(cached_input_tokens=0) == CacheUse(usage=Usage(9, 0, 0, 0))
    assert CODEX.info(codex_line(1, "event_msg", type="token_count", info=None)).cache is None
    assert CODEX.info(codex_line(1, "turn_context", model="gpt-5.4")).cache == CacheUse("gpt-5.4")
    assert [line for line in codex_lines() if (CODEX.info(line).cache or CacheUse()).in_use] == []


@pytest.mark.parametrize(
    ("model", "hours"),
    [
        ("claude-opus-5-5", 1),
        ("anthropic/claude-sonnet-4.5", 1),
        ("gpt-6.2-sol", 12),
        ("gpt-6.1-sol", 12),
        ("gpt-6-luna", 0.5),
        ("gpt-5.6", 0.5),
        ("openai/gpt-5.10-codex", 0.5),
        ("gpt-5.5", 24),
        ("gpt-5-codex", 24),
        ("gpt-4.1", 24),
        ("o3", 24),
        ("gemini-3-pro", 24),
        ("deepseek-v4", 24),
        ("", 24),
    ],
)
def test_how_long_a_cache_lives(model: str, hours: float) -> None:
    assert life_seconds(model, NOW) == hours * HOUR


# --- until when the cache is warm ---


def cache_of(*infos: EntryInfo) -> PromptCache:
    cache = PromptCache()
    for info in infos:
        cache.follow(info)
    return cache


def test_a_session_without_a_cache_waits_for_nothing() -> None:
    assert cache_of(answer(NOW, {"input_tokens": 3})).warm_until(NOW, NOW) is None


def test_the_newest_answer_counts_whether_it_shows_a_cache_or_not() -> None:
    cache = cache_of(answer(NOW - HOUR, written_for("5m")), answer(NOW - MINUTE, None))
    assert cache.warm_until(NOW, NOW) == NOW + 4 * MINUTE
    assert cache.warm_until(NOW + 4 * MINUTE, NOW) is None


def test_the_newest_write_says_how_long() -> None:
    hour, five = answer(NOW - 9, written_for("1h")), answer(NOW, written_for("5m"))
    assert cache_of(five, hour).warm_until(NOW, NOW) == NOW - 9 + HOUR
    assert cache_of(hour, five).warm_until(NOW, NOW) == NOW + 5 * MINUTE
    assert cache_of(hour, answer(NOW, claude_usage())).warm_until(NOW, NOW) == NOW + HOUR


def test_another_model_has_a_cache_of_its_own() -> None:
    five, other = answer(NOW, written_for("5m")), answer(NOW, claude_usage(), "gpt-6-sol")
    assert cache_of(five, other).warm_until(NOW, NOW) == NOW + 30 * MINUTE


def test_without_times_of_its_own_the_file_tells() -> None:
    line = claude_code_line(1, "assistant", [])
    line["message"]["usage"] = written_for("5m")
    del line["timestamp"]
    cache = cache_of(CLAUDE_CODE.info(line))
    assert cache.warm_until(NOW, NOW - 2 * MINUTE) == NOW + 3 * MINUTE
    assert cache.warm_until(NOW, NOW - 6 * MINUTE) is None


def test_nothing_waits_for_ever_for_a_clock_that_was_wrong() -> None:
    year_ahead = cache_of(answer(NOW + 365 * 24 * HOUR, written_for("5m")))
    assert year_ahead.warm_until(NOW, NOW - MINUTE) == NOW + 4 * MINUTE
    assert year_ahead.warm_until(NOW, NOW - HOUR) is None
    assert year_ahead.warm_until(NOW, NOW + 365 * 24 * HOUR) is None
    put_back = cache_of(answer(NOW + 3 * MINUTE, written_for("5m")))
    until = put_back.warm_until(NOW, NOW + 3 * MINUTE)
    assert until == NOW + 8 * MINUTE
    assert put_back.warm_until(until, NOW + 3 * MINUTE) is None


# --- values that leave, and values that wait ---


def claude_session(
    *, used: float = NOW - MINUTE, life: str = "5m", turns: int = 3, compacted: bool = False
) -> Session:
    """Each turn reads a file: its result is sent, the copy of it is not."""
    lines: list[dict[str, Any]] = []

    def add(kind: str, content: Any, **more: Any) -> None:
        line = claude_code_line(len(lines), kind, content, **more)
        if kind == "assistant":
            usage = written_for(life) | {"cache_read_input_tokens": 20_000 + 125 * len(lines)}
            line["message"] |= {"usage": usage, "id": f"msg{len(lines)}"}
        lines.append(line | {"timestamp": time_of(used)})

    for turn in range(turns):
        add("user", "go")
        call = {"type": "tool_use", "id": f"c{turn}", "name": "Read", "input": {}}
        add("assistant", [call], stop_reason="tool_use")
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": LONG}
        add("user", [result], toolUseResult={"file": {"content": LONG}})
        add("assistant", [{"type": "text", "text": "done"}], stop_reason="end_turn")
        if compacted and turn == turns - 2:
            add("system", "", subtype="compact_boundary", compactMetadata={"trigger": "manual"})
            lines[-1] |= {"parentUuid": None, "logicalParentUuid": lines[-2]["uuid"]}
            del lines[-1]["message"]
    return Session(jsonl(*lines), CLAUDE_CODE)


def extract(
    session: Session,
    now: float = NOW,
    since: Checkpoint | None = None,
    *,
    before: Plan | None = None,
    waits: bool = True,
    **fields: Any,
) -> Plan:
    """Extract; `before`: the plan whose checkpoints and account are known."""
    plan = plan_extraction(
        session.source,
        session.fmt,
        config(**fields),
        now,
        session.shelf,
        since=before.checkpoint if before else since,
        further=before.further if before else None,
        accounted=before.accounted if before else None,
        waits=waits,
    )
    return session.carry_out(plan)


def away(session: Session, index: int) -> tuple[bool, bool]:
    """Whether the result in a line was extracted, and whether its copy was."""
    entry = session.entry(index)
    sent = entry["message"]["content"][0]["content"]
    return sent != LONG, entry["toolUseResult"]["file"]["content"] != LONG


def test_copies_leave_at_once_and_results_when_the_cache_is_cold() -> None:
    session = claude_session()
    original = session.raw
    plan = extract(session)
    assert [away(session, index) for index in (2, 6)] == [(False, True)] * 2
    assert plan.report.reasons["extract"] == 2
    assert plan.report.reasons.get("cache_warm") is None
    assert plan.due_at == plan.warm_until == NOW + 4 * MINUTE
    tokens = plan.report.rate.tokens(2 * (len(LONG) - len("[[extracted-]]") - 36))
    assert plan.report.tokens_ready == tokens > 400

    again = extract(session, NOW + MINUTE)
    assert again.edits == ()
    assert again.report.reasons["cache_warm"] == 2
    assert again.report.tokens_ready == tokens

    cold = extract(session, NOW + 4 * MINUTE)
    assert [away(session, index) for index in (2, 6)] == [(True, True)] * 2
    assert (cold.due_at, cold.report.tokens_ready) == (None, 0)
    assert cold.report.tokens_saved == pytest.approx(tokens, abs=2)
    session.restore_all(NOW + HOUR)
    assert session.raw.replace(b',"_restored":"', b"") != original  # only `_restored` was added
    assert [away(session, index) for index in (2, 6)] == [(False, False)] * 2


def test_what_is_asked_for_does_not_wait() -> None:
    session = claude_session()
    plan = extract(session, waits=False)
    assert [away(session, index) for index in (2, 6)] == [(True, True)] * 2
    assert (plan.due_at, plan.report.tokens_ready) == (None, 0)


def test_a_dry_run_by_hand_says_what_the_daemon_would_leave() -> None:
    session = claude_session()
    plan = plan_extraction(
        session.source, session.fmt, config(), NOW, session.shelf, dry_run=True, by_hand=True
    )
    assert plan.warm_until == NOW + 4 * MINUTE
    assert plan.report.tokens_ready == plan.report.tokens_saved > 400


def test_a_cold_cache_and_none_at_all_keep_nothing() -> None:
    session = claude_session(used=NOW - HOUR)
    extract(session)
    assert away(session, 2) == (True, True)
    session = Session(claude_session().raw.replace(b'"cache_', b'"other_'), CLAUDE_CODE)
    extract(session)
    assert away(session, 2) == (True, True)


def test_an_hour_of_life_is_an_hour() -> None:
    session = claude_session(life="1h")
    assert extract(session).due_at == NOW - MINUTE + HOUR


def test_what_a_compaction_took_out_of_context_leaves_at_once() -> None:
    session = claude_session(turns=4, compacted=True)
    plan = extract(session)
    assert [away(session, index) for index in (2, 6, 10)] == [(True, True)] * 3
    assert (plan.due_at, plan.report.tokens_ready) == (None, 0)


def test_what_a_person_sets_free_leaves_at_once() -> None:
    session = claude_session()
    lines = session.raw.splitlines(keepends=True)
    lines[2] = lines[2].replace(b"{", b'{"_extractable":true,', 1)
    session.raw = b"".join(lines)
    extract(session)
    assert [away(session, index) for index in (2, 6)] == [(True, True), (False, True)]


def test_what_waits_is_looked_at_again_from_a_checkpoint() -> None:
    session = claude_session()
    warm = extract(session)
    assert warm.checkpoint is not None
    assert warm.checkpoint.index == 2  # the first result that waits
    assert warm.checkpoint.cache.used_ms == (NOW - MINUTE) * 1000
    assert warm.checkpoint.cache.calls == 1  # the requests before it
    extract(session, NOW + 4 * MINUTE, warm.checkpoint)
    assert [away(session, index) for index in (2, 6)] == [(True, True)] * 2


def test_a_checkpoint_knows_of_the_cache_before_it() -> None:
    session = claude_session()
    whole = extract(session, waits=False)
    assert whole.checkpoint is not None
    assert whole.checkpoint.index == 10  # the latest turn
    assert whole.checkpoint.cache == CacheSeen(
        in_use=True,
        used_ms=(NOW - MINUTE) * 1000,
        model="claude-opus-4-6",
        life_seconds=300.0,
        answer="msg9",
        usage=(5, 21_125, 3, 7),
        grown=21_133,
        growth=250.0,
        calls=5,
    )


def cached_usage(prompt: int) -> st.SearchStrategy[dict[str, int] | None]:
    return st.sampled_from(
        [
            {"cacheRead": 0, "cacheWrite": 0},
            {"input": prompt, "output": 5},
            {"cacheRead": prompt, "output": 5},
            {"cacheRead": 9, "cacheWrite": prompt - 9, "cacheWrite1h": 0},
            {"cacheWrite": prompt, "cacheWrite1h": 3},
            None,
        ]
    )


@settings(nasty.unhurried, max_examples=EXAMPLES)
@given(entries(), st.data())
def test_from_a_checkpoint_on_the_same_waits_and_leaves(
    some: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Whether the survey begins at the first line, at the first checkpoint, or at the further."""
    now, prompt, model, is_cached = NOW, 5000, "claude-opus-4-6", True
    whole, by_parts, appended = Session(b""), Session(b""), Session(b"")
    plans: list[Plan | None] = [None, None, None]
    fields: dict[str, Any] = {"min_value_length": 20}
    fields["keep_recent"] = data.draw(st.sampled_from([0, 1]))
    fields["when"] = data.draw(st.sampled_from(["cold", "pays"]))
    for entry in [HEADER, *some]:
        if entry.get("message", {}).get("role") == "assistant":
            prompt += data.draw(st.sampled_from([-900, 0, 3, 1000]))
            usage = data.draw(cached_usage(prompt))
            if usage and sum(usage.values()):
                model = data.draw(st.sampled_from(["claude-opus-4-6", "claude-opus-6", "claude-x"]))
            entry["message"] |= {"usage": usage, "model": model}
            entry["timestamp"] = time_of(now)
        for session in (whole, by_parts, appended):
            session.raw += jsonl(entry)
        now += data.draw(st.sampled_from([1.0, 200.0, 5000.0]))
        for number, session in enumerate((whole, by_parts, appended)):
            before = plans[number]
            if before is not None and number < 2:
                before = replace(before, further=None)
            if before is not None and number == 0:
                before = replace(before, checkpoint=None)
            plans[number] = extract(session, now, before=before, **fields)
        assert by_parts.raw == whole.raw
        facts = [(plan.due_at, plan.timing, plan.accounted) for plan in filter(None, plans)]
        if fields["when"] == "cold":
            assert appended.raw == whole.raw
        else:  # from a further checkpoint on, the newest values may leave alone
            del facts[2]
        # Without a cache, a survey from a checkpoint on may take more for sent than is sent.
        is_cached &= all(
            timing is None or timing.cause is not Cause.NO_CACHE for _, timing, _ in facts
        )
        assert facts[1:] == facts[:-1] or not is_cached
