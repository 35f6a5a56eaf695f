"""Copies of sessions that programs make: the stored originals of their lines are found.

The copies look as the real programs make them (`tests/compat`): forks of Claude Code, sessions
that its version 1.0.50 rewrote on resuming, forks of Codex and its migrated threads.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.store.contents import contents_of
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.entry import ends_in_placeholder, is_placeholder
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.session_files import LONG, NAME, Clock, conversation, make_caller, write
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, KINDS
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.codex import codex_line, codex_meta
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw, without_restored

Line = dict[str, Any]
FORK = "11111111-2222-4333-8444-555555555555"
ROLLOUT = f"rollout-2025-09-24T19-00-00-{FORK}"


def lines_of(content: bytes) -> list[Line]:
    return [json.loads(line) for line in content.splitlines()]


def add(home: Home, session: str, lines: list[Line]) -> tuple[SessionName, Path]:
    """Another session of the same agent."""
    path = home.path.with_name(f"{session}.jsonl")
    path.write_bytes(raw(lines))
    set_idle(path)
    return SessionName(home.name.agent, session), path


def claude_code_fork(lines: list[Line]) -> list[Line]:
    """Copy as `claude --resume X --fork-session` does: the same uuids, markers kept."""
    made = []
    for line in lines:
        if "uuid" not in line:
            continue
        copy = {**line, "sessionId": FORK}
        if line["type"] == "user":
            copy["promptId"] = FORK
        else:
            copy["requestSessionId"] = line["sessionId"]
        made.append(copy)
    return made


def claude_code_old_resume(lines: list[Line]) -> list[Line]:
    """Rewrite as version 1.0.50 does when it resumes a session: new ids, and only known members."""
    made: list[Line] = []
    for number, line in enumerate(line for line in lines if "uuid" in line):
        message = dict(line["message"])
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        made.append(
            {
                "parentUuid": f"10000000-0000-4000-8000-{number - 1:012}" if number else None,
                "isSidechain": False,
                "sessionId": FORK,
                "version": "1.0.50",
                "type": line["type"],
                "message": message,
                "uuid": f"10000000-0000-4000-8000-{number:012}",
                "timestamp": f"2026-03-01T10:{number // 60:02}:{number % 60:02}.000Z",
            }
        )
    return made


def codex_fork(lines: list[Line]) -> list[Line]:
    """Copy as `thread/fork` does from a legacy thread: payloads kept, new times, no other
    members.
    """
    time = "2025-10-01T00:00:00.000Z"
    head = codex_meta(forked_from_id=CODEX.session[-36:])
    head["payload"]["id"] = FORK
    return [
        head,
        *({"timestamp": time, "type": one["type"], "payload": one["payload"]} for one in lines),
    ]


COPIES: list[tuple[Kind, str, Callable[[list[Line]], list[Line]]]] = [
    (CLAUDE_CODE, FORK, claude_code_fork),
    (CLAUDE_CODE, FORK, claude_code_old_resume),
    (CODEX, ROLLOUT, codex_fork),
]
IDS = ["claude fork", "claude 1.0.50", "codex fork"]


def extracted(kind: Kind, tmp_path: Path, clock: Clock) -> tuple[Home, Caller, list[Line]]:
    """A session from which everything extractable was extracted, and its original content."""
    home = Home.of(kind, tmp_path, kind.lines())
    original = lines_of(home.path.read_bytes())
    caller = make_caller(home.layout, clock)
    assert caller.extract(home.name, overrides=EVERYTHING).status is Status.EXTRACTED
    set_idle(home.path)
    return home, caller, original


@dataclass(frozen=True)
class Copied:
    """A copy of a fully extracted session, and the copy that a session without bsd would give."""

    kind: Kind
    home: Home
    caller: Caller
    name: SessionName
    path: Path
    original: bytes


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Copied:
    kind, session, copied = request.param
    home, caller, original = extracted(kind, tmp_path, clock)
    name, path = add(home, session, copied(lines_of(home.path.read_bytes())))
    return Copied(kind, home, caller, name, path, raw(copied(original)))


@pytest.mark.parametrize("copy", COPIES, ids=IDS, indirect=True)
def test_a_copy_is_restored_to_the_byte(copy: Copied) -> None:
    home, caller, name, path = copy.home, copy.caller, copy.name, copy.path
    assert b"[[extracted-" in path.read_bytes()
    kinds = {one.kind for one in verify(home.layout).findings}
    assert kinds <= {"unmarked_placeholder"}, "nothing is missing"
    result = performed.restore_all(caller, name)
    assert (result.status, result.unavailable) == (Status.RESTORED, {})
    assert without_restored(path.read_bytes()) == copy.original
    assert copy.kind.reads(path.read_bytes())
    set_idle(path)
    assert verify(home.layout).clean


def codex_fork_of_a_fork(lines: list[Line]) -> list[Line]:
    """Each fork has a header of its own, and then the whole file of its origin."""
    fork = codex_fork(lines)
    head = codex_meta(forked_from_id=FORK)
    head["payload"]["id"] = FORK.replace("1", "2")
    return [head, *({**one, "timestamp": "2025-10-02T00:00:00.000Z"} for one in fork)]


def said_in(kind: Kind, away: list[str]) -> list[Line]:
    """Type and think each of the placeholders after the copied lines."""
    texts = [f"[[extracted-{entry}]]" for entry in away]
    if kind is CODEX:
        said = [{"type": "input_text", "text": text} for text in texts]
        return [
            *(
                codex_line(90_000, "response_item", type="message", role="user", content=[one])
                for one in said
            ),
            *(codex_line(90_001, "event_msg", type="agent_reasoning", text=text) for text in texts),
        ]
    return [
        claude_code_line(9000 + number, "user", [{"type": "text", "text": text}])
        | {"version": "1.0.50", "sessionId": FORK, "timestamp": "2026-03-02T10:00:00.000Z"}
        for number, text in enumerate(texts)
    ]


SPOKEN = [*COPIES, (CODEX, ROLLOUT.replace("1111", "2222"), codex_fork_of_a_fork)]


@pytest.mark.parametrize(("kind", "session", "copied"), SPOKEN, ids=[*IDS, "codex fork of a fork"])
def test_what_is_said_in_a_copy_of_what_was_copied_stays(
    kind: Kind,
    session: str,
    copied: Callable[[list[Line]], list[Line]],
    tmp_path: Path,
    clock: Clock,
) -> None:
    """After the copied lines, only its place distinguishes an entry from a copy."""
    home, caller, original = extracted(kind, tmp_path, clock)
    lean = lines_of(home.path.read_bytes())
    away = [str(ends_in_placeholder(text)) for text in placeholders_in(lean)]
    said = said_in(kind, list(dict.fromkeys(away)))
    name, path = add(home, session, [*copied(lean), *said])
    for _ in range(2):
        verify(home.layout, repair=True, remark=caller.remark)
        set_idle(path)
        assert performed.restore_all(caller, name).unavailable == {}
        set_idle(path)
    assert without_restored(path.read_bytes()) == raw([*copied(original), *said])
    assert verify(home.layout).clean


def test_prompts_without_anything_that_tells_them_apart_come_back_by_their_place(
    tmp_path: Path, clock: Clock
) -> None:
    """Version 1.0.50 gives them new ids and times; only the placeholder is left of them."""
    lines = [
        line | {"message": {**line["message"], "content": f"{number}: {LONG}"}}
        if line.get("message", {}).get("content") == "do it"
        else line
        for number, line in enumerate(CLAUDE_CODE.lines())
    ]
    home = Home.of(CLAUDE_CODE, tmp_path, lines)
    caller = make_caller(home.layout, clock)
    assert caller.extract(home.name, overrides=EVERYTHING).status is Status.EXTRACTED
    lean = lines_of(home.path.read_bytes())
    prompts = [one["uuid"] for one in lean if is_prompt(one)]
    assert len(prompts) == 3
    said = said_in(CLAUDE_CODE, prompts)
    name, path = add(home, FORK, [*claude_code_old_resume(lean), *said])
    for _ in range(2):
        verify(home.layout, repair=True, remark=caller.remark)
        set_idle(path)
        assert performed.restore_all(caller, name).unavailable == {}
        set_idle(path)
    expected = raw([*claude_code_old_resume(lines), *said])
    assert without_restored(path.read_bytes()) == expected


def is_prompt(line: Line) -> bool:
    content = line.get("message", {}).get("content")
    return isinstance(content, str) and is_placeholder(content)


def placeholders_in(tree: Any) -> Iterator[str]:
    """Return all texts in the session that consist only of a placeholder."""
    inside = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, str) and is_placeholder(tree):
        yield tree
    for one in inside:
        yield from placeholders_in(one)


def test_a_fork_that_names_no_origin_keeps_its_placeholders(tmp_path: Path, clock: Clock) -> None:
    """A separate thread, with call ids that some providers repeat in every thread."""
    home, caller, _ = extracted(CODEX, tmp_path, clock)
    lines = codex_fork(lines_of(home.path.read_bytes()))
    del lines[0]["payload"]["forked_from_id"]
    name, path = add(home, ROLLOUT, [lines[0], *lines[2:]])
    before = path.read_bytes()
    assert performed.restore_all(caller, name).status is Status.UNCHANGED
    verify(home.layout, repair=True, remark=caller.remark)
    assert path.read_bytes() == before


@pytest.mark.parametrize("copy", COPIES, ids=IDS, indirect=True)
def test_it_is_so_when_the_first_session_lies_in_the_trash_and_when_it_is_gone_for_good(
    copy: Copied,
) -> None:
    home, caller, name, path = copy.home, copy.caller, copy.name, copy.path
    store, trash = home.layout.store_dir(home.name), home.layout.trash
    trash.mkdir(mode=0o700)
    # bsd may not delete Codex's own threads; their stores may be moved all the same.
    at = store.rename(trash / f"{store.name}_extracted_20260301T000000.000Z")
    home.path.unlink()
    entry = next(
        one for one in performed.context(caller, name)["entries"] if one["type"] == "tool_result"
    )
    assert performed.extracted_content(caller, name, f"#{entry['index']}")["content"]
    at.rename(store)
    contents_of(home.layout).changed()
    if copy.kind is CLAUDE_CODE:
        Trash(home.layout, "14d", budget=RetryBudget(wait=0.0, quiet=0.0)).delete(
            home.name, permanent=True
        )
        assert not store.exists()
    result = performed.restore_all(caller, name)
    assert result.unavailable == {}
    assert without_restored(path.read_bytes()) == copy.original


@pytest.mark.parametrize("copy", COPIES[1:], ids=IDS[1:], indirect=True)
def test_lost_markers_are_put_back(copy: Copied) -> None:
    home, caller, name, path = copy.home, copy.caller, copy.name, copy.path
    found = verify(home.layout)
    assert found.unmarked > 0
    assert not found.clean
    assert {one.hint for one in found.findings} == {"bsd verify --repair"}
    before = path.read_bytes()
    repaired = verify(home.layout, repair=True, remark=caller.remark)
    assert repaired.clean
    assert {one.kind for one in repaired.findings if one.repaired} == {"unmarked_placeholder"}
    set_idle(path)
    for was, now in zip(lines_of(before), lines_of(path.read_bytes()), strict=True):
        now.pop("_extracted", None)
        assert was == now
    again = verify(home.layout)
    assert (again.clean, again.unmarked) == (True, 0)
    assert performed.restore_all(caller, name).unavailable == {}
    assert without_restored(path.read_bytes()) == copy.original


@pytest.mark.parametrize("spoilt", [None, "x", {}, {"keys": []}, []])
def test_a_marker_that_says_nothing_is_lost_too(
    spoilt: object, tmp_path: Path, clock: Clock
) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    lines = lines_of(home.path.read_bytes())
    for line in lines:
        if "_extracted" in line:
            line["_extracted"] = spoilt
    home.path.write_bytes(raw(lines))
    set_idle(home.path)
    assert not verify(home.layout).clean
    assert verify(home.layout, repair=True, remark=caller.remark).clean
    set_idle(home.path)
    again = verify(home.layout)
    assert (again.clean, again.unmarked) == (True, 0)
    assert performed.restore_all(caller, home.name).unavailable == {}
    assert without_restored(home.path.read_bytes()) == raw(original)


def test_markers_cannot_be_put_back_into_a_session_in_use(tmp_path: Path, clock: Clock) -> None:
    home, _, _ = extracted(CLAUDE_CODE, tmp_path, clock)
    _, path = add(home, FORK, claude_code_old_resume(lines_of(home.path.read_bytes())))
    os.utime(path)
    busy = make_caller(home.layout, clock, wait=0.0)
    found = verify(home.layout, repair=True, remark=busy.remark)
    assert not found.clean
    assert all(one.hint and "in use" in one.hint for one in found.findings)


def test_one_entry_of_a_copy_by_the_id_in_its_placeholder(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    name, path = add(home, FORK, claude_code_old_resume(lines_of(home.path.read_bytes())))
    answer = performed.restore(caller, name, original[4]["uuid"])
    assert answer["restored"] is True
    assert answer["entry_id"] == "10000000-0000-4000-8000-000000000003"
    assert (
        lines_of(path.read_bytes())[3]["message"]["content"][0]["content"]
        == (original[4]["message"]["content"][0]["content"])
    )


def test_what_leaves_a_copy_anew_joins_what_is_away(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    lines = claude_code_old_resume(lines_of(home.path.read_bytes()))
    lines[3]["message"]["content"].append({"type": "tool_result", "content": LONG})
    name, path = add(home, FORK, lines)
    assert caller.extract(name, overrides=EVERYTHING).values == 1
    (marked,) = [one for one in lines_of(path.read_bytes()) if "_extracted" in one]
    assert len(marked["_extracted"]["keys"]) == 2, "one marker names both"
    set_idle(path)
    assert performed.restore_all(caller, name).unavailable == {}
    expected = claude_code_old_resume(original)
    expected[3]["message"]["content"].append({"type": "tool_result", "content": LONG})
    assert without_restored(path.read_bytes()) == raw(expected)


def test_who_only_speaks_of_a_placeholder_keeps_his_words(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    away = original[4]["uuid"]
    quoting = [*lines_of(home.path.read_bytes())]
    quoting[1]["message"]["content"] = f"[[extracted-{away}]]"
    home.path.write_bytes(raw(quoting))
    set_idle(home.path)
    assert performed.restore_all(caller, home.name).unavailable == {}
    assert lines_of(home.path.read_bytes())[1]["message"]["content"] == f"[[extracted-{away}]]"


def test_a_hash_alone_opens_nothing(layout: Layout, caller: Caller) -> None:
    """A made-up line names content that another session stores."""
    write(layout, conversation(1))
    caller.extract(NAME)
    (marked,) = [one for one in lines_of(_bytes(layout, NAME)) if "_extracted" in one]
    other = conversation(1)
    other[2] = {**other[2], "id": "mine", "_extracted": marked["_extracted"]}
    other[2]["message"] = {
        **other[2]["message"],
        "content": [{"type": "text", "text": "[[extracted-mine]]"}],
    }
    spy = SessionName("main", "spy")
    path = write(layout, other, spy)
    answer = performed.restore(caller, spy, "mine")
    assert answer["restored"] is False
    assert answer["unavailable"] == {
        "message.content[0].text": "[Content unavailable - extracted file is of another entry]"
    }
    assert performed.extracted_content(caller, spy, "mine")["content"] == {}
    assert "foreign_file" in {one.kind for one in verify(layout).findings}
    assert LONG not in path.read_text()


def _bytes(layout: Layout, name: SessionName) -> bytes:
    return layout.session_file(name).read_bytes()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_session_with_another_name_or_in_another_directory(
    kind: Kind, tmp_path: Path, clock: Clock
) -> None:
    home, caller, original = extracted(kind, tmp_path, clock)
    moved = home.other_place()
    moved.mkdir(parents=True)
    renamed = home.path.rename(moved / home.path.name)
    set_idle(renamed)
    (found,) = (agent for agent, path in home.layout.session_dirs() if path == moved)
    name = SessionName(found, home.name.session)
    (told,) = verify(home.layout).findings
    assert (told.kind, told.harmless, str(name) in told.message) == ("no_transcript", True, True)
    assert performed.restore_all(caller, name).unavailable == {}
    assert without_restored(renamed.read_bytes()) == raw(original)


# --- a file that is read but not edited ---


@pytest.fixture
def paginated(tmp_path: Path, clock: Clock) -> tuple[Home, Caller, list[Line]]:
    """Rewrite a thread as `codex migrate-rollouts --apply` does."""
    home, caller, original = extracted(CODEX, tmp_path, clock)
    lines = lines_of(home.path.read_bytes())
    for number, line in enumerate(lines):
        line.pop("_extracted", None)
        line["ordinal"] = number
    lines[0]["payload"]["history_mode"] = "paginated"
    home.path.write_bytes(raw(lines))
    set_idle(home.path)
    return home, caller, original


def test_a_migrated_thread_is_counted_and_its_content_shown(
    paginated: tuple[Home, Caller, list[Line]],
) -> None:
    home, caller, original = paginated
    found = verify(home.layout)
    assert (found.clean, found.expired) == (True, 0)
    assert found.placeholders == found.unmarked > 0
    before = home.path.read_bytes()
    result = performed.restore_all(caller, home.name)
    assert (result.status, home.path.read_bytes()) == (Status.UNCHANGED, before)
    assert len(result.unavailable) == found.placeholders
    assert all("--to FILE" in why for why in result.unavailable.values())
    (call,) = [one for one in original if one["payload"].get("call_id") == "call_1"][-1:]
    entry = next(
        view.id
        for view in performed.entries(caller, home.name)
        if view.type == "tool_result" and view.result_of == "call_1"
    )
    content = performed.extracted_content(caller, home.name, str(entry))["content"]
    assert content == {"payload.output": call["payload"]["output"]}
    (shown,) = performed.show(caller, home.name, entry=str(entry), full=True)
    assert json.loads(shown["line"])["payload"]["call_id"] == "call_1"


def test_a_migrated_thread_is_copied_whole(
    paginated: tuple[Home, Caller, list[Line]],
) -> None:
    home, caller, original = paginated
    before, copy = home.path.read_bytes(), bytearray()
    values, missing = performed.restored_copy(caller, home.name, copy.extend)
    assert (values > 0, missing) == (True, {})
    for number, line in enumerate(original):
        line["ordinal"] = number
    original[0]["payload"]["history_mode"] = "paginated"
    assert lines_of(bytes(copy)) == original
    assert home.path.read_bytes() == before
    shutil.rmtree(home.layout.extracted)
    copy.clear()
    values, missing = performed.restored_copy(caller, home.name, copy.extend)
    assert values == 0
    assert bytes(copy) == before


def test_what_is_stored_nowhere_is_told_of_a_placeholder_without_marker(
    tmp_path: Path, clock: Clock
) -> None:
    home, caller, _ = extracted(CLAUDE_CODE, tmp_path, clock)
    name, path = add(home, FORK, claude_code_old_resume(lines_of(home.path.read_bytes())))
    shutil.rmtree(home.layout.extracted)
    home.path.unlink()
    before = path.read_bytes()
    found = verify(home.layout)
    assert not found.clean
    assert {one.kind for one in found.findings} == {"unmarked_placeholder"}
    assert all("no store of this root" in one.message for one in found.findings)
    assert performed.restore_all(caller, name).status is Status.UNCHANGED
    assert path.read_bytes() == before


def test_a_lost_file_is_made_again_of_what_a_copy_keeps(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    fork, _ = add(home, FORK, claude_code_fork(original))
    assert caller.extract(fork, overrides=EVERYTHING).status is Status.EXTRACTED
    shutil.rmtree(home.layout.store_dir(home.name))
    contents_of(home.layout).changed()
    assert verify(home.layout).clean
    assert performed.restore_all(caller, home.name).unavailable == {}
    assert without_restored(home.path.read_bytes()) == raw(original)


def test_of_a_copy_that_says_something_else_nothing_is_made(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    other = json.loads(json.dumps(claude_code_fork(original)).replace("long old text", "words"))
    fork, _ = add(home, FORK, other)
    assert caller.extract(fork, overrides=EVERYTHING).status is Status.EXTRACTED
    shutil.rmtree(home.layout.store_dir(home.name))
    contents_of(home.layout).changed()
    before = home.path.read_bytes()
    found = performed.restore_all(caller, home.name)
    # Pictures are the same in both, so their lines can be rebuilt.
    assert found.unavailable
    assert set(found.unavailable.values()) == {"[Content unavailable - extracted file missing]"}
    assert b"words" not in home.path.read_bytes()
    assert home.path.read_bytes().count(b"[[extracted-") < before.count(b"[[extracted-")


# --- the index of the stores ---


def test_a_damaged_index_of_the_stores_is_made_anew(tmp_path: Path, clock: Clock) -> None:
    home, caller, original = extracted(CLAUDE_CODE, tmp_path, clock)
    index = home.layout.own / "contents.db"
    name, path = add(home, FORK, claude_code_fork(lines_of(home.path.read_bytes())))
    index.write_bytes(b"no database at all" * 100)
    assert performed.restore_all(caller, name).unavailable == {}
    assert without_restored(path.read_bytes()) == raw(claude_code_fork(original))
    assert index.stat().st_mode & 0o777 == 0o600


def test_stores_without_their_index_files_are_found_too(tmp_path: Path, clock: Clock) -> None:
    home, caller, _ = extracted(CLAUDE_CODE, tmp_path, clock)
    (home.layout.store_dir(home.name) / "index.json").unlink()
    name, _ = add(home, FORK, claude_code_fork(lines_of(home.path.read_bytes())))
    assert performed.restore_all(caller, name).unavailable == {}


def test_a_file_that_lies_about_its_content_is_not_taken(tmp_path: Path, clock: Clock) -> None:
    home, caller, _ = extracted(CLAUDE_CODE, tmp_path, clock)
    name, _ = add(home, FORK, claude_code_fork(lines_of(home.path.read_bytes())))
    store = SessionStore(home.layout, home.name)
    for ref in store.refs():
        store.file(ref).write_bytes(b'{"uuid":"x"}\n')
    answers = performed.restore_all(caller, name).unavailable
    assert answers
    assert set(answers.values()) == {"[Content unavailable - extracted file missing]"}


def test_looking_into_a_root_where_no_bsd_has_worked_leaves_no_traces(layout: Layout) -> None:
    write(layout, conversation(1))
    layout.extracted.mkdir()
    before = sorted(layout.root.rglob("*"))
    assert SessionStore(layout, NAME).of_entry("e1") == []
    assert sorted(layout.root.rglob("*")) == before


def test_a_link_among_the_stores_is_not_followed(
    layout: Layout, caller: Caller, tmp_path: Path
) -> None:
    path = write(layout, conversation(1))
    caller.extract(NAME)
    away = layout.store_dir(NAME).rename(tmp_path / "elsewhere")
    (layout.extracted / "main_other").symlink_to(away)
    set_idle(path)
    assert performed.restore(caller, NAME, "e1")["restored"] is False
