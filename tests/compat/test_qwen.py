"""Qwen Code continues sessions with extracted values, and its copies get the values back."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.compat import messages_api
from tests.compat.beside import placeholders
from tests.compat.messages_api import Model, asking
from tests.compat.qwen import QwenCode
from tests.compat.requests import extracted_in
from tests.compat.test_own_session import parted, server

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def template(
    programs: str, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[QwenCode, str]:
    """A home of Qwen Code with a session, and the session's path; for copies."""
    top = tmp_path_factory.mktemp("qwen")
    served.thinks = False
    qwen = QwenCode.at(programs, top / "template", top / "work", served)
    return qwen, str(qwen.one_turn().relative_to(qwen.beside.top))


@pytest.fixture
def qwen(template: tuple[QwenCode, str], tmp_path: Path) -> QwenCode:
    return template[0].copy_to(tmp_path / "qwen")


@pytest.fixture
def path(qwen: QwenCode, template: tuple[QwenCode, str]) -> Path:
    """The session's file, from which no value was extracted yet."""
    return qwen.beside.top / template[1]


def resumed(qwen: QwenCode, path: Path, model: Model) -> Any:
    """Continue a session as it is now; return the request. The file is as before afterwards."""
    content = path.read_bytes()
    model.requests.clear()
    qwen.run("And now?", "--resume", path.stem)
    assert path.read_bytes().startswith(content)
    path.write_bytes(content)
    [request] = model.requests
    return request


def test_it_sends_the_same_without_what_is_never_sent_and_forks_get_all_back(
    qwen: QwenCode, path: Path, model: Model
) -> None:
    original = path.read_bytes()
    before = resumed(qwen, path, model)
    qwen.beside.bsd("config", "set", "scope", "display")
    qwen.beside.extract()
    shown = placeholders(path.read_bytes())
    assert names_away(path) == {
        *("newContent", "fileDiff", "originalContent", "output", "text"),  # of results
        *("content", "old_string", "new_string"),  # of calls
    }
    assert resumed(qwen, path, model) == before
    qwen.beside.bsd("config", "set", "scope", "all")
    qwen.beside.extract()
    lean = path.read_bytes()
    files = qwen.beside.files()
    qwen.run("And now?", "--resume", path.stem, "--fork-session")
    after = model.requests[-1]
    fork = qwen.beside.the_new_file(files)
    assert placeholders(fork.read_bytes()) == placeholders(lean)
    assert path.read_bytes() == lean
    assert extracted_in(before, after) == placeholders(lean) - shown > 0
    assert len(json.dumps(after["messages"])) < 0.4 * len(json.dumps(before["messages"]))
    assert not model.refused
    qwen.beside.restore_all()
    assert path.read_bytes() == original
    assert contents(original, path) <= contents(fork.read_bytes(), fork)


def test_its_model_gets_a_text_back_in_its_own_session(
    qwen: QwenCode, path: Path, model: Model
) -> None:
    original = path.read_bytes()
    qwen.beside.extract()
    lean = path.read_bytes()
    entry, text = a_result(original, lean)
    settings = json.loads(qwen.settings.read_text())
    servers = {"mcpServers": {"bsd": server(qwen.beside.root)}}
    qwen.settings.write_text(json.dumps(settings | servers))
    call = ("mcp__bsd__restore_remote", {"entry": entry, "inline": True})
    qwen.run(asking("What was it?", call), "--resume", path.stem)
    answer, given = parted(model.results()[-1])
    assert given == f"\n{text}"
    assert answer["session"].endswith(f"/{path.stem}")
    assert answer["inline"] == "not in this program"
    grown = path.read_bytes()
    assert grown.startswith(lean), "nothing of it was changed"
    qwen.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.mark.soak
def test_pictures_sub_agents_and_compactions(
    qwen: QwenCode, path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(messages_api._USAGE, "input_tokens", 90_000)  # enough to compress
    picture = qwen.beside.work / "picture.png"
    picture.write_bytes(noise(60))
    book = qwen.beside.work / "book.txt"
    task = asking("Count.", ("read_file", {"file_path": str(book)}))
    asked = {"description": "count", "prompt": task, "subagent_type": "general-purpose"}
    calls = (("read_file", {"file_path": str(picture)}), ("agent", asked))
    qwen.run(asking("Look.", *calls), "--resume", path.stem)
    [part] = set(qwen.beside.files()) - {path}
    listed = {row["session"] for row in qwen.beside.bsd("sessions")["sessions"]}
    assert f"{path.stem}/{part.stem}" in {name.rpartition(":")[2] for name in listed}
    original, of_part = path.read_bytes(), part.read_bytes()
    assert '"type": "image"' in json.dumps(resumed(qwen, path, model))
    qwen.beside.extract()
    assert len(part.read_bytes()) < len(of_part)
    assert '"type": "image"' not in json.dumps(resumed(qwen, path, model))
    qwen.run("/compress", "--resume", path.stem)
    assert b'"subtype":"chat_compression"' in path.read_bytes()
    after = json.dumps(resumed(qwen, path, model))
    assert "[[extracted-" not in after, "only what follows the compaction is sent"
    assert not model.refused
    qwen.beside.restore_all()
    assert path.read_bytes().startswith(original)
    assert part.read_bytes() == of_part


def noise(side: int) -> bytes:
    """Return a picture that does not compress."""
    rows = b"".join(b"\0" + random.Random(row).randbytes(3 * side) for row in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def a_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return an extracted result: its entry, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        entry = json.loads(now)
        if "_extracted" in entry and entry["type"] == "tool_result":
            [part] = json.loads(was)["message"]["parts"]
            return entry["uuid"], part["functionResponse"]["response"]["output"]
    raise AssertionError("no result is away")


def names_away(path: Path) -> set[str]:
    """Return the names of the members that were extracted."""
    entries = map(json.loads, path.read_bytes().splitlines())
    keys = [key for entry in entries for key in entry.get("_extracted", {}).get("keys", ())]
    return {key.rpartition(".")[2] for key in keys}


def contents(content: bytes, path: Path) -> set[str]:
    """Return the lines of a session without what a fork changes in them."""
    changed = ("parentUuid", "cwd", "forkedFrom", "timestamp")
    entries = map(json.loads, content.replace(path.stem.encode(), b"<session>").splitlines())
    return {
        json.dumps({key: entry[key] for key in sorted(entry) if key not in changed})
        for entry in entries
    }
