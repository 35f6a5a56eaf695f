"""Gemini CLI's lines: messages that later lines replace, and copies of their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.transcripts.agents.format import NotOurs, Rank, Turn
from bsd.transcripts.agents.gemini import GEMINI, KIND, GeminiProject
from bsd.transcripts.agents.program import Process
from tests.actions import performed
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import GEMINI as SESSION
from tests.transcripts.agents.sources.gemini import (
    SESSION_ID,
    gemini_call,
    gemini_copy,
    gemini_header,
    gemini_line,
    gemini_lines,
    gemini_reads,
    gemini_turn,
)
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, Home, raw, without_restored

_DISPLAY = EVERYTHING | {"scope": "display"}


def resumed(content: bytes, turns: int = 1, number: int = 40) -> bytes:
    """The lines that Gemini CLI appends when it resumes a session: a copy of it, and new turns."""
    messages = gemini_reads(content)
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if calls := message.get("toolCalls"):  # it repeats the calls, and the results
            call = {key: calls[0][key] for key in ("id", "name", "args")}
            messages[place] = message | {"content": [{"functionCall": call}]}
            result = gemini_line(0, "user", calls[0]["result"])
            messages.insert(place + 1, result | {"id": f"{message['id']}_response"})
    new = [line for turn in range(turns) for line in gemini_turn(number + 1 + turn * 9)]
    return raw([gemini_copy(number, messages), *new])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    content = raw(gemini_lines())
    home = Home.of(SESSION, tmp_path, gemini_lines())
    home.path.write_bytes(content + resumed(content))
    _age(home)
    return home


def _age(home: Home) -> None:
    set_idle(home.path)


def test_a_copy_of_all_messages_supersedes_the_lines_before_it(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    old = home.path.read_bytes()
    assert caller.extract(home.name, overrides=_DISPLAY).values > 0
    new = home.path.read_bytes()
    reads = gemini_reads(new)
    for message in reads:
        message.pop("_extracted", None)
    for message, was in zip(reads, gemini_reads(old), strict=True):
        for call, other in zip(message.get("toolCalls", ()), was.get("toolCalls", ()), strict=True):
            call["resultDisplay"] = other["resultDisplay"]
        assert message == was
    copy = next(n for n, line in enumerate(new.splitlines()) if b'"messages"' in line and n > 1)
    assert LONG.encode() not in b"".join(
        line for line in new.splitlines()[:copy] if b'"thoughts"' not in line
    )
    assert performed.restore_all(caller, home.name).status is Status.RESTORED
    assert without_restored(home.path.read_bytes()) == old


def test_values_come_back_where_the_program_has_copied_their_placeholders(
    home: Home, clock: Clock
) -> None:
    caller = make_caller(home.layout, clock)
    whole = home.path.read_bytes() + resumed(home.path.read_bytes(), number=60)
    caller.extract(home.name, overrides=EVERYTHING)
    lean = home.path.read_bytes()
    home.path.write_bytes(lean + resumed(lean, number=60))
    _age(home)
    assert home.path.read_bytes().splitlines()[-10].count(b"[[extracted-") > 10
    assert verify(home.layout).clean
    caller.extract(home.name, overrides=EVERYTHING)  # what is whole in the copy leaves it too
    assert verify(home.layout).clean
    assert performed.restore_all(caller, home.name).unavailable == {}
    assert b"[[extracted-" not in home.path.read_bytes()
    assert b'"_extracted"' not in home.path.read_bytes()
    assert gemini_reads(without_restored(home.path.read_bytes())) == gemini_reads(whole)


def test_an_entry_is_restored_in_all_copies_of_its_values(home: Home, clock: Clock) -> None:
    caller = make_caller(home.layout, clock)
    caller.extract(home.name, overrides=EVERYTHING)
    lean = home.path.read_bytes()
    home.path.write_bytes(lean + resumed(lean, number=60))
    _age(home)
    name = next(
        row["id"] for row in performed.context(caller, home.name)["entries"] if row["extracted"]
    )
    mentioned = f"[[extracted-{name}]]".encode()
    others = home.path.read_bytes().count(b"[[extracted-") - home.path.read_bytes().count(mentioned)
    assert performed.restore(caller, home.name, name)["entry_id"] == name
    assert mentioned not in home.path.read_bytes()
    assert home.path.read_bytes().count(b"[[extracted-") == others


def test_verify_misses_the_originals_of_copied_values_and_takes_a_typed_placeholder_for_text(
    home: Home, clock: Clock
) -> None:
    make_caller(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    lean = home.path.read_bytes()
    typed = raw([gemini_line(90, "user", "[[extracted-mine]]")])
    home.path.write_bytes(lean + resumed(lean, number=60) + typed)
    _age(home)
    assert verify(home.layout).clean
    for path in home.layout.store_dir(home.name).glob("*.json"):
        path.unlink()
    found = verify(home.layout).findings
    copied = [one for one in found if one.kind == "unmarked_placeholder"]
    assert len(copied) > 10
    assert all("$set.messages" in one.message for one in copied)


def test_a_foreign_line_gets_nothing_by_a_placeholder(home: Home, clock: Clock) -> None:
    """The id of the call must be that of the original."""
    caller = make_caller(home.layout, clock)
    caller.extract(home.name, overrides=EVERYTHING)
    copy = next(line for line in home.path.read_bytes().splitlines() if b"functionResponse" in line)
    planted = json.loads(copy.replace(b'"call_', b'"other_'))
    planted = {key: value for key, value in planted.items() if key != "_extracted"}
    line = raw([gemini_copy(70, [{**planted, "id": "mine"}])])
    with home.path.open("ab") as file:
        file.write(line)
    _age(home)
    performed.restore_all(caller, home.name)
    assert home.path.read_bytes().endswith(line)


def test_lines_that_were_rewound_are_never_read_again(tmp_path: Path, clock: Clock) -> None:
    first = gemini_turn(40)
    lines = [*gemini_lines(), *first, {"$rewindTo": first[0]["id"]}, *gemini_turn(50)]
    home = Home.of(SESSION, tmp_path, lines)
    caller = make_caller(home.layout, clock)
    caller.extract(home.name, overrides=_DISPLAY)
    content = home.path.read_bytes().splitlines()
    rewound = len(gemini_lines()), len(gemini_lines()) + len(first)
    assert b'"_extracted"' in content[rewound[0] + 4]
    outputs = [n for n, line in enumerate(content) if line.count(LONG.encode())]
    assert any(n < rewound[0] for n in outputs)
    assert [n for n in outputs if rewound[0] <= n < rewound[1] and b'"user"' in content[n]] == []


@pytest.mark.parametrize(
    ("line", "kind", "turn"),
    [
        (gemini_line(1, "user", [{"text": "do it"}]), "user", Turn.STARTS),
        (gemini_line(1, "user", "/help"), "user", Turn.NONE),
        (gemini_line(1, "user", "<session_context>…"), "user", Turn.NONE),
        (gemini_call(1, "ls", {})[0], "assistant", Turn.OPEN),
        (gemini_call(1, "ls", {})[1], "assistant", Turn.OPEN),
        (gemini_call(1, "ls", {})[2], "tool_result", Turn.OPEN),
        (gemini_line(1, "gemini", "Yes."), "assistant", Turn.CLOSES),
        (gemini_line(1, "info", "Updated."), "info", Turn.NONE),
    ],
)
def test_turns(line: dict[str, Any], kind: str, turn: Turn) -> None:
    info = GEMINI.info(line)
    assert (info.kind, info.turn) == (kind, turn)


def test_versions_of_a_message_have_names_of_their_own() -> None:
    asks, answered, _ = gemini_call(1, "ls", {})
    one, other = GEMINI.info(asks), GEMINI.info(answered)
    assert one.version_of == other.version_of
    assert (one.id, other.id) == (asks["id"], f"{asks['id']}~1")
    for name, line in ((one.id, asks), (other.id, answered)):
        found = GEMINI.made_of(str(name))
        assert found
        assert found.search(raw([line]))
    copy = gemini_copy(3, [])
    found = GEMINI.made_of(str(GEMINI.info(copy).id))
    assert found
    assert found.search(raw([copy]))


def test_thoughts_signed_parts_and_own_texts_stay() -> None:
    signed = {
        "functionCall": {"id": "c", "name": "n", "args": {"x": LONG}},
        "thoughtSignature": "s",
    }
    parts = [{"text": LONG, "thought": True}, signed, {"text": LONG}]
    values = GEMINI.values(gemini_line(1, "gemini", parts))
    assert [(value.path[1], value.fixed) for value in values] == [(0, True), (2, False)]
    for text in ("/memory show " + LONG, "<session_context>" + LONG):
        assert all(value.fixed for value in GEMINI.values(gemini_line(1, "user", text)))


def test_title_directory_and_usage() -> None:
    lines = gemini_lines()
    assert GEMINI.directory(lines[1]) == "/home/me/project"
    asked = GEMINI.title(lines[2])
    assert asked
    assert (asked.text, asked.rank) == ("do it", Rank.PROMPT)
    summed = GEMINI.title({"$set": {"summary": "About it"}})
    assert summed
    assert (summed.text, summed.rank) == ("About it", Rank.MADE)
    line = gemini_line(1, "gemini", "", model="m", tokens=_tokens())
    cache = GEMINI.info(line).cache
    assert cache
    assert cache.in_use
    assert cache.usage == (60, 40, 0, 30)


def _tokens() -> dict[str, int]:
    return {"input": 100, "output": 20, "cached": 40, "thoughts": 10, "tool": 0, "total": 130}


def test_forms_of_other_versions_are_known_and_left_alone(tmp_path: Path) -> None:
    project = GeminiProject(tmp_path, tmp_path / "p" / "chats")
    for lines in (
        [{"sessionId": SESSION_ID}],
        [gemini_header() | {"messages": []}],
        [gemini_header(), {"id": "x", "kind": "user"}],
    ):
        found = project.detect([raw([line]) for line in lines])
        assert isinstance(found, NotOurs)
        assert (found.is_unknown_form, found.reads) == (True, GEMINI)
    other = project.detect([b'{"type":"session"}\n'])
    assert isinstance(other, NotOurs)
    assert (other.is_unknown_form, other.reads) == (False, None)


def test_retention_of_the_program(tmp_path: Path) -> None:
    tmp = tmp_path / ".gemini" / "tmp"
    tmp.mkdir(parents=True)
    project = GeminiProject(tmp, tmp / "p" / "chats")
    assert project.kept_for_seconds == 30 * 86_400
    settings = tmp.parent / "settings.json"
    for rule, kept in (
        ({"maxAge": "2w"}, 14 * 86_400),
        ({"enabled": False}, None),
        ({"maxAge": "soon"}, 30 * 86_400),
    ):
        settings.write_text(json.dumps({"general": {"sessionRetention": rule}}))
        assert project.kept_for_seconds == kept
        assert (project.deletes is None) == (kept is None)


def test_files_of_a_session(home: Home) -> None:
    project = home.path.parents[1]
    own = [
        project / "logs" / f"session-{SESSION_ID}.jsonl",
        project / "tool-outputs" / f"session-{SESSION_ID}" / "a.txt",
        project / SESSION_ID / "plans" / "b.md",
    ]
    for path in (*own, project / "tool-outputs" / "session-other" / "c.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    program = KIND.program(home.source, home.path.parent)
    assert sorted(program.belongings(home.name.session)) == sorted(own)
    (project / ".project_root").write_text("/home/me/my project")
    assert program.resume_command(home.name.session, None) == (
        f"cd '/home/me/my project' && gemini --resume {SESSION_ID}"
    )
    below = home.path.parent / SESSION_ID
    below.mkdir()
    parts = KIND.program(home.source, below)
    assert parts.part_of == home.path
    assert parts.is_session_file("4f2a.jsonl")


def test_a_process_has_the_sessions_of_its_directory_at_work(home: Home) -> None:
    (home.path.parents[1] / ".project_root").write_text(str(home.layout.root))
    (home.path.with_name(f"session-2026-01-01T00-00-{SESSION_ID[:8]}.jsonl")).write_bytes(b"")
    begun = home.path.stat().st_mtime
    script = (
        "node",
        "--max-old-space-size=4096",
        "/x/node_modules/@google/gemini-cli/bundle/gemini.js",
    )
    home.path.touch()

    def at_work(argv: tuple[str, ...], cwd: Path) -> list[Path]:
        return list(KIND.at_work(home.source, Process(1, begun=begun, cwd=cwd, argv=argv)))

    assert len(at_work(script, home.layout.root)) == 1
    assert at_work(("gemini",), home.layout.root)
    assert at_work(("node", "server.js"), home.layout.root) == []
    assert at_work(script, home.source) == []
