"""Types with which a program's module lists bsd's additions to the program's own files.

A program's module returns additions; `bsd.setup` shows them as diffs, writes them and removes them.
This module reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class SetupPart(StrEnum):
    """The purpose of an addition."""

    ROOT = "root"  # bsd.toml names the root of bsd
    SOURCE = "source"  # bsd.toml names the program's sessions
    MCP = "mcp"  # the program starts bsd's tools for its agents
    SKILL = "skill"  # the text that explains them
    HOOKS = "hooks"  # the program tells bsd's daemon when a session is idle
    PERMISSION = "permission"  # the tools may be called without confirmation


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object in a JSON file.

    Attributes:
        path: the keys that lead to the member, including its own; missing objects are created.
        lock: the directory that the program creates while it writes the file, if any.
        why_not: returns why the program would not accept the member, from the parsed file.
    """

    part: SetupPart
    file: Path
    path: tuple[str, ...]
    value: Any
    lock: Path | None = None
    why_not: Callable[[Mapping[str, Any]], str | None] | None = None


@dataclass(frozen=True, slots=True)
class JsonElement:
    """An element of an array in a JSON file.

    Attributes:
        path: the keys that lead to the array; the array and missing objects are created.
        mark: a text in the element that identifies it even after a change.
    """

    part: SetupPart
    file: Path
    path: tuple[str, ...]
    value: Any
    mark: str


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a TOML file, or a new element of an array of tables (`in_array`).

    Attributes:
        path: the keys that lead to it.
        value: its members.
    """

    part: SetupPart
    file: Path
    path: tuple[str, ...]
    value: dict[str, Any]
    in_array: bool = False


@dataclass(frozen=True, slots=True)
class TomlKey:
    """A key at the top level of a TOML file.

    Attributes:
        path: the key alone.
        after: the beginning of the line after which the key belongs, if there is such a line.
    """

    part: SetupPart
    file: Path
    path: tuple[str]
    value: str
    after: str


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that bsd adds; `content` names the file in bsd's package that is copied."""

    part: SetupPart
    file: Path
    content: str


Addition = JsonMember | JsonElement | TomlTable | TomlKey | WholeFile


@dataclass(frozen=True, slots=True)
class SetupCommands:
    """The commands of bsd that other programs run.

    Attributes:
        mcp: starts the MCP server.
        hook: shell command that tells the daemon of an event; None: no hooks.
        hook_script: the path of the script in `hook`.
        options: global options with which bsd finds its root and settings, if necessary.
    """

    mcp: tuple[str, ...]
    hook: str | None
    hook_script: str
    options: tuple[str, ...] = ()


class AgentSetup(NamedTuple):
    """The setup of bsd for one program.

    Attributes:
        title: the program's name as users write it.
        directory: returns the usual directory of its sessions, from the environment.
        additions: returns bsd's additions to the program's files.
        is_root: whether the directory is a root of bsd; otherwise it is a source.
    """

    title: str
    directory: Callable[[Mapping[str, str]], Path]
    additions: Callable[[SetupCommands, Mapping[str, str]], list[Addition]]
    is_root: bool = False


SKILL_NAME = "brainsurgeon"


def tools_skill(directory: Path) -> WholeFile:
    """Return the skill for programs whose agents have bsd's tools over MCP."""
    return WholeFile(SetupPart.SKILL, directory / SKILL_NAME / "SKILL.md", "tools/SKILL.md")


def server_and_skill(
    directory: Path, file: str, commands: SetupCommands, **members: Any
) -> list[Addition]:
    """Return the additions for programs that list MCP servers as `mcpServers` in a JSON file.

    Args:
        directory: of the program's settings; `skills/` is in it.
        file: the name of the JSON file.
        members: of the server, before the usual ones.
    """
    program, *arguments = commands.mcp
    server = {**members, "command": program, "args": arguments}
    return [
        JsonMember(SetupPart.MCP, directory / file, ("mcpServers", "bsd"), server),
        tools_skill(directory / "skills"),
    ]
