"""The files that tool calls name: changed, read, or named in a command or other arguments.

Only the arguments of a call are examined, by the names that the tools of known programs use. The
effect of a command on a file is not guessed, so such a file counts as named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import orjson

from bsd.transcripts.agents.entry import PLACEHOLDER_START, Entry
from bsd.transcripts.agents.format import ToolCall
from bsd.transcripts.spans import value_at


class FileUse(StrEnum):
    """The use of a file by a call, in descending order of importance."""

    CHANGED = "changed"
    READ = "read"
    NAMED = "named"  # in a shell command, or in an argument of another tool


class TouchedFile(NamedTuple):
    """A file in a call: its path as written in the call, normalised."""

    path: str
    use: FileUse


_CHANGING = frozenset(
    (
        *("write", "writefile", "filewrite", "create", "createfile", "update", "delete"),
        *("edit", "editfile", "fileedit", "multiedit", "notebookedit", "replace", "insert"),
        *("strreplace", "deletefile", "removefile", "movefile", "renamefile", "appendfile"),
        *("patch", "applypatch", "hashlineedit", "editnotebook"),
    )
)
_READING = frozenset(
    (
        *("read", "readfile", "fileread", "readmanyfiles", "readmultiplefiles", "notebookread"),
        *("view", "viewfile", "viewimage", "open", "openfile", "cat", "readtextfile"),
    )
)
# Tools whose argument `command` decides between several uses.
_EDITORS = frozenset(("strreplaceeditor", "strreplacebasededittool", "texteditor"))
# Names of arguments with a file, without case and underscores.
_PATHS = frozenset(
    (
        *("path", "paths", "filepath", "filepaths", "filename", "file", "files"),
        *("notebookpath", "targetfile", "absolutepath", "relativepath"),
    )
)
_COMMANDS = ("command", "cmd", "input", "script")  # `input`: arguments that are not an object

# A script may contain the end of a line as an escape.
_PATCHED = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): ([^\r\n`\\]{1,1000})")
_DIFFED = re.compile(r"^\+\+\+ (?:b/)?([^\t\r\n]{1,1000})", re.MULTILINE)
# A quoted text without a space is one word, regardless of its characters.
_WORD = re.compile(
    r"'([^'\s]{1,1000})'|\"([^\"\s$`]{1,1000})\"|([^\s'\"`;|&<>()$={}\[\],*?:\\!#]+)"
)
_ESCAPED = re.compile(r"\\([()\[\] ])")
_NO_COMMAND = re.compile(r"<<-?\s*['\"]?\w|\*\*\* Begin Patch")  # text from here on is no command
_FILE_NAME = re.compile(r".*[^./]\.[A-Za-z][A-Za-z0-9_-]{0,11}|(?:.*/)?(?:Make|Docker)file")
_LONGEST_PATH = 1000  # characters
_LONGEST_ARGUMENTS = 4 << 20  # characters, for arguments that are a JSON text
_LOOKED_AT = 4000  # characters of a command that are examined
_MOST_NAMED = 30  # files of one command that are listed


def touched_by(
    entry: Entry, call: ToolCall, original: Callable[[], Entry | None] = lambda: None
) -> list[TouchedFile]:
    """Return the files that a call names, each once with its most important use.

    Args:
        entry: the entry with the call.
        call: the call.
        original: returns the entry as it was before extraction. It is called if a value of the
            arguments was extracted and the other values name no changed or read file.
    """
    touched = touched_files(call.name, call_arguments(entry, call))
    if any(each.use is not FileUse.NAMED for each in touched) or not _is_lean(entry, call):
        return touched
    whole = original()
    return touched if whole is None else touched_files(call.name, call_arguments(whole, call))


def call_arguments(entry: Entry, call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; a text that is not an object is returned as `input`."""
    given = None if call.arguments is None else value_at(entry, call.arguments)
    if isinstance(given, str):
        if len(given) <= _LONGEST_ARGUMENTS and given.lstrip().startswith("{"):
            with suppress(orjson.JSONDecodeError):
                given = orjson.loads(given.encode("utf-8", "replace"))
        if isinstance(given, str):
            return {"input": given}
    return given if isinstance(given, dict) else {}


def touched_files(tool: str, arguments: dict[str, Any]) -> list[TouchedFile]:
    """Return the files that a call of this tool names, each once with its most important use."""
    found: dict[str, FileUse] = {}
    tool = _tool_name(tool)
    use = _use_of(tool, arguments)
    named = chain(
        ((path, use) for path in _paths_in(arguments)),
        ((path, FileUse.CHANGED) for path in _patched_in(tool, arguments)),
        ((path, use) for path in _in_commands(arguments) if use is FileUse.NAMED),
    )
    for text, its_use in named:
        path = normalised(text)
        if path and (path not in found or _ORDER[its_use] < _ORDER[found[path]]):
            found[path] = its_use
    return [TouchedFile(path, use) for path, use in found.items()]


_ORDER = {use: number for number, use in enumerate(FileUse)}


def _paths_in(arguments: dict[str, Any]) -> Iterator[str]:
    """Yield the arguments whose names denote paths."""
    for key, value in arguments.items():
        if key.replace("_", "").casefold() in _PATHS:
            yield from _texts((value,))


def _patched_in(tool: str, arguments: dict[str, Any]) -> Iterator[str]:
    """Yield the files that patches in the arguments change; unified diffs only for patch tools."""
    for text in _texts(arguments.values()):
        if "*** " in text:
            yield from _PATCHED.findall(text)
        if "patch" in tool and "+++ " in text:
            yield from _DIFFED.findall(text)


def _in_commands(arguments: dict[str, Any]) -> Iterator[str]:
    """Yield the files that shell commands or scripts in the arguments name."""
    for text in _texts(arguments.get(key) for key in _COMMANDS):
        yield from islice(_files_in(text), _MOST_NAMED)


def _tool_name(tool: str) -> str:
    """Return a tool's name without the name of its server, without case and separators."""
    name = tool.rpartition("__")[2].rpartition(".")[2]
    return name.replace("_", "").replace("-", "").casefold()


def _use_of(tool: str, arguments: dict[str, Any]) -> FileUse:
    if tool in _EDITORS:
        return FileUse.READ if arguments.get("command") == "view" else FileUse.CHANGED
    if tool in _CHANGING:
        return FileUse.CHANGED
    return FileUse.READ if tool in _READING else FileUse.NAMED


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield the strings among these values, and in lists among them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (each for each in value if isinstance(each, str))


def _files_in(command: str) -> Iterator[str]:
    """Yield the words of a shell command or script that look like the path of a file."""
    command = _NO_COMMAND.split(command[:_LOOKED_AT], maxsplit=1)[0]
    if _ESCAPED.search(command):  # treat a word with escapes as a quoted word
        command = re.sub(r"(?:[^\s\\'\"]|\\[()\[\] ])+", _quoted, command)
    for single, double, plain in _WORD.findall(command):
        word = single or double or plain
        is_path = word[0] != "-" and "//" not in word and "*" not in word
        if is_path and _FILE_NAME.fullmatch(word):
            yield word


def _quoted(word: re.Match[str]) -> str:
    text = _ESCAPED.sub(r"\1", word[0])
    return text if text == word[0] or " " in text else f"'{text}'"


def _is_lean(entry: Entry, call: ToolCall) -> bool:
    """Return whether a value of a call's arguments was extracted."""
    texts = _texts(call_arguments(entry, call).values())
    return any(PLACEHOLDER_START in text for text in texts)


# --- paths ---


def normalised(path: str) -> str:
    """Return a path with `.` and `..` resolved where possible; empty if it names no file."""
    if len(path) > _LONGEST_PATH or not path.isprintable():
        return ""
    parts: list[str] = []
    for part in path.strip().split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    if not parts or parts[-1] == "..":
        return ""
    return ("/" if path.lstrip().startswith("/") else "") + "/".join(parts)


class PathPattern:
    """Matches the end of a path, in whole components, without case: `auth.py`, `src/auth.py`.

    A `*` at the end stands for the rest of the last component: `auth*`.
    """

    def __init__(self, text: str) -> None:
        self.text = normalised(text.removesuffix("*"))
        self.is_open = text.endswith("*")
        self.name = PurePosixPath(self.text).name
        self._wanted = self.text.casefold()

    def matches(self, path: str, directory: str | None = None) -> bool:
        """Return whether a path matches; `directory` is its session's, for relative paths."""
        if "/" not in self.text:  # directories make no difference
            path = path.rpartition("/")[2]
        elif directory and not path.startswith("/"):
            path = normalised(f"{directory}/{path}")
        path = path.casefold()
        wanted = self._wanted
        if not wanted:
            return False
        if self.is_open:
            # All components of the pattern must match; the last is only the beginning of a name.
            *parents, last = wanted.removeprefix("/").split("/")
            *directories, name = path.removeprefix("/").split("/")
            ends = directories[len(directories) - len(parents) :] == parents
            return name.startswith(last) and ends and len(directories) >= len(parents)
        if wanted.startswith("/"):
            return path == wanted
        return path == wanted or path.endswith(f"/{wanted}")
