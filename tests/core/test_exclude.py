"""The patterns of `exclude`: the sessions they leave out, and the places they are read from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.core import exclude
from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import ConfigError, Invalid, LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.transcripts.agents.claude_code.history import project_name
from bsd.transcripts.agents.programs import layout_of
from tests.loading import load_settings

CLAUDE = "claude:-home-ada-secret"
SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("HOME", "/home/ada")
    sources = [
        SourceSettings(kind="claude-code", path=tmp_path / "projects", name="claude"),
        SourceSettings(kind="pi", path=tmp_path / "pi"),
        SourceSettings(kind="codex", path=tmp_path / "sessions"),
    ]
    return layout_of(tmp_path / "root", sources)


def left_out(layout: Layout, pattern: str, name: str) -> bool:
    """Return whether a pattern leaves a session out; in both files it means the same."""
    agent, _, session = name.partition("/")
    found = exclude.exclusions((pattern,), (), layout.sources).session(agent, session)
    fixed = exclude.exclusions((), (pattern,), layout.sources).session(agent, session)
    assert (found is None) is (fixed is None)
    return found is not None


@pytest.mark.parametrize(
    ("pattern", "name", "is_out"),
    [
        ("main", "main/4f2a", True),
        ("main", "main_agent/4f2a", False),
        ("ma*", "main_agent/4f2a", True),
        ("ma?n", "main/4f2a", True),
        ("*", "main/4f2a", True),
        ("main/4f2a", "main/4f2a", True),
        ("main/4f2a", "main/4f2a1", False),
        ("main/4f2a", "other/4f2a", False),
        ("*/4f2a", "other/4f2a", True),
        ("main/4*", "main/4f2a", True),
        # A source with all its agents; an agent with its parts; a session with its parts.
        ("claude", f"{CLAUDE}/{SESSION}", True),
        ("claud", f"{CLAUDE}/{SESSION}", False),
        (CLAUDE, f"{CLAUDE}:{SESSION}/agent-a1", True),
        (f"{CLAUDE}/{SESSION}", f"{CLAUDE}:{SESSION}/agent-a1", True),
        (f"{CLAUDE}/{SESSION}", f"{CLAUDE}:0{SESSION[1:]}/agent-a1", False),
        ("codex:2026", "codex:2026:11:20/rollout-x", True),
        ("codex:2026:11:20", "codex:2026:11:2/rollout-x", False),
        # Projects, with paths as their programs write them.
        ("/home/ada/secret", f"{CLAUDE}/{SESSION}", True),
        ("~/secret", f"{CLAUDE}/{SESSION}", True),
        ("~", f"{CLAUDE}/{SESSION}", True),
        ("/", f"{CLAUDE}/{SESSION}", True),
        ("/home/ada", f"{CLAUDE}/{SESSION}", True),
        ("/home/ada/sec", f"{CLAUDE}/{SESSION}", False),
        ("/home/ad?/s*t", f"{CLAUDE}/{SESSION}", True),
        ("/home/bob", f"{CLAUDE}/{SESSION}", False),
        ("~/secret", f"{CLAUDE}-sub/{SESSION}", True),
        ("~/secret", f"{CLAUDE}s/{SESSION}", False),
        ("~/secret", f"{CLAUDE}:{SESSION}/agent-a1", True),
        ("~/se.cret", f"claude:-home-ada-se-cret/{SESSION}", True),
        ("~/secret", "pi:--home-ada-secret--/2026_x", True),
        ("~/secret", "pi:--home-ada-secret-sub--/2026_x", True),
        ("~/secret", "pi:--home-ada-public--/2026_x", False),
        ("~/secret", "pi:./2026_x", False),
        ("/", "codex:2026:11:20/rollout-x", False),
        ("/", "main/4f2a", False),
        # A dot is a dot, and other characters of regular expressions are literal, too.
        ("m.in", "main/4f2a", False),
        ("main+", "mainn/4f2a", False),
    ],
)
def test_what_a_pattern_leaves_out(layout: Layout, pattern: str, name: str, is_out: bool) -> None:
    assert exclude.check_pattern(pattern) == pattern
    assert left_out(layout, pattern, name) is is_out


def test_a_project_reached_by_a_link_is_left_out_by_both_names(
    layout: Layout, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "work").symlink_to(tmp_path / "real")
    written = layout.sources[0].project_directory
    assert written is not None
    for known in ("work", "real"):
        directory = written(str(tmp_path / known))
        assert left_out(layout, str(tmp_path / "work"), f"claude:{directory}/{SESSION}")


@pytest.mark.parametrize("below", ["", "/sub"])
def test_a_long_path_that_claude_code_cuts_is_left_out(layout: Layout, below: str) -> None:
    path = "/" + "d" * 199
    cut = f"claude:-{'d' * 199}"
    assert left_out(layout, path, f"{cut}/{SESSION}")
    assert left_out(layout, path, f"{cut}-8354c/{SESSION}"), "a directory below it"
    assert left_out(layout, f"{path}d{below}", f"{cut}-8354c/{SESSION}")
    assert not left_out(layout, f"{path[:-1]}e{below}", f"{cut}-8354c/{SESSION}")


@pytest.mark.parametrize("pattern", ["", "a/b/c", "a b", "main/", "/\n", "[ab]", "x" * 501, "./a"])
def test_what_can_name_nothing_is_refused_in_both_files(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="exclude"):
        PruningConfig.from_json({"exclude": [pattern]})
    settings = tmp_path / "bsd.toml"
    settings.write_text(f"exclude = [{json.dumps(pattern)}]\n")
    with pytest.raises(ConfigError, match="exclude"):
        load_settings(settings)


def test_both_lists_count_and_a_change_holds_at_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path, exclude=("fixed",))
    config = ConfigService(layout.config_file)
    one, other = SessionName("fixed", "x"), SessionName("main", "x")
    assert layout.excluded(one) is not None
    assert layout.excluded(other) is None
    config.update({"exclude": ["main"]})
    exclusion = layout.excluded(other)
    assert exclusion is not None
    assert (exclusion.pattern, exclusion.fixed) == ("main", False)
    assert layout.with_excluded().excluded(other) is None
    config.update({"exclude": []})
    assert layout.excluded(other) is None
    with pytest.raises(LeftAlone) as told:
        layout.refuse_excluded(one)
    assert str(told.value) == "fixed/x is excluded by 'fixed': bsd ignores it"
    assert "bsd.toml" in str(told.value.hint)


def test_a_file_broken_by_hand_leaves_the_last_good_list_in_force(tmp_path: Path) -> None:
    layout, name = Layout(tmp_path), SessionName("main", "x")
    ConfigService(layout.config_file).update({"exclude": ["main"]})
    assert layout.excluded(name)
    layout.config_file.write_text('{"exclude": [')
    assert layout.excluded(name)
    layout.config_file.unlink()
    assert layout.excluded(name)


@pytest.mark.parametrize("content", ["{", "[]", '{"exclude": "main"}', '{"exclude": ["a b"]}'])
def test_nothing_is_looked_at_if_the_list_was_never_read(tmp_path: Path, content: str) -> None:
    layout = Layout(tmp_path)
    layout.own.mkdir(0o700)
    layout.config_file.write_text(content)
    with pytest.raises(ConfigError, match="which may exclude sessions, cannot be read"):
        layout.excluded(SessionName("main", "x"))
    assert layout.with_excluded().excluded(SessionName("main", "x")) is None


def test_a_pattern_of_many_stars_is_compared_at_once(layout: Layout) -> None:
    """With a plain `.*` for each wildcard, matching takes far too long."""
    assert not left_out(layout, "*a" * 12 + "*b", "a" * 60 + "/x")
    assert left_out(layout, "*a" * 12 + "*b", "a" * 60 + "b/x")


@pytest.mark.parametrize("name", ["\U0001f600 a", "x" * 189, "x" * 190, "x" * 191, "x" * 300])
def test_a_directory_that_claude_code_writes_in_its_own_way(layout: Layout, name: str) -> None:
    for below in ("", "/s", "/shop/basket"):
        agent = f"claude:{project_name(f'/home/ada/{name}{below}')}"
        assert left_out(layout, f"~/{name}", f"{agent}/{SESSION}")
    assert not left_out(layout, f"~/{name}", f"claude:-home-ada-y/{SESSION}")
