"""Threads of the real Codex that begin in the files of other threads, read and brought back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.actions.export import ExportFormat, export_session
from bsd.actions.list_entries import list_entries
from bsd.core.config_file import ConfigService
from bsd.maintenance import catalog
from bsd.maintenance.bring_back import bring_back
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.maintenance.search import search
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.maintenance.targets import GoneSessions
from bsd.sessions.idle import RetryBudget
from bsd.store.snapshots import read_snapshot
from tests.actions.performed import Caller
from tests.compat.codex import Codex
from tests.compat.provider import provider

pytestmark = pytest.mark.compat


def test_a_fork_taken_back_a_turn_is_read_and_brought_back_whole(
    codex_program: str, tmp_path: Path
) -> None:
    """Its lines are in three files; Codex archives the first, and bsd brings all of them back."""
    with provider() as served:
        codex = Codex.at(codex_program, tmp_path, served)
        with codex.server() as server:
            thread = server.call("thread/start")["thread"]["id"]
            server.turn(thread, "first of all")
            fork = server.call("thread/fork", threadId=thread)["thread"]["id"]
            server.turn(fork, "a wrong turn")
            turns = server.call("thread/turns/list", threadId=fork)["data"]
            server.call("thread/revert", threadId=fork, beforeTurnId=turns[0]["id"])
            server.turn(fork, "the right turn")
            server.turn(thread, "after the fork")
        codex.run("archive", thread)
        codex.rest()
        layout = codex.layout
        infos = {info.name: info for info in catalog.sessions(layout)}
        [head] = [name for name in infos if fork in name.session and "_" in name.session]
        [middle] = [name for name in infos if fork in name.session and name != head]
        origin = codex.name(thread)
        assert set(infos) == {head, middle, origin}
        assert [infos[name].parent for name in (origin, middle, head)] == [None, thread, fork]

        caller = Caller(layout=layout, config=ConfigService(layout.config_file))
        begun = list_entries(caller, head).begins_in
        assert begun is not None
        assert begun.session == str(middle)
        whole = tmp_path / "whole.jsonl"
        assert export_session(caller, head, ExportFormat.JSONL, whole).problems == ()
        assert said_in(whole.read_text()) == ["first of all", "the right turn"]
        for text, name in (("first of all", origin), ("the right turn", head)):
            assert {hit.session for hit in search(layout, f'"{text}"')} == {name}

        before, budget = codex.files(), RetryBudget()
        take_snapshots(layout, "30d", budget, scope=SnapshotScope(at_once=True))
        for each in (fork, thread):
            codex.run("delete", "--force", each)
        assert codex.files() == {}
        take_snapshots(layout, "30d", budget)  # which notes that they are gone
        copies = GoneSessions(layout, "1s")
        files = {place: len(copies.look(place).files) for place in copies.places()}
        left = {copy.name for place in files if not files[place] and (copy := read_snapshot(place))}
        assert left == {middle, origin}  # kept as long as the copy of the fork

        answer = bring_back(layout, find_deleted(layout, str(head)))
        assert set(answer.sessions) == set(map(str, (head, middle, origin)))
        assert answer.advice is None
        assert codex.files() == before
        codex.run("unarchive", thread)
        with codex.server() as server:
            server.call("thread/resume", threadId=fork)
            server.turn(fork, "go on")
        sent = json.dumps(served.requests[-1]["input"])
        assert said_in(sent) == ["first of all", "the right turn"]


def said_in(text: str) -> list[str]:
    """Return the prompts of the test that a text contains, in their order there."""
    said = ("first of all", "a wrong turn", "the right turn", "after the fork")
    return sorted((each for each in said if each in text), key=text.find)
