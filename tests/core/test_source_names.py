"""Directories of other programs: a name for each, and no name that leads out of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import BsdError, ConfigError, Forbidden, NotFound
from bsd.core.layout import Layout, SessionName, check_name
from bsd.core.sources import Route, Source
from tests.loading import load_settings

# Names as file systems allow them: bytes without slash and NUL, and no dot at the beginning.
directories = st.binary(min_size=1, max_size=60).filter(
    lambda name: not name.startswith(b".") and b"/" not in name and b"\0" not in name
)


def any_names(steps: int) -> Route:
    return (None,) * steps


@given(st.lists(directories, min_size=1, max_size=3), st.lists(directories, min_size=1, max_size=3))
@settings(max_examples=30)
def test_every_directory_has_one_name_that_leads_back(one: list[bytes], two: list[bytes]) -> None:
    source, other = (Source("s", "k", Path("/s"), (any_names(len(to)),)) for to in (one, two))
    steps = [os.fsdecode(step) for step in one]
    agent = source.agent(*steps)
    assert check_name(agent, "agent") == agent
    assert source.directory(agent) == Path("/s").joinpath(*steps)
    assert (agent == other.agent(*map(os.fsdecode, two))) is (one == two)
    assert source.agent_at(Path("/s").joinpath(*steps)) == agent


@pytest.mark.parametrize(
    ("directory", "agent"),
    [
        ("/s/a", "s:a"),
        ("/s/a/b/subagents", "s:a:b"),
        ("/s/a/b/other", None),
        ("/s/a/b", None),
        ("/s", None),
        ("/t/a", None),
        ("/s/.a", None),
    ],
)
def test_whose_sessions_a_directory_holds(directory: str, agent: str | None) -> None:
    source = Source("s", "k", Path("/s"), ((None,), (None, None, "subagents")))
    assert source.agent_at(Path(directory)) == agent


@given(st.from_regex(r"s(:[A-Za-z0-9._@+-]{0,12}){0,4}", fullmatch=True))
@settings(max_examples=30)
def test_no_name_leads_out(agent: str) -> None:
    source = Source("s", "k", Path("/s"), (any_names(2),))
    if (found := source.directory(agent)) is not None:
        assert os.path.normpath(found) == str(found)
        assert found.parent.parent == Path("/s")
        assert source.agent(*found.relative_to("/s").parts) == agent


@pytest.mark.parametrize(
    "agent", ["s", "s:", "s:a", "s:a:b:c", "s:..:b", "s:+2E+2E:b", "s:a+2Fb:c", "s:+61:b", "t:a:b"]
)
def test_what_is_no_name(agent: str) -> None:
    assert Source("s", "k", Path("/s"), (any_names(2),)).directory(agent) is None


def test_agents_are_the_directories_at_one_depth(tmp_path: Path) -> None:
    for name in ["2025/09/24", "2025/09/25", "2025/10", ".tmp/09/24", "2025/09/24/deeper"]:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "2025" / "09" / "file").touch()
    (tmp_path / "2025" / "09" / "link").symlink_to(tmp_path)
    source = Source("codex", "k", tmp_path, (any_names(3),))
    assert dict(source.directories()) == {
        "codex:2025:09:24": tmp_path / "2025/09/24",
        "codex:2025:09:25": tmp_path / "2025/09/25",
    }
    above = [tmp_path, tmp_path / "2025", tmp_path / "2025/09", tmp_path / "2025/10"]
    assert list(source.between()) == above
    with pytest.raises(FileNotFoundError):
        list(Source("x", "k", tmp_path / "none", (any_names(1),)).directories())


FORKED: tuple[Route, ...] = (any_names(1), (None, None, "deep"), (None, None, "deep", "er", None))


def test_routes_part_and_what_has_a_fixed_name_is_no_part_of_an_agents(tmp_path: Path) -> None:
    for name in ["p/s/deep/er/w", "p/deep/t", "p/s/other", "q/s", "deep/s/deep", "p/.h/deep"]:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "q" / "s" / "deep").symlink_to(tmp_path / "p" / "s" / "deep")
    (tmp_path / "q" / "t").mkdir()
    (tmp_path / "q" / "t" / "deep").touch()
    source = Source("c", "k", tmp_path, FORKED)
    found = dict(source.directories())
    assert found == {
        "c:deep": tmp_path / "deep",
        "c:p": tmp_path / "p",
        "c:q": tmp_path / "q",
        "c:deep:s": tmp_path / "deep/s/deep",
        "c:p:s": tmp_path / "p/s/deep",
        "c:p:s:w": tmp_path / "p/s/deep/er/w",
    }
    assert all(source.directory(agent) == path for agent, path in found.items())
    assert source.directory("c:p:s:w:x") is None
    # Sessions come and go in hundreds: only their first appearance in a place needs a message.
    assert list(source.between()) == [tmp_path]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "root" / "agents").mkdir(parents=True)
    (tmp_path / "theirs" / "-p").mkdir(parents=True)
    (tmp_path / "theirs" / "-p" / "s.jsonl").write_text("{}\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.jsonl").write_text("{}\n")
    return Layout(tmp_path / "root", (Source("c", "k", tmp_path / "theirs", (any_names(1),)),))


def test_sessions_lie_there_and_everything_of_ours_in_the_root(layout: Layout) -> None:
    name = SessionName("c:-p", "s")
    assert layout.session_file(name) == layout.root.parent / "theirs" / "-p" / "s.jsonl"
    ours = (layout.store_dir(name), layout.history_dir(name), layout.lock_file(name))
    assert all(path.is_relative_to(layout.root) for path in ours)
    assert layout.has_agent("c:-p")
    assert not layout.has_agent("c:-q")
    assert layout.source_of("c") is None
    assert layout.holds(layout.root.parent / "theirs" / "-p")
    assert not layout.holds(layout.root.parent / "secret")


def test_links_are_not_followed_there(layout: Layout) -> None:
    theirs = layout.root.parent / "theirs"
    (theirs / "-out").symlink_to(theirs.parent / "secret")
    (theirs / "-in").symlink_to(theirs / "-p")
    (theirs / "-p" / "l.jsonl").symlink_to(theirs.parent / "secret" / "s.jsonl")
    for agent in ("c:-out", "c:-in"):
        with pytest.raises(Forbidden):
            layout.session_file(SessionName(agent, "s"))
    with pytest.raises(Forbidden):
        layout.session_file(SessionName("c:-p", "l"))
    with pytest.raises(NotFound):
        layout.sessions_dir("c:-p:-p")
    assert [agent for agent, _ in layout.session_dirs()] == ["c:-p"]


# --- settings ---


def given_sources(tmp_path: Path, text: str) -> tuple[object, ...]:
    file = tmp_path / "bsd.toml"
    file.write_text(text)
    return load_settings(file, environ={"HOME": str(tmp_path)}).sources


def test_sources_are_named_in_the_settings(tmp_path: Path) -> None:
    text = '[[sources]]\nkind = "a"\npath = "~/x"\n[[sources]]\nkind = "a"\npath = "/y"\nname="b"\n'
    one, two = load_settings(_written(tmp_path, text), environ={"HOME": str(tmp_path)}).sources
    assert (one.called, one.path) == ("a", tmp_path / "x")
    assert (two.called, two.path) == ("b", Path("/y"))
    assert load_settings(environ={"HOME": str(tmp_path)}).sources == ()


def _written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "bsd.toml").write_text(text)
    return tmp_path / "bsd.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "a"\npath = "relative"', r"sources\.|sources: "),
        ('kind = "a"', r"sources\.|sources: "),
        ('path = "/x"', r"sources\.|sources: "),
        ('kind = "a"\npath = "/x"\nname = "a:b"', r"sources\.|sources: "),
        ('kind = "a"\npath = "/x"\nnmae = "b"', r"sources\.|sources: "),
        ('kind = "a"\npath = "/x"\n[[sources]]\nkind = "a"\npath = "/y"', "called a"),
        ('kind = "a"\npath = "/x"\n[[sources]]\nkind = "b"\npath = "/x/y"', "contains another"),
        ('kind = "a"\npath = "~/.local/share/bsd/transcripts/agents"', "overlap"),
    ],
)
def test_what_cannot_be_a_source(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        given_sources(tmp_path, f"[[sources]]\n{text}\n")
    assert str(tmp_path / "bsd.toml") in caught.value.message
    assert isinstance(caught.value, BsdError)
