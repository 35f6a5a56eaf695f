"""The pages of the documents: their fenced blocks, and the commands and routes in their text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).parents[2]
DOCS = TOP / "contrib" / "docs"
PAGES = (TOP / "README.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^( *)(`{3,})([\w-]*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)  # in which messages of bsd may stand
_BEFORE = re.compile(r"sudo|env|exec|[A-Z_]+=.*|-.+")  # words before the name of a command
_ENDS_COMMAND = {"|", "||", "&", "&&", ";", "(", ")", "<", ">", ">>", "2>", "#"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is the 1-based number of its first line."""

    kind: str
    text: str
    line: int


@dataclass
class Command:
    """A line after `$ ` in a `console` block, and the output that the page shows."""

    text: str
    line: int
    shown: list[str] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = []
    for match in _FENCE.finditer(text):
        indent = len(match[1])
        lines = [line[indent:] for line in match[4].splitlines()]
        number = text.count("\n", 0, match.start()) + 2
        found.append(Block(match[3], "\n".join(lines), number))
    return found


def console_commands(text: str) -> list[Command]:
    """Return the commands of all `console` blocks of a page, in their order."""
    commands: list[Command] = []
    for block in blocks(text):
        if block.kind != "console":
            continue
        current: Command | None = None
        for number, line in enumerate(block.text.splitlines(), block.line):
            if line.startswith("$ "):
                current = Command(line[2:], number)
                commands.append(current)
            elif current is None:
                raise ValueError(f"line {number}: a console block begins with a line after `$ `")
            elif current.text.endswith("\\") and not current.shown:
                current.text = f"{current.text[:-1].rstrip()} {line.strip().removeprefix('> ')}"
            else:
                current.shown.append(line)
    return commands


def shell_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `bsd …` in the `sh` and `console` blocks of a page."""
    for block in blocks(text):
        if block.kind not in {"sh", "bash", "shell", "console"}:
            continue
        for line in re.sub(r"\\\n", " ", block.text).splitlines():
            if block.kind != "console":
                yield from _calls(line)
            elif line.startswith("$ "):
                yield from _calls(line[2:])


def inline_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `bsd …` that stands as code in a sentence."""
    for code in _CODE.findall(_HEADING.sub("", _FENCE.sub("", text))):
        if code.startswith("bsd ") and "://" not in code:
            words = re.sub(r"[\[\]()]", " ", code).replace("…", " ").split()
            yield [word for word in words if word != "|"]


def inline_routes(text: str) -> Iterator[tuple[str, str]]:
    """Yield method and path of each route that stands as code in a sentence or a table."""
    for code in _CODE.findall(_FENCE.sub("", text)):
        if found := re.fullmatch(r"(GET|POST|PUT|DELETE) (/api/[^\s?…]*)(\?\S*)?", code):
            yield found[1], found[2]


def _calls(line: str) -> Iterator[list[str]]:
    """Yield the words of each call of bsd in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    command: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _ENDS_COMMAND:
            command.append(word)
            continue
        while command and _BEFORE.fullmatch(command[0]):
            command = command[2 if command[0] in {"-u", "--user"} else 1 :]
        if command and command[0].rpartition("/")[2] == "bsd":
            yield ["bsd", *command[1:]]
        command = []
