"""Made-up new versions of each program's sessions: recognised, left alone, and told."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.errors import NotRecognised, UnknownForm
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.unknown_forms import LEAST_BYTES, look, unrecognised_files
from bsd.planning.result import Status
from bsd.transcripts.agents.unknown_forms import binds
from tests.actions import performed
from tests.maintenance.keeping import keep
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Clock, make_caller, sample
from tests.transcripts.agents.sources import KINDS
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, away, raw

Line = dict[str, Any]

# The member of a line that states the version, by program: where it is, and an unknown version.
_VERSIONS: dict[str, tuple[Callable[[Line], Line | None], str, Any]] = {
    "claude-code": (lambda line: line if "version" in line else None, "version", "3.0.1"),
    "codex": (
        lambda line: line["payload"] if line["type"] == "session_meta" else None,
        "cli_version",
        "1.0.0",
    ),
    "copilot": (
        lambda line: line["data"] if line["type"] == "session.start" else None,
        "version",
        2,
    ),
    "gemini": (lambda line: line if "projectHash" in line else None, "projectHash", None),
    "oh-my-pi": (lambda line: line if line["type"] == "session" else None, "version", 4),
    "pi": (lambda line: line if line["type"] == "session" else None, "version", 4),
    "qwen": (lambda line: line if "version" in line else None, "version", "1.0.0"),
}
_STATES_IT_IN_EACH_LINE = ("claude-code", "qwen")
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])


@pytest.fixture(params=KINDS, ids=[kind.kind for kind in KINDS])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home.of(request.param, tmp_path, request.param.lines())


def changed(lines: list[Line], kind: str) -> list[Line]:
    """The same lines, as a program of an unknown version would write them."""
    holder_of, key, value = _VERSIONS[kind]
    lines = copy.deepcopy(lines)
    for line in lines:
        if (holder := holder_of(line)) is not None:
            holder[key] = value
    return lines


def rewrite(home: Home, lines: list[Line]) -> bytes:
    home.path.write_bytes(raw(lines))
    set_idle(home.path)
    return home.path.read_bytes()


def check_left_alone(home: Home, clock: Clock) -> None:
    """No action changes the session, and each says that its form is unknown."""
    caller, old = make_caller(home.layout, clock), home.path.read_bytes()
    for by_hand in (False, True):
        result = caller.extract(home.name, by_hand=by_hand, overrides=EVERYTHING)
        assert (result.status, result.error) == (Status.LEFT_ALONE, UnknownForm)
        assert "unknown" in (result.reason or "")
        assert "pip install -U brainsurgeond" in (result.hint or "")
    result = performed.restore_all(caller, home.name)
    assert (result.status, result.error) == (Status.LEFT_ALONE, UnknownForm)
    assert home.path.read_bytes() == old


def test_a_header_of_an_unknown_version(home: Home, clock: Clock) -> None:
    old = rewrite(home, changed(home.kind.lines(), home.kind.kind))
    check_left_alone(home, clock)
    assert home.path.read_bytes() == old
    [told] = look(home.layout, clock.now())
    assert "1 session has a form that bsd does not know" in str(told)
    assert str(home.name) in str(told)


def test_a_record_of_a_new_type_stays_byte_for_byte(home: Home, clock: Clock) -> None:
    text = b"text " * 1000
    new = b'{"type": "brandNew",  "id":"n1", "timestamp":"2026-11-27T00:00:00Z",'
    new += b'"data":{"x":"%b"},"payload":{"x":"%b"}}\n' % (text, text)
    lines = home.path.read_bytes().splitlines(keepends=True)
    home.path.write_bytes(b"".join((*lines[:-1], new, lines[-1])))
    set_idle(home.path)
    if home.kind.kind == "qwen":  # each line of Qwen Code is part of the conversation
        check_left_alone(home, clock)
        return
    old = home.path.read_bytes()
    caller = make_caller(home.layout, clock)
    result = caller.extract(home.name, overrides=EVERYTHING)
    assert (result.status, result.reason) == (Status.EXTRACTED, None)
    assert away(old, home.path.read_bytes()) > 0
    assert new in home.path.read_bytes()


@pytest.mark.parametrize("key", ["lineHash", "checksum", "byteLength"])
def test_a_member_that_may_bind_a_line(home: Home, clock: Clock, key: str) -> None:
    lines = home.kind.lines()
    for line in lines[1:]:
        line[key] = "a1"
    rewrite(home, lines)
    check_left_alone(home, clock)


def test_a_program_that_is_updated_during_a_session(home: Home, clock: Clock) -> None:
    """Its first lines are known, and values have left them, when a new version continues it."""
    caller = make_caller(home.layout, clock)
    assert caller.extract(home.name, overrides=EVERYTHING).status is Status.EXTRACTED
    last = copy.deepcopy(home.kind.lines()[-1])
    if home.kind.kind in _STATES_IT_IN_EACH_LINE:
        [last] = changed([last], home.kind.kind)
    else:
        last["prevHash"] = "a1"
    with home.path.open("ab") as file:
        file.write(raw([last]))
    set_idle(home.path)
    check_left_alone(home, clock)
    # Far from both ends, such a line is found by the extraction, which reads all lines.
    known = copy.deepcopy(home.kind.lines()[-1])
    with home.path.open("ab") as file:
        file.write(raw([known]) * (1 + (40 << 10) // len(raw([known]))))
    set_idle(home.path)
    result = caller.extract(home.name, overrides=EVERYTHING)
    assert (result.status, result.error) == (Status.LEFT_ALONE, UnknownForm)


@pytest.mark.parametrize("change", ["version", "member"])
def test_sessions_of_the_root(tmp_path: Path, clock: Clock, change: str) -> None:
    for name, lines in (("main/message", sample(4)), ("main/flat", b"".join(_flat()))):
        if change == "version" and name == "main/flat":
            continue  # flat entries state none
        header, *others = lines.splitlines(keepends=True)
        if change == "version":
            header = header.replace(b'"version":3', b'"version":4')
        else:
            others = [b'{"crc32":"0a",' + line.removeprefix(b"{") for line in others]
        path = add_session(tmp_path / "root", name, b"".join((header, *others)))
        set_idle(path)
        home = Home(KINDS[0], Layout(tmp_path / "root"), SessionName.parse(name), path)
        check_left_alone(home, clock)


def _flat() -> list[bytes]:
    entry = {"type": "tool_result", "output": "long " * 500}
    return [json.dumps({"__id": f"e{n}", **entry}).encode() + b"\n" for n in range(20)]


def test_the_archive_has_copies_of_sessions_in_an_unknown_form(home: Home, clock: Clock) -> None:
    rewrite(home, changed(home.kind.lines(), home.kind.kind))
    set_idle(home.path, 2 * 86_400)
    assert keep(home.layout, clock).sessions == 1


# --- files that grow without a session that bsd recognises ---


def grown(home: Home, name: str) -> Path:
    path = home.path.with_name(name)
    path.write_bytes(b'{"kind":"turn","text":"..."}\n' * (1 + LEAST_BYTES // 20))
    return path


def test_files_that_grow_under_another_name_are_told(home: Home, clock: Clock) -> None:
    now, [source] = home.path.stat().st_mtime + 90_000, home.layout.sources

    def told() -> str:
        return str(unrecognised_files(home.layout, source, now, lambda _: True))

    assert told() == "None"
    path = grown(home, "sessions.db")
    os.utime(path, (now - 60, now - 60))
    assert "1 file grew during the last day" in told()
    os.utime(path, (now - 90_000, now - 90_000))
    assert told() == "None"
    os.utime(path, (now - 60, now - 60))
    os.utime(home.path, (now - 600, now - 600))  # a session that bsd recognises grew too
    assert told() == "None"


@each_kind
def test_a_session_without_a_known_message_is_not_recognised(
    kind: Kind, tmp_path: Path, clock: Clock
) -> None:
    home = Home.of(kind, tmp_path, [{"kind": "turn", "text": "long " * 100}] * 400)
    result = make_caller(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    assert result.error is NotRecognised
    [told] = look(home.layout, home.path.stat().st_mtime + 60)
    assert "bsd recognises no session in them" in str(told)


def test_names_that_may_bind_a_line() -> None:
    binding = "hash lineHash prev_hash checksum sha256 prevSHA256 crc32 contentDigest byteLength"
    binding += " line_offset integrity hmac signature md5 blake3"
    assert all(map(binds, binding.split()))
    others = "id seq ordinal version metadata hashtag shallow gitBranch timestamp uuid message mode"
    assert not any(map(binds, others.split()))


def test_recorded_sessions_have_no_member_that_may_bind_a_line(shared_data: Path) -> None:
    for path in shared_data.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            assert not any(map(binds, json.loads(line))), path
