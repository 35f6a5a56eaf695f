"""A placeholder in a written text is plain text: it gives no access, in any session or format.

Only copies of entries get their content back; `copying_programs` shows how copies look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance import catalog
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.contents import contents_of
from bsd.transcripts.agents.programs import layout_of
from tests.actions import performed
from tests.actions.performed import Caller
from tests.sessions.copying_programs import PROGRAMS, Json, Lines, Program, lines_of, written
from tests.transcripts.agents.sources.claude_code import claude_code_line
from tests.transcripts.agents.sources.codex import codex_line
from tests.transcripts.agents.sources.tree import EVERYTHING, LONG, without_restored

ORIGIN, OTHER = (UUID(int=number, version=4) for number in (1, 2))
OLD_CLAUDE = "1.0.50"  # it rewrites sessions that it resumes, under new ids


@dataclass(frozen=True)
class Place:
    """A root beside one program, and a fully extracted session of that program."""

    program: Program
    layout: Layout
    top: Path
    original: Lines = field(repr=False)
    away: list[str]  # the ids of its entries that have extracted values

    @property
    def directory(self) -> Path:
        return self.top / self.program.directory

    @property
    def origin(self) -> Path:
        return self.directory / self.program.file_name(ORIGIN)

    @property
    def caller(self) -> Caller:
        def later() -> float:
            return time.time() + 700.0

        budget = RetryBudget(wait=0.0, clock=later)
        config = ConfigService(self.layout.config_file)
        return Caller(layout=self.layout, config=config, actor="test", budget=budget)

    def name(self, path: Path) -> SessionName:
        (found,) = (n for n in catalog.names(self.layout) if n.session == path.stem)
        return found

    def add(self, lines: Lines) -> Path:
        path = self.directory / self.program.file_name(OTHER)
        path.write_bytes(written(lines))
        return path

    def do_everything_to(self, name: SessionName) -> None:
        """Do everything that may bring content into a session or take content from it."""
        all_that_is_long = {**EVERYTHING, "min_value_length": 400}
        self.caller.extract(name, by_hand=True, overrides=all_that_is_long)
        contents_of(self.layout).changed()
        for leaving in (False, True):
            assert performed.restore_all(self.caller, name, leaving=leaving).unavailable == {}
        verify(self.layout, repair=True, wait=0.0, remark=self.caller.remark)
        assert performed.restore_all(self.caller, name).unavailable == {}


def make(program: Program, top: Path) -> Place:
    root = top / "root"
    (root / "agents").mkdir(parents=True)
    sources = []
    if program.source:
        sources = [SourceSettings(kind=program.name, path=top / program.source)]
    directory = top / program.directory
    directory.mkdir(parents=True, exist_ok=True)
    layout = layout_of(root, sources)
    original = own_session(program, program.lines())
    place = Place(program, layout, top, original, [])
    place.origin.write_bytes(written(original))
    ConfigService(layout.config_file).update(
        {**EVERYTHING, "prefix_bound": "extract", "keep_after_restore_seconds": 0}
    )
    done = place.caller.extract(place.name(place.origin))
    assert done.values > 0
    lean = lines_of(place.origin.read_bytes())
    ids = [program.fmt.info(line).id for line in lean if "_extracted" in line]
    place.away.extend(filter(None, ids))
    return place


def own_session(program: Program, lines: Lines) -> Lines:
    """The lines with the session's own name in them, as its program writes it; long prompts."""
    if program.name == "codex":
        meta = {**lines[0]["payload"], "id": str(ORIGIN)}
        return [{**lines[0], "payload": meta}, *lines[1:]]
    if program.name != "claude-code":
        return lines
    made = [line | {"sessionId": str(ORIGIN)} if "sessionId" in line else line for line in lines]
    for number, line in enumerate(made):
        message = line.get("message", {})
        if isinstance(message.get("content"), str):
            line["message"] = {**message, "content": f"{number}: {LONG}"}
    return made


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.name)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make(request.param, tmp_path_factory.mktemp("place"))


# --- sessions that only mention placeholders ---


@dataclass(frozen=True)
class Said:
    """An entry: its session, its text, and the ids of another session that it uses."""

    role: str  # user, assistant, result, event
    words: str
    colliding: str | None  # an id of the other session, in formats whose ids are repeated numbers
    by_old_version: bool


def openclaw_said(one: Said, number: int) -> Json:
    content = [{"type": "text", "text": one.words}]
    role = {"result": "toolResult", "event": "user"}.get(one.role, one.role)
    message: Json = {"role": role, "content": content}
    if role == "toolResult":
        message |= {"toolCallId": f"mine_{number}", "toolName": "read", "isError": False}
    if role == "assistant":
        message |= {"model": "m", "api": "openai-completions", "stopReason": "stop"}
    return {
        "type": "message",
        "id": f"b{number:07x}",
        "parentId": f"b{number - 1:07x}" if number else None,
        "timestamp": f"2026-05-01T10:00:{number % 60:02}.000Z",
        "message": message,
    }


def flat_said(one: Said, number: int) -> Json:
    kind = {"result": "tool_result", "event": "thinking"}.get(one.role, one.role)
    own = one.colliding or f"b{number}"
    return {"__id": own, "type": kind, "__ts": f"2026-05-01T10:{number:02}Z", "content": one.words}


def claude_said(one: Said, number: int) -> Json:
    text = {"type": "text", "text": one.words}
    result = {"type": "tool_result", "tool_use_id": f"mine_{number}", "content": one.words}
    is_answer = one.role == "assistant"
    content = [result] if one.role == "result" else [text] if is_answer else one.words
    line = claude_code_line(number, "assistant" if is_answer else "user", content)
    line["message"] |= {"id": f"msg_mine_{number}"} if is_answer else {}
    line |= {"sessionId": str(OTHER), "uuid": f"b0000000-0000-4000-8000-{number:012}"}
    line |= {"parentUuid": f"b0000000-0000-4000-8000-{number - 1:012}" if number else None}
    line |= {"timestamp": f"2026-05-01T10:00:{number % 60:02}.000Z"}
    return line | ({"version": OLD_CLAUDE} if one.by_old_version else {})


def codex_said(one: Said, number: int) -> Json:
    what, _, own = (one.colliding or "").partition(".")
    call = own if what.endswith("_output") else f"mine_{number}"
    text = {"type": "input_text", "text": one.words}
    line = {
        "user": lambda: codex_line(0, "response_item", type="message", role="user", content=[text]),
        "assistant": lambda: codex_line(
            0, "response_item", type="message", role="assistant", content=[text]
        ),
        "result": lambda: codex_line(
            0, "response_item", type="function_call_output", call_id=call, output=one.words
        ),
        "event": lambda: codex_line(0, "event_msg", type="agent_reasoning", text=one.words),
    }[one.role]()
    return line | {"timestamp": f"2026-05-01T10:00:{number % 60:02}.000Z"}


SAID: dict[str, Callable[[Said, int], Json]] = {
    "openclaw": openclaw_said,
    "pi": openclaw_said,
    "flat": flat_said,
    "claude-code": claude_said,
    "codex": codex_said,
}


def session_of(place: Place, said: list[Said]) -> Lines:
    """A session of the same program that is unrelated to the other session."""
    say = SAID[place.program.name]
    lines = [say(one, number) for number, one in enumerate(said)]
    if place.program.name in ("openclaw", "pi"):
        header = {"type": "session", "version": 3, "id": str(OTHER), "cwd": "/p"}
        return [{**header, "timestamp": "2026-05-01T10:00:00.000Z"}, *lines]
    if place.program.name == "codex":
        meta = codex_line(0, "session_meta", id=str(OTHER), cli_version="0.169.0", cwd="/p")
        return [meta | {"timestamp": "2026-05-01T10:00:00.000Z"}, *lines]
    return lines


@st.composite
def what_is_said(draw: st.DrawFn, away: list[str]) -> list[Said]:
    wordings = ["{}", "{}", "{}", "see {}", "{} is what I mean", "a long beginning of it {}"]
    said = []
    colliding: set[str] = set()
    for _ in range(draw(st.integers(1, 6))):
        named = draw(st.sampled_from([*away, "nobody", "e1"]))
        other = draw(st.sampled_from([None, named, *away]))
        if other in colliding or other == named == "nobody":
            other = None
        colliding |= {other} if other else set()
        said.append(
            Said(
                draw(st.sampled_from(["user", "assistant", "result", "event"])),
                draw(st.sampled_from(wordings)).format(f"[[extracted-{named}]]"),
                other if other in away else None,
                draw(st.booleans()),
            )
        )
    return said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_session_that_only_mentions_placeholders_stays_as_it_is(
    place: Place, data: st.DataObject
) -> None:
    said = data.draw(what_is_said(place.away))
    path = place.add(session_of(place, said))
    before = path.read_bytes()
    try:
        name = place.name(path)
        place.do_everything_to(name)
        assert path.read_bytes() == before
        assert not place.layout.store_dir(name).exists()
        told = [one.where for one in verify(place.layout, wait=0.0).findings]
        # An old Claude Code may have copied an entry that no store has.
        lost = any("nobody" in one.words or "e1]]" in one.words for one in said)
        old = any(one.by_old_version for one in said)
        assert told == [] or (lost and old and place.program.name == "claude-code")
    finally:
        path.unlink()


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make(request.param, tmp_path)


def quoting(place: Place) -> Lines:
    """Entries that quote each of the placeholders, in each of the roles."""
    say = SAID[place.program.name]
    roles = ("user", "assistant", "result", "event")
    pairs = [(role, entry) for entry in place.away for role in roles]
    return [
        say(Said(role, f"[[extracted-{entry}]]", None, by_old_version=False), 100 + number)
        for number, (role, entry) in enumerate(pairs)
    ]


def test_what_is_away_comes_back_and_who_speaks_of_it_keeps_the_words(fresh: Place) -> None:
    """In the entry's own session: before, and after all of it is inline again."""
    said = written(quoting(fresh))
    with fresh.origin.open("ab") as file:
        file.write(said)
    name = fresh.name(fresh.origin)
    for _ in range(2):
        assert performed.restore_all(fresh.caller, name).unavailable == {}
        verify(fresh.layout, repair=True, wait=0.0, remark=fresh.caller.remark)
    assert without_restored(fresh.origin.read_bytes()) == written(fresh.original) + said
    assert verify(fresh.layout, wait=0.0).findings == []


def copies(program: Program) -> Iterator[tuple[str, Callable[[Lines, UUID], Lines]]]:
    yield "fork", program.fork
    yield "rewrite", program.rewrite


@pytest.mark.parametrize("how", ["fork", "rewrite"])
@pytest.mark.parametrize("parent", ["there", "gone"])
def test_a_copy_gets_all_back_and_what_is_said_in_it_stays(
    fresh: Place, how: str, parent: str
) -> None:
    change = dict(copies(fresh.program))[how]
    lean = lines_of(fresh.origin.read_bytes())
    said = quoting(fresh)
    path = fresh.add([*change(lean, OTHER), *said])
    if parent == "gone":
        fresh.origin.unlink()
    name = fresh.name(path)
    if how == "rewrite":
        verify(fresh.layout, repair=True, wait=0.0, remark=fresh.caller.remark)
    for _ in range(2):
        assert performed.restore_all(fresh.caller, name).unavailable == {}
    expected = written([*change(fresh.original, OTHER), *said])
    assert without_restored(path.read_bytes()) == expected
    assert [one for one in verify(fresh.layout, wait=0.0).findings if one.is_open] == []


def test_a_copied_marker_in_another_entry_opens_nothing(fresh: Place) -> None:
    """Under an id of its own the line is another entry, even with the same content."""
    lean = lines_of(fresh.origin.read_bytes())
    marked = [line for line in lean if "_extracted" in line]
    foreign = [renamed(fresh.program, line, number) for number, line in enumerate(marked)]
    path = fresh.add([*session_of(fresh, []), *foreign])
    before = path.read_bytes()
    name = fresh.name(path)
    fresh.caller.extract(name, by_hand=True, overrides=EVERYTHING)
    done = performed.restore_all(fresh.caller, name)
    verify(fresh.layout, repair=True, wait=0.0, remark=fresh.caller.remark)
    assert path.read_bytes() == before
    assert len(done.unavailable) >= len(marked)
    assert set(done.unavailable.values()) == {
        "[Content unavailable - extracted file is of another entry]"
    }
    kinds = {one.kind for one in verify(fresh.layout, wait=0.0).findings}
    assert kinds == {"foreign_file"}
    for row in performed.entries(fresh.caller, name):
        if row.extracted:
            shown = performed.extracted_content(fresh.caller, name, f"#{row.index}")
            assert shown["content"] == {}
    told = performed.summary(fresh.layout, name)["summary"]
    fresh.layout.extracted.rename(fresh.layout.root / "elsewhere")
    contents_of(fresh.layout).changed()
    assert performed.summary(fresh.layout, name)["summary"] == told


def renamed(program: Program, line: Json, number: int) -> Json:
    """The same line under another id, which its own program would not give to a copy."""
    if program.name == "codex":
        payload = {**line["payload"], "id": f"other_{number}"}
        if "call_id" in payload:
            payload["call_id"] = f"other_{number}"
        return {**line, "payload": payload}
    key = next(key for key in ("__id", "uuid", "id") if key in line)
    own = f"b0000000-0000-4000-8000-{number:012}" if key == "uuid" else f"b{number:07x}"
    return {**line, key: own}
