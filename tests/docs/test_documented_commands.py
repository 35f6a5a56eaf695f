"""Every command and route in the documents is tried.

- A block of kind `console` holds lines that begin with `$ `, and below each the output of that
  command, which may be shortened: `…` stands for any text, and lines may be left out. The test runs
  the commands of a page in their order, in the home that `home.py` describes. A command must end
  with 0, or, if the page shows a line `Error: …`, with another code. `curl --unix-socket …` asks a
  daemon that runs beside the commands; the daemon does not extract by itself.
- A block of kind `sh` holds commands that no test can run (`pip`, `sudo`, `systemctl`, `docker`,
  questions on a terminal). Each `bsd …` in it must be a known command with known options. The same
  holds for `bsd …` in a sentence, and `GET /api/…` must be a known route.

`python -m tests.docs PAGE…` runs pages and prints the output of each command.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from bsd.cli.call import Call
from bsd.cli.main import bsd
from tests.docs.pages import (
    PAGES,
    TOP,
    console_commands,
    inline_commands,
    inline_routes,
    shell_commands,
)
from tests.docs.terminal import differences, terminal
from tests.http.fake_daemon import app_over

_WITH_COMMANDS = [page for page in PAGES if console_commands(page.read_text(encoding="utf-8"))]


def _name(page: Path) -> str:
    return str(page.relative_to(TOP))


@pytest.mark.daemon
@pytest.mark.parametrize("page", _WITH_COMMANDS, ids=_name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, short_path: Path) -> None:
    commands = console_commands(page.read_text(encoding="utf-8"))
    wrong = []
    with terminal(short_path, commands) as run:
        for command in commands:
            code, printed = run(command.text)
            if told := differences(command, code, printed):
                place = f"{_name(page)}:{command.line}: $ {command.text}"
                wrong.append("\n".join([place, *told, "it prints:", printed]))
    assert not wrong, "\n\n".join(wrong)


def _parse(words: list[str], *, whole: bool) -> None:
    """Parse the words of a call of bsd as click does.

    Args:
        whole: the options have their values. In a sentence an option may stand alone.

    Raises:
        click.UsageError: a command or an option is not known.
    """
    command: click.Command = bsd
    context = click.Context(bsd, info_name="bsd", obj=Call(), **bsd.context_settings)
    rest = words[1:]
    while True:
        if whole or isinstance(command, click.Group):
            _, rest, _ = command.make_parser(context).parse_args(list(rest))
        else:
            _check_names(rest, context)
        if not isinstance(command, click.Group) or not rest or rest[0].isupper():
            return
        if rest[0] not in command.list_commands(context) and command.name == "secrets":
            rest = ["list", *rest]  # it may be left out
        name, below, rest = command.resolve_command(context, rest)
        assert below is not None
        context = click.Context(below, context, name)
        command = below


def _check_names(words: list[str], context: click.Context) -> None:
    """Raise NoSuchOption if the words contain an option that the command does not have."""
    known = {"--help"}
    for parameter in context.command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    for word in words:
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z-]+", name) and name not in known:
            raise click.NoSuchOption(name, ctx=context)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_in_blocks_and_sentences_are_known(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    calls = [(words, True) for words in shell_commands(text)]
    calls += [(words, False) for words in inline_commands(text)]
    wrong = []
    for words, whole in calls:
        try:
            _parse(words, whole=whole)
        except click.UsageError as problem:
            wrong.append(f"{' '.join(words)}: {problem.format_message()}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_routes_in_sentences_are_known(page: Path, root: Path) -> None:
    wanted = set(inline_routes(page.read_text(encoding="utf-8")))
    if not wanted:
        return
    known = [
        (method.upper(), re.compile(re.sub(r"\\{[^/]+\\}", "[^/]+", re.escape(path))))
        for path, methods in app_over(root).openapi()["paths"].items()
        for method in methods
    ]
    unknown = {
        (method, path)
        for method, path in wanted - {("GET", "/api/openapi.json")}
        if not any(method == other and pattern.fullmatch(path) for other, pattern in known)
    }
    assert unknown == set()


def test_a_command_that_is_not_known_is_found() -> None:
    for line in ("bsd extrct", "bsd extract --dry", "bsd config sets a 1"):
        with pytest.raises(click.UsageError):
            _parse(line.split(), whole=True)
    _parse(["bsd", "extract", "--dry-run", "main/4f2a"], whole=True)
    _parse(["bsd", "restore-all", "--to", "main/4f2a"], whole=False)
