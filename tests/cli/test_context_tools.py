"""`bsd replace`, `discard` and `distill` on a real session: seed 003's words, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, rest, snapshot
from tests.openclaw_tree import add_session
from tests.session_files import Talk, call, text

LOG = "START_DEBUG_LOG " + "many lines of it " * 9 + "END_DEBUG_LOG"
NAME = "main/talk"


@pytest.fixture
def talk(bsd: Call) -> Call:
    conversation = Talk()
    conversation.user()
    conversation.says(call("c", "exec", command="make"))
    conversation.answers("c", f"before {LOG} after", "exec")
    conversation.says(text("it is made"))
    conversation.user()
    conversation.says(text("you are welcome"))
    add_session(bsd.root, NAME, conversation.raw)
    return bsd


def session(bsd: Call) -> Path:
    return bsd.root / "agents" / "main" / "sessions" / "talk.jsonl"


def words(bsd: Call) -> str:
    entry = json.loads(session(bsd).read_bytes().splitlines()[3])
    found: str = entry["message"]["content"][0]["text"]
    return found


def hash_of(bsd: Call, entry_id: str) -> str:
    entries = bsd("context", NAME, "--json").document["entries"]
    return next(str(entry["hash"]) for entry in entries if entry["id"] == entry_id)


_RESULT = {"success", "action", "replacements", "errors", "warnings", "tokensSaved", "operation"}
_REPLACEMENT = {"operation", "messageId", "originalLength", "newLength", "tokensSaved"}


def test_replace_and_the_way_back(talk: Call) -> None:
    before = session(talk).read_bytes()
    markers = ("--start", "START_DEBUG_LOG", "--end", "END_DEBUG_LOG", "--replacement", "…")
    ended = talk("replace", NAME, *markers, "--json")
    document: dict[str, Any] = ended.document
    assert (ended.code, set(document)) == (0, _RESULT)
    [done] = document["replacements"]
    assert set(done) == _REPLACEMENT
    assert (done["messageId"], done["originalLength"], done["newLength"]) == ("e3", len(LOG), 1)
    assert words(talk) == "before … after"
    rest(talk.root)
    again = talk("replace", NAME, *markers)
    assert again.code == 1
    assert "Pattern not found" in again.err
    assert "Try: " in again.err
    newest = talk("history", NAME, "--json").document["operations"][0]
    assert (newest["action"], newest["entry_ids"]) == ("replace", ["e3"])
    assert talk("undo", NAME, str(document["operation"])).code == 0
    assert session(talk).read_bytes() == before
    audit = (talk.root / ".brainsurgeon" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["action"] for line in audit] == ["replace", "undo"]
    assert json.loads(audit[0])["tokensSaved"] == document["tokensSaved"] > 0


@pytest.mark.parametrize("wrapped", [False, True])
def test_operations_from_a_file(talk: Call, tmp_path: Path, wrapped: bool) -> None:
    file = tmp_path / "operations.json"
    operation = {"start": "START_DEBUG_LOG", "end": "END_DEBUG_LOG", "replacement": "[log]"}
    file.write_text(json.dumps({"targets": [operation]} if wrapped else [operation]))
    before = snapshot(talk.root)
    foretold = talk("replace", NAME, "--file", str(file), "--dry-run", "--json").document
    assert foretold["operation"] is None
    assert snapshot(talk.root) == before
    done = talk("replace", NAME, "--file", str(file), "--json").document
    assert done == foretold | {"operation": 1}
    assert words(talk) == "before [log] after"


def test_all_that_is_wrong_is_told_once(talk: Call, tmp_path: Path) -> None:
    file = tmp_path / "operations.json"
    operations = [
        {"start": "START_DEBUG", "end": "END_DEBUG", "replacement": ""},
        {"start": "START_DEBAG", "end": "END", "replacement": ""},
        {"start": "before", "end": " ", "replacement": ""},
    ]
    file.write_text(json.dumps(operations))
    before = session(talk).read_bytes()
    ended = talk("replace", NAME, "--file", str(file))
    assert ended.code == 1
    assert session(talk).read_bytes() == before
    assert ended.err.count("targets[1]: Pattern not found") == 1
    assert ended.err.count("targets[2]: Match too short (7 characters") == 1
    assert 'Most similar: entry e3: "before START_DEBUG' in ended.err
    told = talk("replace", NAME, "--file", str(file), "--json").document
    assert [error["field"] for error in told["errors"]] == ["targets[1]", "targets[2]"]


def test_discard_and_distill(talk: Call) -> None:
    before = session(talk).read_bytes()
    assert "Changed 1 place" in talk("distill", NAME, hash_of(talk, "e3"), "it was made").out
    assert words(talk) == "it was made"
    rest(talk.root)
    hashes = [hash_of(talk, "e3"), hash_of(talk, "e4")]
    document = talk("discard", NAME, *hashes, "--json").document
    assert [one["operation"] for one in document["replacements"]] == [{"hash": h} for h in hashes]
    assert words(talk) == "[content discarded]"
    for _ in range(2):
        rest(talk.root)
        assert talk("undo", NAME).code == 0
    assert session(talk).read_bytes() == before


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        (f"replace {NAME}", 2, "--start, --end, --replacement missing"),
        (f"replace {NAME} --start a --file -", 2, "--file and --start exclude each other"),
        (f"replace {NAME} --file nowhere.json", 2, "'nowhere.json': No such file"),
        (f"discard {NAME}", 2, "missing argument"),
        (f"discard {NAME} xyz", 1, "Invalid hash format"),
        (f"discard {NAME} ffffff", 1, "Hash(es) not found: ffffff"),
        (f"distill {NAME} ffffff", 2, "missing argument"),
        (f"distill {NAME} ffffff x --include-user", 1, "Hash(es) not found: ffffff"),
        ("discard main/zzz ffffff", 1, "there is no"),
    ],
)
def test_what_cannot_be_done_says_why(talk: Call, line: str, code: int, why: str) -> None:
    before = session(talk).read_bytes()
    ended = talk(*line.split())
    assert ended.code == code
    assert why in ended.err
    assert session(talk).read_bytes() == before


def test_what_the_user_protects_stays(talk: Call) -> None:
    assert talk("config", "set", "protected_tools", '["exec"]').code == 0
    ended = talk("discard", NAME, hash_of(talk, "e3"))
    assert ended.code == 1
    assert "'exec' is a protected tool (setting protected_tools)" in ended.err


@pytest.mark.parametrize("size", ["9" * 400, "9" * 30, "-1", "1e300", "true", '"x"', "null"])
def test_a_marker_that_says_any_size_is_in_nobodys_way(bsd: Call, size: str) -> None:
    marker = '{"ref":"0001_user","hash":"sha256:%s","size":%s,"keys":["%s"],"at":""}'
    marker %= "0" * 64, size, "message.content[0].text"
    conversation = Talk()
    conversation.user()
    conversation.says(text("[[extracted-e2]]"))
    raw = conversation.raw.removesuffix(b"}\n") + b',"_extracted":%b}\n' % marker.encode()
    add_session(bsd.root, NAME, raw)
    for command in ("context", "show", "summary", "extract", "verify", "compact"):
        for more in ((), ("--json",)):
            ended = bsd(command, NAME, *more) if command != "verify" else bsd(command, *more)
            assert ended.code in {0, 1, 2}, (command, ended)
            assert "internal error" not in ended.err
    assert bsd("context", NAME).code == 0
