"""Forgotten content is in no file under the root, except in the session itself."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.core.config import PruningConfig
from bsd.core.errors import Busy, NotFound, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.zstd import zstd
from bsd.maintenance.crash_journal import ForgetJournal
from bsd.maintenance.deleted_sessions import deleted_sessions, find_deleted
from bsd.maintenance.forget import Forget
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search
from bsd.maintenance.verify import verify
from bsd.sessions.commit.late import Orphan, keep_orphan, list_orphans
from bsd.sessions.idle import RetryBudget
from bsd.store.contents import Contents
from bsd.store.entry_notes import forgotten_in, note_forgotten
from bsd.store.snapshots import Snapshot
from tests.actions import performed
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, extract, keep
from tests.maintenance.trashing import trash_of
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import LONG, NAME, Clock, conversation, entry, jsonl, make_caller

WORDS = ("Quicksilver", "zephyrine")
LEAVING = ("tool_result", "assistant")  # the latter is in the search index, too
FORK = SessionName("main", "fork")


def secret_session(layout: Layout, name: SessionName = NAME) -> Path:
    """A session whose first two long answers contain words that no other place has."""
    entries = conversation()
    for number, word in enumerate(WORDS, 2):
        text = entries[number]["message"]["content"][0]["text"]
        entries[number] = entry(number - 1, "assistant", f"{word} {text}")
    path = add_session(layout.root, str(name), jsonl(*entries))
    set_idle(path, 2 * DAY)
    return path


def said(layout: Layout, word: str, *but: Path) -> list[str]:
    """The files under the root that contain a word, in any encoding."""
    return [
        str(path.relative_to(layout.root))
        for path in sorted(layout.root.rglob("*"))
        if path.is_file() and path not in but and word.encode().lower() in _plain(path).lower()
    ]


def _plain(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".zst":
        content += zstd.decompress(content)
    return content


def forgetting(layout: Layout, clock: Clock) -> Forget:
    return Forget(layout, budget=RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep))


def everywhere(layout: Layout, clock: Clock, *, packed: bool = False) -> Path:
    """A session in store or archive, in history and index, with a copy."""
    path = secret_session(layout)
    extract(layout, NAME, clock, trigger_types=LEAVING)
    keep(layout, clock)
    if packed:
        for file in layout.store_dir(NAME).glob("0*"):
            set_idle(file, 3 * DAY)
        RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    search(layout, WORDS[0])
    places = {place.partition("/")[0] for place in said(layout, WORDS[0])}
    assert places == {"archive" if packed else "extracted", ".brainsurgeon"}
    return path


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["live", "gone"])
def test_no_word_of_a_session_is_left(
    layout: Layout, clock: Clock, *, is_gone: bool, packed: bool
) -> None:
    path = everywhere(layout, clock, packed=packed)
    if is_gone:
        path.unlink()
        keep(layout, clock)
        search(layout, WORDS[0])
    done = forgetting(layout, clock).session(NAME)
    assert done.files > 3
    assert (done.in_transcript, done.kept_by) == (not is_gone, [])
    for word in (*WORDS, "look"):
        assert said(layout, word, path) == []
    assert deleted_sessions(layout) == []
    assert not layout.archive_dir(NAME).exists()
    with pytest.raises(NotFound):
        forgetting(layout, clock).session(NAME)


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
def test_an_entry_is_forgotten_and_nothing_else(
    layout: Layout, clock: Clock, *, packed: bool
) -> None:
    path = everywhere(layout, clock, packed=packed)
    done = forgetting(layout, clock).entry(NAME, "e1")
    assert (done.entry, done.kept_by) == ("e1", [])
    assert said(layout, WORDS[0]) == []
    assert said(layout, WORDS[1]) != []
    answer = performed.restore(make_caller(layout, clock), NAME, "e1")
    assert not answer["restored"]
    assert performed.restore(make_caller(layout, clock), NAME, "e2")["restored"]
    assert WORDS[1].encode() in path.read_bytes()


def test_an_entry_that_stands_whole_in_a_copy_is_forgotten_there(
    layout: Layout, clock: Clock
) -> None:
    path = secret_session(layout)
    keep(layout, clock)
    path.unlink()
    assert said(layout, WORDS[0]) != []
    forgetting(layout, clock).entry(NAME, "e1")
    assert said(layout, WORDS[0]) == []
    bring_back(layout, str(NAME), clock)
    lines, original = path.read_bytes().splitlines(), jsonl(*conversation()).splitlines()
    assert [at for at, line in enumerate(original) if lines[at] != line] == [2, 3]
    assert b"[content forgotten]" in lines[2]
    assert WORDS[1].encode() in lines[3]


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
def test_a_fork_keeps_what_it_needs_and_is_named(
    layout: Layout, clock: Clock, *, packed: bool
) -> None:
    path = everywhere(layout, clock, packed=packed)
    fork = path.with_name("fork.jsonl")
    fork.write_bytes(path.read_bytes())
    set_idle(fork, 2 * DAY)
    path.unlink()
    done = forgetting(layout, clock).session(NAME)
    assert done.kept_by == [str(FORK)]
    assert not layout.store_dir(NAME).exists()
    assert performed.restore(make_caller(layout, clock), FORK, "e1")["restored"]
    assert WORDS[0].encode() in fork.read_bytes()


def displaced(layout: Layout) -> list[Path]:
    return list(layout.inflight.glob("*.file"))


def just_extracted(layout: Layout, clock: Clock) -> Path:
    path = secret_session(layout)
    make_caller(layout, clock).extract(NAME, overrides={"keep_recent": 0, "trigger_types": LEAVING})
    assert any(WORDS[0].encode() in file.read_bytes() for file in displaced(layout))
    return path


@pytest.mark.parametrize("entry", [None, "e1"], ids=["session", "entry"])
def test_what_a_commit_displaced_a_moment_ago_loses_its_words_at_once(
    layout: Layout, clock: Clock, entry: str | None
) -> None:
    path = just_extracted(layout, clock)
    forget = forgetting(layout, clock)
    forget.entry(NAME, entry) if entry else forget.session(NAME)
    assert said(layout, WORDS[0], path) == []
    [file] = displaced(layout)
    assert not file.read_bytes().strip(b"\0")


def test_lines_that_come_late_into_a_file_without_words_come_home(
    layout: Layout, clock: Clock
) -> None:
    path = just_extracted(layout, clock)
    lines = path.read_bytes()
    forgetting(layout, clock).session(NAME)
    [file] = displaced(layout)
    late = b'{"type":"custom","id":"late"}\n'
    with file.open("ab") as stream:
        stream.write(late)
    clock.ahead += 120
    make_caller(layout, clock).recover()
    assert path.read_bytes() == lines + late
    assert displaced(layout) == []
    assert list_orphans(layout) == []


def test_a_displaced_file_that_somebody_reads_is_left_to_him(layout: Layout, clock: Clock) -> None:
    just_extracted(layout, clock)
    [file] = displaced(layout)
    with file.open("rb") as stream:
        with pytest.raises(Busy, match="still has the former file open"):
            forgetting(layout, clock).session(NAME)
        assert WORDS[0].encode() in stream.read()
    assert said(layout, WORDS[0]) != []
    assert begun_in(layout) == []


def test_a_permanent_delete_takes_the_words_of_what_was_displaced(
    layout: Layout, clock: Clock
) -> None:
    just_extracted(layout, clock)
    clock.ahead += 5  # idle, and well within the minute
    trash_of(layout, clock=clock.now, sleep=clock.sleep).delete(NAME, permanent=True)
    assert displaced(layout) != []
    for word in WORDS:
        assert said(layout, word) == []
    clock.ahead += 120
    make_caller(layout, clock).recover()
    assert displaced(layout) == []
    assert list_orphans(layout) == []


@pytest.mark.parametrize("way", ["delete", "trash"])
def test_a_permanent_delete_takes_late_bytes_and_drafts_too(
    layout: Layout, clock: Clock, way: str
) -> None:
    everywhere(layout, clock)
    draft = layout.edits / f"{NAME.session}-abcdefgh" / "entry.txt"
    draft.parent.mkdir(parents=True)
    draft.write_text(f"{WORDS[0]} edited")
    late = layout.root / "late"
    late.write_text(f"{WORDS[0]} late")
    about = Orphan(late, str(NAME), "s1.jsonl", "no place", late.stat().st_size, 1)
    with late.open("rb") as stream:
        keep_orphan(layout, "1-old-0", stream.fileno(), 0, about)
    late.unlink()
    assert len(list_orphans(layout)) == 1
    trash = trash_of(layout, clock=clock.now, sleep=clock.sleep)
    trash.delete(NAME, permanent=way == "delete")
    if way == "trash":
        assert list_orphans(layout) != []
        trash.remove(str(NAME))
    assert said(layout, WORDS[0]) == []


# --- killed ---


class Killed(BaseException):
    """Passes every handler, as a kill does."""


STEPS = ("handed", "history", "store", "packed", "archive", "beside", "index")


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("entry", [None, "e1"], ids=["session", "entry"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", ["retention", "recovery"])
def test_who_is_killed_is_gone_on_from(
    layout: Layout, clock: Clock, entry: str | None, step: str, way: str, *, packed: bool
) -> None:
    path = everywhere(layout, clock, packed=packed)
    killed = []

    def after_step(done: str) -> None:
        if done == step:
            killed.append(done)
            raise Killed

    budget = RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep)
    forget = Forget(layout, budget=budget, after_step=after_step)
    with suppress(Killed):
        forget.entry(NAME, entry) if entry else forget.session(NAME)
    if not killed:
        pytest.skip(f"{step} is no step of this")
    assert len(begun_in(layout)) == 1
    if way == "retention":
        RetentionRun(layout, actor="test", clock=clock.now).clean_all(PruningConfig())
    else:
        make_caller(layout, clock).recover_all()
    assert begun_in(layout) == []
    assert said(layout, WORDS[0], path) == []
    assert bool(said(layout, WORDS[1], path)) == bool(entry)


def test_what_comes_after_a_kill_is_not_taken(layout: Layout, clock: Clock) -> None:
    path = everywhere(layout, clock)

    def after_step(done: str) -> None:
        if done == "handed":
            raise Killed

    budget = RetryBudget(wait=0.0, clock=clock.now, sleep=clock.sleep)
    with pytest.raises(Killed):
        Forget(layout, budget=budget, after_step=after_step).session(NAME)
    store = layout.store_dir(NAME)
    old = set(store.glob("0*"))
    new = store / "0099_text.json"
    new.write_bytes(b"{}\n")
    os.utime(new, (clock.now() + 1,) * 2)
    make_caller(layout, clock).recover_all()
    assert set(store.glob("0*")) == {new}
    assert old
    assert path.exists()


def begun_in(layout: Layout) -> list[Path]:
    return list(layout.forgetting.glob("*"))


def test_a_full_disk_makes_nobody_believe_that_something_went(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = everywhere(layout, clock)

    def full(_: Contents) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Contents, "_connect", full)
    fork = path.with_name("fork.jsonl")
    fork.write_bytes(path.read_bytes())
    set_idle(fork, 2 * DAY)
    forgetting(layout, clock).entry(NAME, "e1")
    assert said(layout, WORDS[0], path) == []
    # and lines that other sessions need are copied to them all the same
    forgetting(layout, clock).session(NAME)
    assert performed.restore(make_caller(layout, clock), FORK, "e2")["restored"]


def test_a_note_that_cannot_be_written_keeps_nobody_from_making_room(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = everywhere(layout, clock)

    def full(_: ForgetJournal) -> None:
        raise Unavailable("no space left on device", hint="free some space")

    monkeypatch.setattr(ForgetJournal, "write", full)
    with pytest.raises(Unavailable):
        forgetting(layout, clock).entry(NAME, "e1")
    assert said(layout, WORDS[0], path) != []
    forgetting(layout, clock).session(NAME)
    assert said(layout, WORDS[0], path) == []


# --- a fork keeps the forgotten line here ---


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("entry", [None, "e1"], ids=["session", "entry"])
def test_a_fork_does_not_give_back_what_was_forgotten(
    layout: Layout, clock: Clock, entry: str | None, *, packed: bool
) -> None:
    path = everywhere(layout, clock, packed=packed)
    fork = path.with_name("fork.jsonl")
    fork.write_bytes(path.read_bytes())
    set_idle(fork, 2 * DAY)
    shutil.copytree(layout.store_dir(NAME), layout.store_dir(FORK)) if not packed else None
    shutil.copytree(layout.archive_dir(NAME), layout.archive_dir(FORK))
    for copy in layout.archive_dir(FORK).glob("session-*"):
        shutil.rmtree(copy)
    forget = forgetting(layout, clock)
    done = forget.entry(NAME, entry) if entry else forget.session(NAME)
    assert done.kept_by == [str(FORK)]
    answer = performed.restore(make_caller(layout, clock), NAME, "e1")
    assert not answer["restored"]
    assert "forgotten" in str(answer["unavailable"])
    assert verify(layout).clean
    trash_of(layout, clock=clock.now, sleep=clock.sleep).delete(FORK, permanent=True)
    assert not layout.store_dir(NAME).joinpath("0002_toolResult.json").exists()
    assert said(layout, WORDS[0]) == []  # nor was it copied to a session that does not refer to it
    assert performed.restore(make_caller(layout, clock), NAME, "e1")["unavailable"]


def test_by_another_name_a_session_does_not_get_back_what_it_was_made_to_forget(
    layout: Layout, clock: Clock
) -> None:
    path = everywhere(layout, clock)
    fork, other = path.with_name("fork.jsonl"), SessionName("main", "other")
    fork.write_bytes(path.read_bytes())
    set_idle(fork, 2 * DAY)
    shutil.copytree(layout.store_dir(NAME), layout.store_dir(FORK))
    assert forgetting(layout, clock).entry(NAME, "e1").kept_by == [str(FORK)]
    with path.open("ab") as file:  # so that the session in its place is copied again
        file.write(jsonl(*conversation()[-1:]).replace(b'"id":"', b'"id":"new-'))
    set_idle(path, DAY + 60)
    keep(layout, clock)
    path.unlink()
    keep(layout, clock)
    done = bring_back(layout, str(NAME), clock, renamed=other)
    assert [key.split()[1] for key in done.unavailable] == ["e1"]
    content = layout.session_file(other).read_bytes()
    assert [word.encode() in content for word in WORDS] == [False, True]
    answer = performed.restore(make_caller(layout, clock), other, "e1")
    assert not answer["restored"]
    assert "forgotten" in str(answer["unavailable"])
    assert performed.restore(make_caller(layout, clock), FORK, "e1")["restored"]


def test_what_belongs_to_a_session_forgets_by_another_name_too(
    tmp_path: Path, clock: Clock
) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    layout, [name] = home.layout, home.names
    other = SessionName(name.agent, "ffffffff-a2ea-4c14-9efa-87158ebd9f20")
    part = home.subagents(name)[0]
    named = SessionName(f"{other.agent}:{other.session}", part.session)
    keep(layout, clock)
    note_forgotten(layout.history_dir(part), part, ["sha256:00"])
    assert home.delete_older_than(1)
    keep(layout, clock)
    done = bring_back(layout, str(name), clock, renamed=other)
    assert done.sessions == [str(other), str(named)]
    assert layout.session_file(named).exists()
    assert forgotten_in(layout.history_dir(named)) == {"sha256:00"}


def test_what_belongs_to_the_session_and_says_the_same_is_named(tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 1)
    layout, clock, [name] = home.layout, Clock(), home.names
    [result] = home.source.rglob("tool-results/toolu_1.txt")
    entry, text = first_long_entry(layout, name)
    result.write_text(f"before\n{text}\nafter\n")
    set_idle(result, 2 * DAY)
    keep(layout, clock)
    done = forgetting(layout, clock).entry(name, entry)
    assert [each for each in done.said_in if each == str(result)] == [str(result)]
    assert any("toolu_1.txt (in the copy" in each for each in done.said_in)
    assert any("agent-a" in each for each in done.said_in)  # its subagents contain it, too


def first_long_entry(layout: Layout, name: SessionName) -> tuple[str, str]:
    for line in layout.session_file(name).read_bytes().splitlines():
        entry = json.loads(line)
        content = entry.get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block.get("content"), str) and len(block["content"]) > 500:
                return entry["uuid"], block["content"]
    raise AssertionError("no long result")


def two_of_one_name(layout: Layout, clock: Clock, where: str) -> tuple[Path, Snapshot, Snapshot]:
    """The place of a session and of another one that came after it; both are gone."""
    if where == "there":
        path = layout.transcript(NAME)
    elif where == "inline":
        path = secret_session(layout)
    else:
        path = everywhere(layout, clock, packed=where == "packed")
    keep(layout, clock)
    path.unlink()
    keep(layout, clock)
    value = entry(9, "toolResult", f"Amethyst {LONG}")
    others = [entry(10 + number, "assistant", "seen") for number in range(5)]
    path.write_bytes(jsonl({"type": "session", "version": 3, "id": "t"}, value, *others))
    os.utime(path, (clock.now() - 2 * DAY,) * 2)
    extract(layout, NAME, clock, trigger_types=LEAVING)
    keep(layout, clock)
    path.unlink()
    first, second = sorted(deleted_sessions(layout), key=lambda copy: -copy.size)
    return path, first, second


@pytest.mark.parametrize("where", ["inline", "stored", "packed"])
def test_one_of_two_sessions_of_a_name_is_forgotten_alone(
    layout: Layout, clock: Clock, where: str
) -> None:
    path, first, second = two_of_one_name(layout, clock, where)
    assert forgetting(layout, clock).session(NAME, first).kept_by == []
    for word in WORDS:
        assert said(layout, word) == []
    assert [copy.id for copy in deleted_sessions(layout)] == [second.id]
    assert find_deleted(layout, str(NAME)).origin == second.origin
    assert not bring_back(layout, str(NAME), clock).unavailable
    assert b"Amethyst" in path.read_bytes()


def test_a_fork_of_one_of_two_keeps_the_values(layout: Layout, clock: Clock) -> None:
    path = everywhere(layout, clock, packed=True)
    fork = add_session(layout.root, str(FORK), path.read_bytes())
    set_idle(fork, 2 * DAY)
    _, first, _ = two_of_one_name(layout, clock, "there")
    assert forgetting(layout, clock).session(NAME, first).kept_by == [str(FORK)]
    for entry_id, word in zip(("e1", "e2"), WORDS, strict=True):
        assert performed.restore(make_caller(layout, clock), FORK, entry_id)["restored"]
        assert word.encode() in fork.read_bytes()


def test_placeholders_without_markers_keep_their_values(layout: Layout, clock: Clock) -> None:
    """A program has written the session anew, with another header and without bsd's markers."""
    path = everywhere(layout, clock, packed=True)
    _, *lines = map(json.loads, path.read_bytes().splitlines())
    for line in lines:
        line.pop("_extracted", None)
    _, first, _ = two_of_one_name(layout, clock, "there")
    path.write_bytes(jsonl({"type": "session", "version": 3, "id": "u"}, *lines))
    set_idle(path, 2 * DAY)
    forgetting(layout, clock).session(NAME, first)
    for entry_id, word in zip(("e1", "e2"), WORDS, strict=True):
        assert performed.restore(make_caller(layout, clock), NAME, entry_id)["restored"]
        assert word.encode() in path.read_bytes()


def test_what_a_damaged_copy_of_that_name_may_need_stays(layout: Layout, clock: Clock) -> None:
    _, first, second = two_of_one_name(layout, clock, "packed")
    (second.directory / "copy.json").write_bytes(b"{")
    assert forgetting(layout, clock).session(NAME, first).kept_by == [str(NAME)]
    assert not first.directory.exists()
    assert said(layout, WORDS[0])


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("way", ["delete", "trash"])
def test_a_permanent_delete_leaves_no_word(
    layout: Layout, clock: Clock, way: str, *, packed: bool
) -> None:
    everywhere(layout, clock, packed=packed)
    trash = trash_of(layout, clock=clock.now, sleep=clock.sleep)
    if way == "delete":
        trash.delete(NAME, permanent=True)
    else:
        trash.delete(NAME)
        assert deleted_sessions(layout) == []  # the trash's rules hold for it
        assert len(keep(layout, clock).gone) == 0
        trash.remove(str(NAME))
    for word in WORDS:
        assert said(layout, word) == []
    assert deleted_sessions(layout) == []


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
def test_a_fork_that_is_gone_keeps_what_it_needs_too(
    layout: Layout, clock: Clock, *, packed: bool
) -> None:
    path = secret_session(layout)
    original = path.read_bytes()
    extract(layout, NAME, clock, trigger_types=LEAVING)
    fork = path.with_name("fork.jsonl")
    fork.write_bytes(path.read_bytes())
    set_idle(fork, 2 * DAY)
    keep(layout, clock)
    fork.unlink()
    keep(layout, clock)
    if packed:
        for file in layout.store_dir(NAME).glob("0*"):
            set_idle(file, 3 * DAY)
        RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    [copy] = deleted_sessions(layout)
    done = forgetting(layout, clock).session(NAME)
    assert copy.id in done.kept_by
    assert not bring_back(layout, str(FORK), clock).unavailable
    assert fork.read_bytes() == original
