"""Claude Code's `history.jsonl`: the prompts that users have typed, in all projects.

The file lies beside `projects/`, and its prompts outlast their sessions. A line is
`{"display":…,"pastedContents":{…},"timestamp":<ms>,"project":<directory>,"sessionId":…}`; older
versions wrote no `sessionId`. The file lacks prompts that were given with `claude -p`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import FileIO
from pathlib import Path

from bsd.core.files import UntrustedFile, makers, open_plain
from bsd.transcripts.agents.format import path_text
from bsd.transcripts.agents.program import RememberedPrompt
from bsd.transcripts.reader import parse_entry

_HISTORY = "history.jsonl"
_SESSION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BLOCK = 1 << 20
_LONGEST_LINE = 4 << 20
_MOST_BYTES = 256 << 20  # read from the end of the file
_LATEST_MS = 253_402_300_799_000  # the end of the year 9999
# Commands for the program itself, which are not sent to the model.
_COMMAND = re.compile(
    r"exit|quit|/(?:agents|clear|config|context|cost|doctor|exit|help|hooks|login|logout|mcp"
    r"|memory|model|permissions|plugin|quit|rename|resume|rewind|stats|status|theme|usage)(?:\s.*)?",
    re.DOTALL,
)

_LONGEST_NAME = 200  # characters of a directory's name; a longer name is cut and followed by a hash
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def project_name(directory: str, kept: str = "") -> str:
    """Return the name of the directory below `projects/` for sessions of a working directory.

    Args:
        directory: its path, or a pattern for paths.
        kept: the special characters of a pattern; they stay, so that the name is a pattern too.
    """
    is_pattern = any(character in kept for character in directory)
    name = "".join(each if each in kept else _in_name(each) for each in directory)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{'*' if is_pattern else _hash(directory)}"


@lru_cache(maxsize=1024)
def _directory(projects: Path, project: str) -> Path:
    return projects / project_name(project)


def _in_name(character: str) -> str:
    if character.isascii() and character.isalnum():
        return character
    return "-" if ord(character) <= 0xFFFF else "--"  # the program counts UTF-16 units


def _hash(text: str) -> str:
    """Return the program's hash for long names: 32 bits, signed, the absolute value in base 36."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    value = min(value, (1 << 32) - value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits


def remembered_prompts(
    projects: Path, left_out: Callable[[str], None]
) -> Iterator[RememberedPrompt]:
    """Yield the prompts in the history, in order; reads the file once, block by block.

    Args:
        projects: the directory of all projects.
        left_out: called with the reason for each line that is left out.

    Raises:
        OSError: the history cannot be read, is not a regular file, or belongs to another user.
    """
    path = projects.parent / _HISTORY
    try:
        descriptor = open_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with open(descriptor, "rb", buffering=0) as file:
        owner = os.fstat(descriptor).st_uid
        if owner not in makers(projects):
            raise UntrustedFile(path, f"it belongs to uid {owner}")
        for line in _lines(file, left_out):
            prompt = _parse(projects, line)
            if isinstance(prompt, str):
                left_out(prompt)
            else:
                yield prompt


def _lines(file: FileIO, left_out: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the lines that are not blank; lines that are too long are left out."""
    left = os.fstat(file.fileno()).st_size
    begins_in_a_line = left > _MOST_BYTES
    if begins_in_a_line:
        file.seek(left - _MOST_BYTES)
        left = _MOST_BYTES
        left_out(f"it lies before the last {_MOST_BYTES >> 20} MB")
    rest, dropping = b"", begins_in_a_line
    while left > 0 and (block := file.read(min(_BLOCK, left))):
        left -= len(block)
        *lines, rest = (rest + block).split(b"\n")
        if dropping and lines:
            del lines[0]
            dropping = False
        yield from filter(bytes.strip, lines)
        if dropping:
            rest = b""
        elif len(rest) > _LONGEST_LINE:
            left_out(f"it is longer than {_LONGEST_LINE >> 20} MB")
            rest, dropping = b"", True
    if rest.strip() and not dropping:
        yield rest


def _parse(projects: Path, line: bytes) -> RememberedPrompt | str:
    """Return the prompt in a line, or the reason why the line is left out."""
    if (said := parse_entry(line)) is None:
        return "it is torn, or not a JSON object"
    text, project, time = (said.get(key) for key in ("display", "project", "timestamp"))
    if not isinstance(text, str):
        return "it is not a prompt"
    if (project := path_text(project)) is None:
        return "its project is not a directory"
    if not isinstance(time, int | float) or isinstance(time, bool):
        return "its time is wrong"
    if not 0 <= time <= _LATEST_MS:
        return "its time is wrong"
    session = said.get("sessionId")
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        return "it names no session"
    return RememberedPrompt(
        session=session,
        project=project,
        directory=_directory(projects, project),
        time=time / 1000,
        text=text,
        is_command=_COMMAND.fullmatch(text.strip()) is not None,
    )
