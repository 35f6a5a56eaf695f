"""Paths on disk: every path is inside the root, for any name (SPEC §2.8)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.errors import Forbidden, Invalid, NotFound
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName, check_name, inside

NAME = SessionName("main", "s1")
names = st.from_regex(r"[A-Za-z0-9._@:+-]{1,250}", fullmatch=True).filter(
    lambda name: name not in {".", ".."}
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root = tmp_path / "root"
    sessions = root / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "s1.jsonl").write_text("{}\n")
    (tmp_path / "outside" / "sessions").mkdir(parents=True)
    (tmp_path / "outside" / "sessions" / "s1.jsonl").write_text("secret\n")
    return Layout(root)


@pytest.mark.parametrize("name", ["main", "a", "A-Z_0.9@x:y+z", "...", "-", ".hidden", "_"])
def test_good_names(name: str) -> None:
    assert check_name(name, "agent") == name


@pytest.mark.parametrize(
    "name",
    [
        *["", ".", "..", "a/b", "../x", "/", "a\\b", "a b", "a\n", "\n", "a\x00", "é", "~", "%2e"],
        *["*", "\ud800", "٣"],
    ],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(Invalid, match="is not a valid name") as caught:
        check_name(name, "agent")
    assert caught.value.hint
    for build in (
        lambda: SessionName(name, "s"),
        lambda: SessionName("a", name),
        lambda: Layout(Path("/r")).sessions_dir(name),
    ):
        with pytest.raises(Invalid):
            build()


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "", "a b", "a\0b", "ä"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(Invalid):
        SessionName("main", name)
    with pytest.raises(Invalid):
        SessionName(name, "s1")


@given(names, names)
def test_a_session_is_named_as_it_is_written(agent: str, session: str) -> None:
    name = SessionName(agent, session)
    assert SessionName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["", "main", "/", "main/", "/s1", "a/b/c", "main/../x", "a//b"])
def test_what_names_no_session(text: str) -> None:
    with pytest.raises(Invalid):
        SessionName.parse(text)


def test_names_sort_by_agent_and_session() -> None:
    texts = ["b/a", "a/b", "a/a"]
    assert [str(name) for name in sorted(map(SessionName.parse, texts))] == ["a/a", "a/b", "b/a"]


def test_where_things_lie() -> None:
    layout = Layout(Path("/r"))
    assert layout.log_file == Path("/r/logs/brainsurgeon.log")
    assert layout.config_file == Path("/r/.brainsurgeon/config.json")
    assert layout.audit_file == Path("/r/.brainsurgeon/audit.jsonl")
    assert layout.trash == Path("/r/trash")
    assert layout.store_dir(SessionName("main", "abc123")) == Path("/r/extracted/main_abc123")
    for own in (layout.locks, layout.inflight, layout.orphans):
        assert own.parent == layout.own == Path("/r/.brainsurgeon")


@given(names, names, names, names)
def test_no_two_sessions_share_a_store_directory(
    agent: str, session: str, other_agent: str, other_session: str
) -> None:
    layout = Layout(Path("/r"))
    one, other = SessionName(agent, session), SessionName(other_agent, other_session)
    assert (layout.store_dir(one) == layout.store_dir(other)) is (one == other)
    assert (layout.lock_file(one) == layout.lock_file(other)) is (one == other)
    assert layout.session_of_store(layout.store_dir(one).name) == one


@pytest.mark.parametrize("store", ["", "main", "_x", "a~_", "a/b_c", f"a_{'x' * 220}"])
def test_a_directory_that_is_nobodys_store(store: str) -> None:
    assert Layout(Path("/r")).session_of_store(store) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a_b/c", "a/b_c"),
        ("a/_b", "a_/b"),
        ("_/a", "a/_"),
        (f"a/{'x' * 220}1", f"a/{'x' * 220}2"),
        (f"{'a' * 240}/b", f"{'a' * 240}/c"),
        (f"{'a_' * 110}/b", f"{'a' * 220}/b"),
    ],
)
def test_names_that_could_be_taken_for_each_other(one: str, other: str) -> None:
    layout = Layout(Path("/r"))
    first, second = (layout.store_dir(SessionName.parse(text)) for text in (one, other))
    assert first != second
    assert first.parent == second.parent == layout.extracted


@given(names, names)
def test_store_directories_leave_room_for_a_suffix(agent: str, session: str) -> None:
    name = Layout(Path("/r")).store_dir(SessionName(agent, session)).name
    assert len(f"{name}_extracted_2026-11-21T22-16-05.123456Z".encode()) <= 255


def test_a_session_is_found(layout: Layout) -> None:
    path = layout.session_file(SessionName("main", "s1"))
    assert path.read_text() == "{}\n"


@pytest.mark.parametrize("text", ["main/none", "none/s1", f"main/{'x' * 240}"])
def test_a_session_that_is_not_there(layout: Layout, text: str) -> None:
    with pytest.raises(NotFound, match="there is no session"):
        layout.session_file(SessionName.parse(text))


def test_a_name_no_file_can_have_is_not_there(layout: Layout) -> None:
    with pytest.raises(NotFound, match="there is no session"):
        layout.session_file(SessionName("main", "x" * 300))


def test_a_file_where_a_directory_should_be(layout: Layout) -> None:
    (layout.agents / "odd").write_text("")
    with pytest.raises(NotFound):
        layout.session_file(SessionName("odd", "s1"))


@pytest.mark.parametrize("target", ["s1.jsonl", "../../../../outside/sessions/s1.jsonl", "none"])
def test_a_session_that_is_a_link_is_refused(layout: Layout, target: str) -> None:
    link = layout.agents / "main" / "sessions" / "link.jsonl"
    link.symlink_to(target)
    with pytest.raises(Forbidden, match="not a regular file"):
        layout.session_file(SessionName("main", "link"))


def test_a_session_that_is_no_file_is_refused(layout: Layout) -> None:
    sessions = layout.agents / "main" / "sessions"
    (sessions / "dir.jsonl").mkdir()
    os.mkfifo(sessions / "pipe.jsonl")
    for name in ("dir", "pipe"):
        with pytest.raises(Forbidden, match="not a regular file"):
            layout.session_file(SessionName("main", name))


@pytest.mark.parametrize("level", ["sessions", "agent", "agents"])
def test_links_that_leave_the_root_are_refused(layout: Layout, tmp_path: Path, level: str) -> None:
    outside = tmp_path / "outside"
    agent = layout.agents / "evil"
    match level:
        case "sessions":
            agent.mkdir()
            (agent / "sessions").symlink_to(outside / "sessions")
        case "agent":
            agent.symlink_to(outside)
        case _:
            layout.agents.rename(tmp_path / "agents")
            (tmp_path / "agents" / "evil").symlink_to(outside)
            layout.agents.symlink_to(tmp_path / "agents")
    with pytest.raises(Forbidden, match="leads out of") as caught:
        layout.sessions_dir("evil")
    assert caught.value.exit_code == 77
    with pytest.raises(Forbidden, match="leads out of"):
        layout.session_file(SessionName("evil", "s1"))


def test_a_sibling_with_the_same_beginning_is_outside(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "root2" / "sessions").mkdir(parents=True)
    (layout.agents / "evil").symlink_to(tmp_path / "root2")
    with pytest.raises(Forbidden):
        layout.sessions_dir("evil")


def test_links_inside_the_root_and_a_root_that_is_a_link_are_fine(
    layout: Layout, tmp_path: Path
) -> None:
    (layout.agents / "alias").symlink_to(layout.agents / "main")
    expected = layout.agents.resolve() / "main" / "sessions"
    assert layout.sessions_dir("alias") == expected
    (tmp_path / "link").symlink_to(layout.root)
    assert Layout(tmp_path / "link").session_file(SessionName("main", "s1")).parent == expected


def test_a_circle_of_links_is_refused(layout: Layout) -> None:
    (layout.agents / "a").symlink_to(layout.agents / "b")
    (layout.agents / "b").symlink_to(layout.agents / "a")
    with pytest.raises((Forbidden, NotFound)):
        layout.session_file(SessionName("a", "s1"))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_private_directories(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = make_private_dir(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert path == tmp_path / "a" / "b" / "c"
    for directory in (path, path.parent, path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_directories_of_others_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert make_private_dir(tmp_path) == tmp_path
    make_private_dir(tmp_path / "new")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="exists"):
        make_private_dir(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "x"


def test_a_root_that_is_moved_is_found_anew(layout: Layout, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(layout.root)
    linked = Layout(link)
    assert linked.store_dir(NAME) == layout.store_dir(NAME)
    moved = layout.root.rename(tmp_path / "moved")
    link.unlink()
    link.symlink_to(moved)
    assert linked.store_dir(NAME) == Layout(moved).store_dir(NAME)


def test_a_link_that_came_later_is_seen(layout: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    directory = layout.store_dir(NAME)
    directory.parent.mkdir(exist_ok=True)
    directory.symlink_to(outside)
    with pytest.raises(Forbidden):
        layout.store_dir(NAME)
    directory.unlink()
    directory.symlink_to("main_other")
    assert layout.store_dir(NAME) == directory.with_name("main_other")


def test_a_way_up_and_down_again_is_followed(layout: Layout) -> None:
    with pytest.raises(Forbidden):
        inside(layout.root / "missing/../../x", layout.root)


def test_a_way_that_was_cut_off_is_seen_each_time(layout: Layout) -> None:
    assert not layout.has_moves()
    journal = make_private_dir(layout.moving) / "journal.json"
    journal.touch()
    assert layout.has_moves()
    journal.unlink()
    assert not layout.has_moves()
