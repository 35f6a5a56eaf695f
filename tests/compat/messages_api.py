"""A model behind Anthropic's Messages API on loopback: it makes the calls that a prompt names.

Claude Code and pi are its clients. Its answer depends only on the request: the calls that the
newest prompt names (`asking` writes them), one at a time, until each has its result. If bsd's
answer says that a call goes on, the model repeats the call. As far as pairing and signatures go,
it refuses requests that Anthropic's API would refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import Any

from tests.mcp.answers import goes_on

Json = dict[str, Any]

_CALL = re.compile(r"^CALL (\{.*\})$", re.MULTILINE)
# Text that Claude Code and OpenClaw put beside a prompt.
_REMINDERS = ("<system-reminder>", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>")
_USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


def asking(text: str, *calls: tuple[str, Json]) -> str:
    """Return a prompt on which the model makes these calls in this order and then ends."""
    lines = [f"CALL {json.dumps({'name': name, 'input': input_})}" for name, input_ in calls]
    return "\n".join([text, *lines])


class Model:
    """The model of the server, with the requests that it received."""

    def __init__(self) -> None:
        self.requests: list[Json] = []  # bodies, as received
        self.thinks = False  # whether it thinks before each call and answer, and signs that
        self.refused: list[str] = []  # reasons of refused requests
        # a prompt with this number of results is answered by an error
        self.fails_at: int | None = None
        self._thoughts: dict[str, str] = {}  # by signature
        self.url = ""
        self._numbers = count(1)
        self._lock = Lock()

    def results(self) -> list[str]:
        """Return the texts of all final results of its calls, as in the newest request."""
        newest = [request for request in self.requests if request.get("tools")][-1]
        return [one for one in _results(newest["messages"]) if not goes_on(one)]

    def answer(self, request: Json) -> tuple[list[Json], str]:
        """Return the blocks of the next message, and its stop reason."""
        with self._lock:
            self.requests.append(request)
            number = next(self._numbers)
        calls, made = _wanted(request["messages"])
        if made >= len(calls) or not request.get("tools"):
            return self._thought(number, f"That is all ({number})."), "end_turn"
        call = {"type": "tool_use", "id": f"toolu_{number:016}", **calls[made]}
        return [*self._thought(number, "I look."), call], "tool_use"

    def _thought(self, number: int, text: str) -> list[Json]:
        said = {"type": "text", "text": text}
        if not self.thinks:
            return [said]
        thought = f"What do I know of {number}? " * 40
        signature = f"signed-{number}-" + "A" * 300
        self._thoughts[signature] = thought
        return [{"type": "thinking", "thinking": thought, "signature": signature}, said]

    def fails(self, request: Json) -> bool:
        """Return whether a request gets an error, by `fails_at`."""
        made = _wanted(request["messages"])[1]
        return bool(request.get("tools")) and self.fails_at is not None and made >= self.fails_at

    def why_refused(self, request: Json) -> str | None:
        """Return why the API would refuse a request; None if it would accept it."""
        waiting: set[str] = set()
        for message in request["messages"]:
            if message["role"] == "system":
                continue
            blocks = _blocks(message)
            answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            if answered != waiting:
                return f"calls {sorted(waiting)} have results {sorted(answered)}"
            waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
            for block in blocks:
                if block["type"] == "text" and not block["text"].strip():
                    return "an empty text"
                if block["type"] == "thinking":
                    thought = self._thoughts.get(block["signature"])
                    if thought != block["thinking"]:
                        return "a thought that is not what was signed"
        return f"calls {sorted(waiting)} have no results" if waiting else None


def _wanted(messages: list[Json]) -> tuple[list[Json], int]:
    """Return the calls that the newest prompt names, and the number that have final results."""
    made = 0
    for message in reversed(messages):
        if message["role"] != "user":
            continue
        texts = [one for one in _texts(message) if not one.startswith(_REMINDERS)]
        results = _results([message])
        if texts and not results:
            return [json.loads(one) for text in texts for one in _CALL.findall(text)], made
        made += sum(not goes_on(one) for one in results)
    return [], made


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _texts(message: Json) -> list[str]:
    return [block["text"] for block in _blocks(message) if block["type"] == "text"]


def _results(messages: list[Json]) -> list[str]:
    found = []
    for message in messages:
        for block in _blocks(message):
            if block["type"] == "tool_result":
                content = block.get("content", "")
                inner = content if isinstance(content, list) else [{"text": content}]
                found.append("".join(one.get("text", "") for one in inner))
    return found


@contextmanager
def serving() -> Iterator[Model]:
    """Serve a model until the end of the block."""
    model = Model()
    handler = type("Handler", (_Handler,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True  # a client may leave a connection open
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    model: Model
    timeout = 10  # seconds; a connection that is silent for longer is closed

    def log_message(self, *_: Any) -> None:
        """Log no request."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self._send_json({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send_json({"input_tokens": 10})
        elif not path.endswith("/v1/messages"):
            self._send_json({"error": {"type": "not_found_error", "message": path}}, 404)
        else:
            if why := self.model.why_refused(body):
                self.model.refused.append(why)
            elif self.model.fails(body):
                why = "the test wants an error here"
            if why:
                error = {"type": "invalid_request_error", "message": why}
                self._send_json({"type": "error", "error": error}, 400)
                return
            blocks, stop = self.model.answer(body)
            message = _message(body, blocks, stop)
            self._stream(message) if body.get("stream") else self._send_json(message)

    def _send_json(self, answer: Json, status: int = 200) -> None:
        self._begin("application/json", status)
        self.wfile.write(json.dumps(answer).encode())

    def _stream(self, message: Json) -> None:
        self._begin("text/event-stream")
        for event in _events(message):
            text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            self.wfile.write(text.encode())

    def _begin(self, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()


def _message(request: Json, blocks: list[Json], stop: str) -> Json:
    return {
        "id": f"msg_{blocks[-1].get('id', blocks[-1].get('text'))}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _events(message: Json) -> Iterator[Json]:
    """Return a message as the events of a stream."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        about = {"index": index}
        deltas = []
        if block["type"] == "text":
            start = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
        elif block["type"] == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        else:
            start = {**block, "input": {}}
            text = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": text}]
        yield {"type": "content_block_start", **about, "content_block": start}
        yield from ({"type": "content_block_delta", **about, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", **about}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
