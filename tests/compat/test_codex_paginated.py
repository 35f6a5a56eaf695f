"""Edits of paginated threads of the real Codex, which keeps byte offsets into their files.

The thread is in code mode, as with newer models: its results are texts in blocks. Facts about
threads whose history is one file are checked in `test_codex.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import SessionName
from bsd.maintenance.verify import verify
from bsd.mcp.scope import Scope
from bsd.planning.result import Status
from tests.actions import performed
from tests.actions.performed import Caller
from tests.compat.codex import Codex
from tests.compat.provider import Json, provider
from tests.mcp.conftest import call_tool
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources.tree import away
from tests.waiting import wait_for

pytestmark = pytest.mark.compat

TURNS = 3  # each has a result that leaves
AWAY = "[[extracted-"
_LONG_AGO_SECONDS = 60 * 86400.0


class Thread:
    """A paginated thread of a Codex, which every test gets in its first state."""

    def __init__(self, codex: Codex, template: Path) -> None:
        self.codex = codex
        self.id = codex.thread(TURNS)
        self.name, self.old = codex.name(self.id), self.content
        self._template = template
        shutil.copytree(codex.home, template)
        self.sent = history(codex.resume(self.id))

    def put_back(self) -> None:
        shutil.rmtree(self.codex.home)
        shutil.copytree(self._template, self.codex.home)
        shutil.rmtree(self.codex.layout.root)
        self.codex.layout.root.mkdir()
        self.codex.rest()

    @property
    def content(self) -> bytes:
        return self.codex.file(self.id).read_bytes()

    @property
    def caller(self) -> Caller:
        layout = self.codex.layout
        return Caller(layout=layout, config=ConfigService(layout.config_file))

    def extract(self) -> bytes:
        """Extract all results of the thread; return its file."""
        result = self.caller.extract(self.name, overrides={"keep_recent": 0})
        assert (result.status, result.values, result.bytes_saved) == (Status.EXTRACTED, TURNS, 0)
        lean = self.content
        assert away(self.old, lean) == TURNS
        assert list(map(len, lean.split(b"\n"))) == list(map(len, self.old.split(b"\n")))
        return lean

    def restore_all(self) -> None:
        """Bring all values back: the file begins with the thread as Codex wrote it."""
        self.codex.rest()
        assert performed.restore_all(self.caller, self.name).status is Status.RESTORED
        assert self.content.startswith(self.old)

    def shown(self) -> tuple[Json, Json, Json]:
        """What Codex tells its user about the thread."""
        with self.codex.server() as server:
            return (
                server.call("thread/read", threadId=self.id, includeTurns=True),
                server.call("thread/turns/list", threadId=self.id),
                server.call("thread/list"),
            )


def history(sent: list[Json]) -> list[Json]:
    """Return the items before the newest prompt."""
    prompts = [at for at, item in enumerate(sent) if item.get("role") == "user"]
    return sent[: prompts[-1]]


def assert_only_lean(sent: list[Json], before: list[Json], results: int = TURNS) -> None:
    """A request differs from an earlier one by placeholders in results, and by nothing else."""
    differing = [(one, other) for one, other in zip(before, sent, strict=True) if one != other]
    assert len(differing) == results
    for one, other in differing:
        assert one["type"] == other["type"] == "custom_tool_call_output"
        assert {**one, "output": []} == {**other, "output": []}
        for was, now in zip(one["output"], other["output"], strict=True):
            assert was == now or now["text"] == f"{AWAY}custom_tool_call_output.{one['call_id']}]]"


@pytest.fixture(scope="module")
def made(codex_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thread]:
    top = tmp_path_factory.mktemp("codex")
    with provider() as served:
        yield Thread(Codex.at(codex_program, top, served, model="gpt-6-sol"), top / "template")


@pytest.fixture
def thread(made: Thread) -> Thread:
    made.put_back()
    return made


def test_a_lean_thread_goes_on_and_comes_back_to_the_byte(thread: Thread) -> None:
    """Its databases stay as they were; then they are deleted, and Codex makes them anew."""
    shown = thread.shown()
    lean = thread.extract()
    assert thread.shown() == shown
    sent = thread.codex.resume(thread.id)
    assert_only_lean(history(sent), thread.sent)
    added = thread.content.removeprefix(lean)
    assert thread.content == lean + added
    for database in thread.codex.home.glob("*.sqlite*"):
        database.unlink()
    again = history(thread.codex.resume(thread.id))
    assert again[: len(history(sent))] == history(sent)
    read, turns, listed = thread.shown()
    assert (len(turns["data"]), len(listed["data"])) == (TURNS + 2, 1)
    assert AWAY not in json.dumps(read), "users see all outputs, which stay in other lines"
    added = thread.content.removeprefix(lean)
    thread.restore_all()
    assert thread.content == thread.old + added
    assert history(thread.codex.resume(thread.id))[: len(thread.sent)] == thread.sent


def test_forks_from_before_and_after_the_edit_are_lean_and_whole_again(thread: Thread) -> None:
    """A fork has no copy of its parent's lines, only the offset at which they end."""

    def fork() -> str:
        with thread.codex.server() as server:
            return str(server.call("thread/fork", threadId=thread.id)["thread"]["id"])

    before = fork()
    thread.codex.rest()
    thread.extract()
    after = fork()
    for one in (before, after):
        header = json.loads(thread.codex.file(one).read_bytes().splitlines()[0])["payload"]
        assert header["history_base"]["end_byte_offset"] == len(thread.old)
        sent = history(thread.codex.resume(one))
        assert_only_lean(sent, thread.sent)
        entry = json.dumps(sent).partition(AWAY)[2].partition("]]")[0]
        asked = {"session": str(thread.codex.name(one)), "entry": entry}
        read = call_tool(thread.caller, "read_extracted", Scope(), **asked)
        assert read["session"] == str(thread.name)
        assert any(text.startswith("1\n2\n3\n") for text in read["texts"].values())
    thread.restore_all()
    assert thread.content == thread.old
    assert AWAY not in json.dumps(thread.codex.resume(after))
    name = thread.codex.name(after)
    assert thread.caller.extract(name, overrides={"keep_recent": 0}).status is Status.EXTRACTED
    assert json.dumps(thread.codex.resume(after)).count(AWAY) == 2  # the results of its own turns
    assert verify(thread.codex.layout).clean


def test_a_lean_thread_is_taken_back_to_an_earlier_turn(thread: Thread) -> None:
    thread.extract()
    with thread.codex.server() as server:
        turns = server.call("thread/turns/list", threadId=thread.id)["data"]
        server.call("thread/resume", threadId=thread.id)
        server.call("thread/revert", threadId=thread.id, beforeTurnId=turns[0]["id"])
        server.turn(thread.id, "again")
    thread.codex.rest()
    names = [Path(file).name.removesuffix(".jsonl") for file in thread.codex.files()]
    assert len(names) == 2
    sent = history(thread.codex.provider.requests[-1]["input"])
    assert json.dumps(sent).count(AWAY) == TURNS - 1
    [second] = [one for one in names if one != thread.name.session]
    extracted = thread.caller.extract(
        SessionName(thread.name.agent, second), overrides={"keep_recent": 0}
    )
    assert extracted.values == 1
    assert json.dumps(history(thread.codex.resume(thread.id))).count(AWAY) == TURNS
    for name in names:
        session = SessionName(thread.name.agent, name)
        assert performed.restore_all(thread.caller, session).status is Status.RESTORED
    assert (thread.codex.home / "sessions").is_dir()
    assert AWAY not in json.dumps(thread.codex.resume(thread.id))


def test_a_lean_thread_is_compacted_as_any_other(thread: Thread) -> None:
    lean = thread.extract()
    requests = thread.codex.provider.requests
    with thread.codex.server() as server:
        server.call("thread/resume", threadId=thread.id)
        server.call("thread/compact/start", threadId=thread.id)
        server.completed()
        assert json.dumps(requests[-1]["input"]).count(AWAY) == TURNS
        server.turn(thread.id, "go on")
    assert AWAY not in json.dumps(requests[-1]["input"])
    added = thread.content.removeprefix(lean)
    assert thread.content == lean + added
    assert b'"type":"compacted"' in added
    thread.restore_all()
    assert thread.content == thread.old + added
    # What is no longer sent stays, since the file would not get smaller.
    result = thread.caller.extract(
        thread.name, overrides={"keep_recent": 0, "keep_after_restore_seconds": 0}
    )
    assert (result.values, result.reasons["not_sent"]) == (1, TURNS)


@pytest.mark.parametrize("archived", [False, True], ids=["in its place", "archived"])
def test_a_lean_thread_is_compressed_and_comes_back(thread: Thread, *, archived: bool) -> None:
    lean = thread.extract()
    if archived:
        thread.codex.run("archive", thread.id)
        assert thread.content == lean
    path = thread.codex.file(thread.id)
    set_idle(path, _LONG_AGO_SECONDS)
    packed = path.with_name(f"{path.name}.zst")
    with thread.codex.server() as server:
        server.call("rollout/compress")
        wait_for(lambda: packed.exists() and not path.exists(), "the packed file")
        turns = server.call("thread/turns/list", threadId=thread.id)["data"]
        assert len(turns) == TURNS
    if archived:
        thread.codex.run("unarchive", thread.id)
    sent = history(thread.codex.resume(thread.id))
    assert_only_lean(sent, thread.sent)
    assert thread.content.startswith(lean)
    thread.restore_all()
