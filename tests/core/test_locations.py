"""The paths of root, settings file and socket, without loading the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsd.core.errors import ConfigError
from bsd.core.locations import (
    LONGEST_SOCKET_PATH,
    expand,
    find_root,
    find_socket,
    home,
    read_settings_file,
    settings_file,
)

HOME = {"HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("override", "environ", "in_file", "root"),
    [
        (None, {}, None, "/home/ada/.local/share/bsd"),
        (None, {"XDG_DATA_HOME": "/data"}, None, "/data/bsd"),
        (None, {"XDG_DATA_HOME": "data"}, None, "/home/ada/.local/share/bsd"),
        (None, {}, "/file", "/file"),
        (None, {}, "~/file", "/home/ada/file"),
        (None, {}, 5, "/home/ada/.local/share/bsd"),
        (None, {"BRAINSURGEON_AGENTS_DIR": "/a/agents"}, "/file", "/a"),
        (None, {"BRAINSURGEON_AGENTS_DIR": "/a/agents/"}, None, "/a"),
        (None, {"BRAINSURGEON_AGENTS_DIR": "~/x/agents"}, None, "/home/ada/x"),
        (None, {"OPENCLAW_ROOT": "/o", "BRAINSURGEON_AGENTS_DIR": "/a/agents"}, "/file", "/o"),
        (None, {"OPENCLAW_ROOT": "", "BRAINSURGEON_AGENTS_DIR": "/a/agents"}, None, "/a"),
        (
            None,
            {"OPENCLAW_ROOT": "", "BRAINSURGEON_AGENTS_DIR": ""},
            None,
            "/home/ada/.local/share/bsd",
        ),
        ("/r", {"OPENCLAW_ROOT": "/o"}, "/file", "/r"),
        (Path("~"), {}, None, "/home/ada"),
        ("/r/../s/", {}, None, "/s"),
    ],
)
def test_the_root(
    override: str | None, environ: dict[str, str], in_file: object, root: str
) -> None:
    assert find_root(override, {**HOME, **environ}, in_file) == Path(root)


def test_a_relative_root_is_made_absolute() -> None:
    assert find_root("x", HOME) == Path.cwd() / "x"
    assert expand("~ada/x", HOME) == Path.cwd() / "~ada/x"


def test_without_home_the_system_is_asked() -> None:
    assert home({}).is_absolute()


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, "/home/ada/.config/bsd/bsd.toml"),
        ({"XDG_CONFIG_HOME": "/x"}, "/x/bsd/bsd.toml"),
        ({"XDG_CONFIG_HOME": ""}, "/home/ada/.config/bsd/bsd.toml"),
        ({"XDG_CONFIG_HOME": "relative"}, "/home/ada/.config/bsd/bsd.toml"),
    ],
)
def test_the_settings_file(environ: dict[str, str], path: str) -> None:
    assert settings_file({**HOME, **environ}) == Path(path)


def test_the_socket_is_in_the_root_or_as_configured() -> None:
    assert find_socket(Path("/r"), HOME) == Path("/r/.brainsurgeon/bsd.sock")
    assert find_socket(Path("/r"), HOME, "~/s") == Path("/home/ada/s")


def test_a_long_root_gets_a_short_socket_of_its_own() -> None:
    tail = len("/.brainsurgeon/bsd.sock")
    fits = Path("/" + "r" * (LONGEST_SOCKET_PATH - tail - 1))
    too_long = Path(f"{fits}r")
    assert find_socket(fits, HOME) == fits / ".brainsurgeon" / "bsd.sock"
    runtime = {**HOME, "XDG_RUNTIME_DIR": "/run/user/1"}
    short = find_socket(too_long, runtime)
    assert short.parent == Path("/run/user/1/bsd")
    assert short == find_socket(too_long, runtime)
    assert short != find_socket(Path(f"{fits}s"), runtime)
    for environ in (HOME, {"XDG_RUNTIME_DIR": "/" + "x" * 100}, {"XDG_RUNTIME_DIR": "relative"}):
        path = find_socket(too_long, environ)
        assert str(path).startswith("/tmp/bsd-")
        assert path.name == short.name


def test_a_configured_socket_that_is_too_long_is_an_error() -> None:
    fits = "/" + "s" * (LONGEST_SOCKET_PATH - 1)
    assert find_socket(Path("/r"), HOME, fits) == Path(fits)
    with pytest.raises(ConfigError, match="longer than 103 bytes"):
        find_socket(Path("/r"), HOME, fits + "s")


def test_a_missing_file_is_empty_unless_it_was_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert read_settings_file(path, required=False) == {}
    with pytest.raises(ConfigError, match="there is no settings file") as caught:
        read_settings_file(path, required=True)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"workers = 2\nlog_level = debug\n", ", line 2: not valid TOML: "),
        (b"workers = 2\n\n[x\n", ", line 3: not valid TOML: "),
        (b"workers = 2\nworkers = 3\n", ", line 2: not valid TOML: "),
        (b"workers = 2\n# \xff\n", ", line 2: not UTF-8 text"),
        (b"x = " + b"[" * 100_000, ": not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_named_with_the_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "bsd.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(path, required=False)
    assert caught.value.message.startswith(f"{path}{message}")
    assert caught.value.hint


def test_a_directory_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        read_settings_file(tmp_path, required=False)


def test_it_loads_no_large_library() -> None:
    program = """
import sys
import bsd.core.locations
assert not {"pydantic", "structlog", "filelock", "orjson"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
