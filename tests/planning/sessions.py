"""Random sessions, as their programs and accidents write them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import FLAT, OPENCLAW
from tests.session_files import HEADER

_texts = st.sampled_from(
    [
        *("", "ok", "short text", "x" * 40, "long " * 30, "line\nline\t" * 9, "é😀\u2028" * 15),
        *(
            "[[extracted-a1]]",
            "see [[extracted-b2]] " * 3,
            '\\"/' * 20,
            "lone \ud83d " * 9,
            "\0" * 30,
        ),
    ]
)
_odd_ids = st.sampled_from(["a1", "b2", "un/safe", "", None])
_ids = st.uuids(version=4).map(lambda one: one.hex[:8]) | st.uuids().map(str) | _odd_ids
_objects = st.recursive(
    _texts | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b.c", "id", "text", "ключ", ""]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
_signatures = st.sampled_from([None, "", "s" * 60])
_blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, _texts),
    st.builds(
        lambda text, signature: {
            "type": "thinking",
            "thinking": text,
            "thinkingSignature": signature,
        },
        _texts,
        _signatures,
    ),
    st.builds(
        lambda signature, text: {
            "thinkingSignature": signature,
            "type": "thinking",
            "thinking": text,
        },
        _signatures,
        _texts,
    ),
    st.builds(
        lambda arguments: {"type": "toolCall", "id": "c", "name": "t", "arguments": arguments},
        _objects,
    ),
    st.builds(
        lambda size: {"type": "image", "data": "A" * size, "mimeType": "image/png"},
        st.integers(0, 90),
    ),
    _objects,
)
_contents: st.SearchStrategy[Any] = _texts | st.lists(_blocks, max_size=4) | _objects
_extras = st.fixed_dictionaries(
    {},
    optional={
        "_extractable": st.sampled_from([True, False, 0, 2]),
        "_restored": st.just("2020-01-01T00:00:00Z"),
        "timestamp": st.sampled_from(["2026-01-01T00:00:00Z", 5]),
    },
)


@st.composite
def _messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "assistant", "toolResult", "bashExecution"]))
    message: dict[str, Any] = {"role": role, "content": draw(_contents)}
    if role == "assistant":
        message["api"] = draw(st.sampled_from(["anthropic-messages", "openai-responses", "new"]))
        message["stopReason"] = draw(st.sampled_from(["stop", "toolUse", "aborted"]))
    if draw(st.booleans()):
        message["details"] = draw(_objects)
    if role == "bashExecution":
        message["output"] = draw(_texts)
    return {"type": "message", "id": draw(_ids), "message": message, **draw(_extras)}


@st.composite
def _flat(draw: st.DrawFn) -> dict[str, Any]:
    keys = st.sampled_from(["content", "text", "output", "result", "data", "thinking", "other"])
    entry: dict[str, Any] = {"type": draw(st.sampled_from(["thinking", "tool_result", "user"]))}
    entry |= draw(st.dictionaries(keys, _contents, max_size=3))
    if draw(st.booleans()):
        entry["message"] = draw(_texts | st.fixed_dictionaries({"content": _contents}))
    return {"__id": draw(_ids), **entry, **draw(_extras)}


_accidents = st.sampled_from(
    [
        *(b"", b"   ", b"{torn", b"null", b'{"a":1}{"b":2}', b'{"n":NaN}', b"\xff\xfe", b"\0\0\0"),
        b'{"type":"message","id":"dup","id":"dup","message":{"role":"user","content":"%b"}}'
        % (b"y" * 99),
        b'{"__id":"d1","type":"user","text":"%b","text":"%b"}' % (b"y" * 99, b"z" * 99),
        b'{"__id":"d2","type":"user","text":"%b","_extracted":true}' % (b"y" * 99),
        b'{ "id" : "sp" , "type":"message","message" : { "role":"user", "content" :"%b" } }'
        % (b"\\u0041\\/" * 30),
    ]
)
_line_ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])


@st.composite
def sessions(draw: st.DrawFn) -> tuple[bytes, TranscriptFormat]:
    """The bytes of a session and its format."""
    fmt: TranscriptFormat = OPENCLAW if draw(st.booleans()) else FLAT
    entries = _messages() if fmt is OPENCLAW else _flat()
    lines = [json.dumps(HEADER).encode() + b"\n"] if fmt is OPENCLAW else []
    for item in draw(st.lists(entries | _accidents, max_size=9)):
        if isinstance(item, bytes):
            line = item
        else:
            separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
            ascii_ = draw(st.booleans())
            text = json.dumps(item, separators=separators, ensure_ascii=ascii_)
            line = text.encode("utf-8", "surrogatepass" if ascii_ else "replace")
        lines.append(line + draw(_line_ends))
    raw = b"".join(lines)
    return (raw.rstrip(b"\r\n") if draw(st.booleans()) else raw), fmt
