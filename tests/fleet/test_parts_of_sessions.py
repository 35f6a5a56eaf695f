"""What belongs to a session elsewhere: beginnings, notes of a project, secrets, the trash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.actions.other_hosts import bring_back_remote, verify_remote
from bsd.actions.redact_secret import redact_secret
from bsd.actions.secrets import find_secrets
from bsd.actions.trash import delete_session, empty_trash
from bsd.core.layout import Layout
from bsd.core.settings import SourceSettings
from bsd.fleet.push import push
from bsd.transcripts.agents.programs import layout_of
from tests.actions.test_redact_secret import TOKEN
from tests.actions.test_redact_secret import session as session_with_secrets
from tests.fleet.archives import Machine, said_in
from tests.fleet.test_forget_everywhere import share_a_session, shared
from tests.maintenance.keeping import DAY, ClaudeHome, keep
from tests.maintenance.test_forgetting import WORDS, secret_session
from tests.maintenance.test_lineage import fork_name, fork_path, said, write_fork
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import HEADER, NAME, Clock, entry, jsonl
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.codex import codex_meta
from tests.transcripts.agents.sources.tree import Home, raw


def elsewhere(top: Path, kind: str, source: Path) -> tuple[Layout, Path]:
    """Return a root with one source in another home, where it lies as in the home `top`."""
    there = top.with_name("b") / source.relative_to(top)
    there.mkdir(parents=True)
    (root := there.parent / "root").mkdir()
    return layout_of(root, [SourceSettings(kind=kind, path=there)]), there


def test_a_thread_of_codex_comes_with_the_file_in_which_it_begins(
    tmp_path: Path, clock: Clock
) -> None:
    lines = [codex_meta(history_mode="paginated"), said(1, "shared words"), said(2, "later words")]
    (tmp_path / "a").mkdir()
    home = Home.of(CODEX, tmp_path / "a", lines)
    write_fork(home, CODEX.session[-36:], len(raw(lines[:2])))
    both = {path: path.read_bytes() for path in (home.path, fork_path(home))}
    for path in both:
        set_idle(path, 2 * DAY)
    push(shared(home.layout, tmp_path, clock, "lost").context)
    layout, there = elsewhere(tmp_path / "a", "codex", home.source)
    shutil.rmtree(tmp_path / "a")
    back = bring_back_remote(
        shared(layout, tmp_path, clock, "here").context, "lost", str(fork_name(home))
    )
    assert set(back.sessions) == {str(fork_name(home)), str(home.name)}
    for path, content in both.items():
        assert (there / path.relative_to(home.source)).read_bytes() == content


def test_the_notes_of_a_project_come_with_a_session(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path / "a", 1, small=True)
    notes = next(home.source.iterdir()) / "memory" / "MEMORY.md"
    notes.parent.mkdir()
    notes.write_bytes(b"Harbours are blue.\n")
    set_idle(notes, 3 * DAY)
    push(shared(home.layout, tmp_path, clock, "lost").context)
    layout, there = elsewhere(tmp_path / "a", "claude-code", home.source)
    shutil.rmtree(tmp_path / "a")
    here = shared(layout, tmp_path, clock, "here")
    back = bring_back_remote(here.context, "lost", str(home.names[0]))
    copy = there / notes.relative_to(home.source)
    assert back.memory == [str(copy)]
    assert copy.read_bytes() == b"Harbours are blue.\n"


@pytest.fixture
def machines(layout: Layout, tmp_path: Path, clock: Clock) -> Callable[..., list[Machine]]:
    """Make two machines with one session, whose transcripts are gone; see `share_a_session`."""

    def make(made: Callable[[Layout], Path]) -> list[Machine]:
        root = tmp_path / "second"
        (root / "agents").mkdir(parents=True)
        first = shared(layout, tmp_path, clock, "first")
        second = shared(Layout(root), tmp_path, clock, "second")
        share_a_session(first, second, clock, made)
        second.layout.transcript(NAME).unlink()
        return [first, second]

    return make


def test_a_redacted_secret_is_nowhere(
    machines: Callable[..., list[Machine]], tmp_path: Path, clock: Clock
) -> None:
    first, second = machines(session_with_secrets)
    keep(first.layout, clock)
    [hash_] = [one.hash for one in find_secrets(first.context).secrets if one.rule == "github-pat"]
    assert said_in(second.layout.root, TOKEN)
    assert redact_secret(first.context, hash_).complete
    for each in (first, second):
        assert push(each.context).problems == []
    for place in (first.layout.root, second.layout.root, tmp_path / "bucket"):
        assert said_in(place, TOKEN) == []
    for each in (first, second):
        assert verify_remote(each.context, full=True).clean
        bring_back_remote(each.context, each.settings.host, str(NAME))
        assert b"seen" in each.layout.transcript(NAME).read_bytes()


def test_an_emptied_trash_is_emptied_everywhere(
    machines: Callable[..., list[Machine]], tmp_path: Path
) -> None:
    first, second = machines(secret_session)
    bring_back_remote(first.context, "first", str(NAME))
    delete_session(first.context, NAME)
    assert push(first.context).problems == []
    assert empty_trash(first.context).cleaned == 1
    for each in (first, second):
        assert push(each.context).problems == []
    for place in (first.layout.root, second.layout.root, tmp_path / "bucket"):
        assert said_in(place, WORDS[0]) == []


def test_another_session_in_that_place_stays(
    machines: Callable[..., list[Machine]], tmp_path: Path, clock: Clock
) -> None:
    """The second machine has begun a session of the same name since."""
    first, second = machines(secret_session)
    bring_back_remote(first.context, "first", str(NAME))
    delete_session(first.context, NAME, permanent=True)
    whole = jsonl(HEADER | {"id": "another"}, entry(1, "user", TOKEN), entry(2, "assistant", "so"))
    path = add_session(second.layout.root, str(NAME), whole)
    set_idle(path, DAY)
    for each in (first, second):
        assert push(each.context).problems == []
    assert path.read_bytes() == whole
    assert said_in(tmp_path / "bucket", WORDS[0]) == []
    assert said_in(tmp_path / "bucket", TOKEN)
