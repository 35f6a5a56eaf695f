"""The outline of a session: each figure is checked against the lines."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.planning.session_outline import ContextInOutline, SessionMeter, SessionParts
from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.entry import Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.agents.pi import PI
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import BytesTranscript, Line, parse_kept
from tests.planning.in_memory import Session, data
from tests.transcripts.agents.sources import CLAUDE_CODE as CLAUDE_CODE_KIND
from tests.transcripts.agents.sources import CODEX as CODEX_KIND
from tests.transcripts.agents.sources import PI as PI_KIND
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.codex import codex_line, codex_meta
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, Kind, raw

_EVERYTHING: Any = EVERYTHING


def no_sizes(_: Marker) -> dict[str, int]:
    return {}


def no_original(_line: Line, _entry: Entry, _marker: Marker) -> None:
    return None


def parts_of(content: bytes, fmt: TranscriptFormat) -> SessionParts:
    meter = SessionMeter(fmt)
    meter.read(BytesTranscript(content), no_sizes, no_original)
    return meter.parts()


def entry(number: int, message: dict[str, Any]) -> dict[str, Any]:
    at = f"2026-01-05T09:{number // 60:02}:{number % 60:02}.000Z"
    return {"type": "message", "id": f"e{number}", "timestamp": at, "message": message}


def said(*content: dict[str, Any], tokens: int = 0, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": list(content), "model": "m", **more}
    return message | ({"usage": {"input": tokens, "output": 5}} if tokens else {})


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def turns(last_tokens: int = 0) -> list[dict[str, Any]]:
    """Two prompts; two calls of one tool, of which one fails."""
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "make"}}
    again = {"type": "toolCall", "id": "c2", "name": "bash", "arguments": {"command": "make it"}}
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [text(LONG)]}
    failed = {"role": "toolResult", "toolCallId": "c2", "toolName": "bash", "isError": True}
    messages = [
        {"role": "user", "content": "Build it."},
        said(call, stopReason="toolUse"),
        result,
        said(text("It does not build."), again, stopReason="toolUse"),
        failed | {"content": [text("x" * 10)]},
        said(text("It cannot be built."), stopReason="stop", tokens=1000),
        {"role": "user", "content": [text("Thanks, " + "that is all. " * 40)]},
        said(text("Good bye."), stopReason="stop", tokens=last_tokens),
    ]
    lines = [entry(number * 10, message) for number, message in enumerate(messages)]
    return [{"type": "session", "version": 3, "id": "s"}, *lines]


def test_prompts_tools_and_fillings_are_those_of_the_lines() -> None:
    content = raw(turns(last_tokens=1500))
    parts = parts_of(content, OPENCLAW)
    first, second = parts.prompts
    assert (first.index, first.id, first.text) == (1, "e0", "Build it.")
    assert (first.last_answer, first.entries, first.seconds) == (6, 5, 50.0)
    assert second.text.startswith("Thanks, that is all.")
    assert len(second.text) == 200
    assert (second.last_answer, second.entries) == (8, 1)
    [tool] = parts.tools
    assert (tool.name, tool.calls, tool.errors, tool.seconds) == ("bash", 2, 1, 20.0)
    assert tool.bytes == len(LONG) + 10
    fills = {fill.what: fill.bytes for fill in parts.fills}
    assert fills["tool results: bash"] == tool.bytes
    assert fills["prompts"] == len("Build it.") + len("Thanks, " + "that is all. " * 40)
    assert sum(fills.values()) == len(content)
    assert sum(fill.share for fill in parts.fills) == pytest.approx(1, abs=0.01)
    assert (parts.context.tokens, parts.context.source) == (1500, "usage")
    assert (parts.context.model, parts.context.since) == ("m", 0)
    assert (parts.lines, parts.entries) == (9, 9)


def test_what_was_taken_out_is_counted_where_it_was() -> None:
    session = Session(raw(turns()), OPENCLAW)
    before = parts_of(session.raw, OPENCLAW)
    plan = session.extract(**_EVERYTHING)
    sizes = {keep.ref: keep.sizes_bytes for keep in plan.keeps}
    whole = {keep.ref: session.shelf.files[keep.ref] for keep in plan.keeps}
    meter = SessionMeter(OPENCLAW)
    meter.read(
        session.source,
        lambda marker: sizes[marker.ref],
        lambda _line, _entry, marker: parse_kept(whole[marker.ref]),
    )
    parts = meter.parts()
    assert [prompt.text for prompt in parts.prompts] == [prompt.text for prompt in before.prompts]
    [tool] = parts.tools
    assert tool.extracted_bytes == len(LONG)
    assert parts.extracted_bytes == sum(sum(each.values()) for each in sizes.values())
    # By the usage recorded before it left, minus the estimate of its tokens.
    assert parts.context.source == "less"
    assert parts.context.tokens == max(0, 1000 - parts.context.extracted_tokens)
    assert parts.context.extracted_tokens >= len(LONG) // 5


def test_after_a_compaction_the_context_is_what_it_keeps() -> None:
    lines = turns()
    compaction = {"type": "compaction", "id": "k", "parentId": "e70", "firstKeptEntryId": "e60"}
    parent = None
    for line in lines[1:]:
        line["parentId"], parent = parent, line["id"]
    parts = parts_of(raw([*lines, compaction | {"summary": "It cannot."}]), OPENCLAW)
    assert (parts.context.since, parts.context.source) == (10, "estimate")
    assert parts.context.tokens == parts.context.estimate < len(LONG) // 4


class Growing(BytesTranscript):
    """A file to which lines are appended; the bytes read are counted."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.identity = Identity(1, 1, len(content), len(content), 0)


@pytest.mark.parametrize("cut", [0, 1, 500])
def test_it_goes_on_where_it_has_stopped(cut: int) -> None:
    content = raw(turns(last_tokens=1500))
    at = content.index(b"\n", 900) + 1
    first, whole = Growing(content[: at - cut]), Growing(content)
    meter = SessionMeter(OPENCLAW)
    meter.read(first, no_sizes, no_original)
    assert meter.knows(first)
    meter.parts()
    if meter.knows(whole):
        assert not cut
        meter.read(whole, no_sizes, no_original)
        assert meter.parts() == parts_of(content, OPENCLAW)
    else:
        assert cut, "the line that was not complete is read again"
    longer = content + content[at:]
    assert meter.knows(Growing(longer)) is not bool(cut)
    changed = Growing(longer.replace(LONG[:20].encode(), b"x" * 20).replace(b"bye", b"b1e"))
    assert not meter.knows(changed)


@pytest.mark.parametrize(
    ("name", "fmt", "prompts", "calls", "errors", "limit"),
    [
        ("claude-code-long.jsonl", CLAUDE_CODE, 2, 177, 13, 200_000),
        ("codex-rollout.jsonl", CODEX, 13, 123, 8, 272_000),
        ("openclaw-v3-medium.jsonl", OPENCLAW, 84, 391, 19, 200_000),
    ],
)
def test_recorded_sessions(
    name: str, fmt: TranscriptFormat, prompts: int, calls: int, errors: int, limit: int
) -> None:
    content = data(name)
    parts = parts_of(content, fmt)
    assert len(parts.prompts) == prompts
    assert sum(tool.calls for tool in parts.tools) == calls
    assert sum(tool.errors for tool in parts.tools) == errors
    assert sum(fill.bytes for fill in parts.fills) == len(content)
    assert 0 < parts.context.tokens < 1_000_000
    assert parts.context.limit == limit
    assert (parts.context.limit_reason == "as the session says") == (fmt is CODEX)
    unnamed = [fill for fill in parts.fills if fill.what.startswith("lines")]
    assert sum(fill.share for fill in unnamed) < 0.05
    assert all(tool.timed_calls for tool in parts.tools if tool.seconds)


@pytest.mark.parametrize("kind", [CLAUDE_CODE_KIND, CODEX_KIND, PI_KIND])
def test_every_byte_of_a_session_has_a_name(kind: Kind) -> None:
    """Made-up sessions hold each kind of line that a program writes."""
    fmt = {"claude-code": CLAUDE_CODE, "codex": CODEX, "pi": PI}[kind.kind]
    content = raw(kind.lines())
    fills = {fill.what: fill.bytes for fill in parts_of(content, fmt).fills}
    assert sum(fills.values()) == len(content)
    assert not [what for what in fills if what.startswith("lines") or what == "never sent"]
    assert fills["JSON around the values"] < len(content) / 2
    assert fills["images and documents"] > 0
    # Each holds a long text, and no text is counted twice.
    for what in {
        "claude-code": ("never sent: copies of results", "never sent: snapshots of files"),
        "codex": ("never sent: copies of messages", "never sent: settings of turns"),
        "pi": ("system and setup text", "never sent: details of results"),
    }[kind.kind]:
        assert fills[what] >= len(LONG), what
    [call] = [what for what in fills if what in ("tool calls: Write", "tool calls: shell", WRITE)]
    assert fills[call] >= len(LONG)


def test_of_compactions_only_the_newest_counts_as_read() -> None:
    lines = [codex_line(number, "compacted", message=LONG * number) for number in (1, 2, 3)]
    content = raw([codex_meta(), *lines])
    fills = {fill.what: fill.bytes for fill in parts_of(content, CODEX).fills}
    sizes = [len(raw([line])) for line in lines]
    assert fills["never sent: superseded compactions"] == sizes[0] + sizes[1]
    assert fills["summaries of compactions"] == sizes[2]
    assert sum(fills.values()) == len(content)


WRITE = "tool calls: write"


def result(call: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call, "output": output}


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (("response_item", result("c", "Wall time: 2.5 seconds\nOutput:\nok")), 2.5),
        (("response_item", result("c", '{"output":"","metadata":{"duration_seconds":1.5}}')), 1.5),
        (
            (
                "event_msg",
                {
                    "type": "exec_command_end",
                    "call_id": "c",
                    "duration": {"secs": 3, "nanos": 500_000_000},
                },
            ),
            3.5,
        ),
        (("response_item", result("c", "ok")), None),
    ],
)
def test_the_time_of_a_call_is_what_codex_notes(
    told: tuple[str, dict[str, Any]], seconds: float | None
) -> None:
    """The call and its result have the same time in the file; only a note gives the difference."""
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}
    lines = [
        codex_meta(),
        codex_line(5, "response_item", **call),
        codex_line(5, told[0], **told[1]),
        codex_line(5, "response_item", **result("c", "ok")),
    ]
    [tool] = parts_of(raw(lines), CODEX).tools
    assert (tool.timed_calls, tool.seconds) == ((0, 0.0) if seconds is None else (1, seconds))


def context_with(model: str, tokens: int, *more: dict[str, Any]) -> ContextInOutline:
    answer = entry(0, said(text("Yes."), tokens=tokens) | {"model": model})
    return parts_of(raw([answer, *more]), OPENCLAW).context


def test_lines_of_others_tell_nothing_of_the_model() -> None:
    """A sub-agent's lines, and those that Claude Code writes in the model's name."""
    answer = claude_code_line(1, "assistant", [text("Yes.")], stop_reason="end_turn")
    aside = claude_code_line(2, "assistant", [text("Found.")], isSidechain=True)
    aside["message"] |= {"model": "claude-haiku-4-5", "usage": {"input_tokens": 250_000}}
    error = claude_code_line(3, "assistant", [text("API Error")], isApiErrorMessage=True)
    error["message"]["model"] = "<synthetic>"
    context = parts_of(raw([answer, aside, error]), CLAUDE_CODE).context
    assert (context.model, context.limit, context.tokens) == ("claude-opus-4-6", 200_000, 3)


def test_the_limit_is_the_models_or_not_known() -> None:
    """Found by the model's name; the size of the request decides between the windows that a
    model has.
    """
    assert context_with("claude-opus-5-5", 1000).limit == 1_000_000
    smaller = context_with("anthropic/claude-sonnet-4-5-20250929", 1000)
    assert (smaller.limit, smaller.most_seen) == (200_000, 1000)
    assert "also offered with 1,000,000" in str(smaller.limit_reason)
    assert context_with("claude-sonnet-4-5", 300_000).limit == 1_000_000
    assert context_with("claude-opus-4-6[1m]", 1000).limit == 1_000_000
    compaction = {"type": "compaction", "id": "k", "tokensBefore": 90_000}
    unknown = context_with("a-model-of-mine", 1000, compaction)
    assert (unknown.limit, unknown.limit_reason, unknown.most_seen) == (None, None, 90_000)
    change = {"type": "model_change", "id": "n", "modelId": "gpt-4.1", "provider": "openai"}
    changed = context_with("claude-opus-5-5", 1000, change)
    assert (changed.model, changed.limit, changed.most_seen) == ("gpt-4.1", 1_047_576, None)
    # More was sent than the table's limit: the table is not used.
    assert context_with("claude-opus-4-1", 300_000).limit is None
