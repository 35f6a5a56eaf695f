"""The types by which a program's module lists bsd's additions to the program's own files.

A program's module returns additions; `bsd.setup` shows them as diffs, writes them and takes them
away. Nothing here reads or writes a file.
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
    PERMISSION = "permission"  # the tools may be called without asking


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object in a JSON file.

    Attributes:
        path: the keys that lead to the member, its own included; missing objects are created.
        lock: the directory that the program creates while it writes the file, if it does that.
        why_not: tells from the parsed file why the program would not accept the member.
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
        path: the keys that lead to the array; it and missing objects are created.
        mark: a text that stands in the element, by which a changed one is recognised.
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
    """A key of the top level of a TOML file.

    Attributes:
        path: the key alone.
        after: the beginning of the line after which the key is best read, if there is one.
    """

    part: SetupPart
    file: Path
    path: tuple[str]
    value: str
    after: str


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that bsd adds; `content` names the file of bsd's package that it is a copy of."""

    part: SetupPart
    file: Path
    content: str


Addition = JsonMember | JsonElement | TomlTable | TomlKey | WholeFile


@dataclass(frozen=True, slots=True)
class SetupCommands:
    """The commands that bsd has other programs run.

    Attributes:
        mcp: starts the MCP server.
        hook: tells the daemon of an event, for a shell; None where no hook is wanted.
        hook_script: the path of the script in it.
        options: global options by which bsd finds its root and settings, if it needs any.
    """

    mcp: tuple[str, ...]
    hook: str | None
    hook_script: str
    options: tuple[str, ...] = ()


class AgentSetup(NamedTuple):
    """How bsd is set up for one program.

    Attributes:
        title: the program's name as people write it.
        directory: where its sessions usually are, by the environment.
        additions: bsd's additions to the program's files, by the commands and the environment.
        is_root: the directory is a root of bsd; of other programs it is a source.
    """

    title: str
    directory: Callable[[Mapping[str, str]], Path]
    additions: Callable[[SetupCommands, Mapping[str, str]], list[Addition]]
    is_root: bool = False


SKILL_NAME = "brainsurgeon"


def tools_skill(directory: Path) -> WholeFile:
    """Return the skill for programs whose agents have bsd's tools over MCP."""
    return WholeFile(SetupPart.SKILL, directory / SKILL_NAME / "SKILL.md", "tools/SKILL.md")
