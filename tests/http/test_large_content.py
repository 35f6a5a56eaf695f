"""Large content: the server reads it in pieces."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import show_extracted
from bsd.core.config_file import ConfigService
from bsd.core.errors import Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.http.entries import StoredDocument
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session

NAME = SessionName("main", "large")
TEXT = "grøße \ud83d \x00 " + "x" * 12_000_000


def message(id: str, role: str, text: str) -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    inner = {"role": role, "content": content, "toolCallId": "c1", "timestamp": 1_700_000_000_000}
    when = "2026-01-05T08:30:00.000Z"
    return {"type": "message", "id": id, "parentId": None, "timestamp": when, "message": inner}


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    header = {"type": "session", "version": 3, "id": "large", "timestamp": "2026-01-05T08:30:00Z"}
    lines = [header, message("e1", "toolResult", TEXT)]
    lines += [message(f"e{n}", "user", "next") for n in range(2, 9)]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    add_session(tmp_path, str(NAME), data)
    layout = Layout(tmp_path)
    caller = Caller(
        layout=layout, config=ConfigService(layout.config_file), budget=RetryBudget(quiet=0.0)
    )
    assert caller.extract(NAME).values == 1
    return caller


def opened(caller: Caller, entry: str) -> StoredDocument:
    context = ActionContext(layout=caller.layout, config=caller.config)
    return StoredDocument.open(show_extracted(context, NAME, entry))


def test_a_large_value_is_never_in_memory_while_it_is_sent(caller: Caller) -> None:
    content = opened(caller, "e1")
    size = 0
    tracemalloc.start()
    try:
        for piece in content.pieces():
            size += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == content.size > 12_000_000
    assert peak < 2_000_000


def test_it_says_what_the_surgeon_says(caller: Caller) -> None:
    told = json.loads(b"".join(opened(caller, "#1").pieces()))
    assert told == performed.extracted_content(caller, NAME, "e1")
    assert list(told["content"].values()) == [TEXT]


def test_a_file_that_is_another_by_then_is_not_shown(caller: Caller) -> None:
    context = ActionContext(layout=caller.layout, config=caller.config)
    found = show_extracted(context, NAME, "e1")
    assert found.file is not None
    with found.file.open("ab") as file:
        file.write(b" ")
    with pytest.raises(Unavailable, match="moved or changed"):
        StoredDocument.open(found)
