"""Writes bsd(1) from what the commands say of themselves; the words around them stand here."""

from __future__ import annotations

import json
import re
from inspect import cleandoc

import click

from bsd import __version__
from bsd.cli.commands import SECTIONS
from bsd.cli.main import bsd
from bsd.core.config import setting_descriptions
from bsd.core.settings import VARIABLES, Settings

_EXIT_CODES = {
    "0": "done",
    "1": "failed",
    "2": "wrong usage",
    "3": "no daemon is running (\\fBbsd status\\fP, \\fBbsd service status\\fP)",
    "4": "a session is in use; the same call may succeed later",
    "69": "something that is needed is not available",
    "75": "a passing failure; everything is as it was",
    "77": "no permission",
    "78": "wrong configuration",
}
_SIGNALS = {
    "SIGTERM, SIGINT": "finish the commit that is going on, and end; a second one ends at once",
    "SIGHUP": "read the settings again, and reopen the log",
    "SIGUSR1": "write state and stacks to the log",
}
_FILES = {
    "$XDG_CONFIG_HOME/bsd/bsd.toml": "settings that are fixed at start",
    "ROOT/.brainsurgeon/config.json": "settings that work at once (\\fBbsd config\\fP)",
    "ROOT/.brainsurgeon/bsd.sock": "where the daemon answers: HTTP, for its owner only",
    "ROOT/.brainsurgeon/audit.jsonl": "one line for each change",
    "ROOT/extracted/": "what was taken out of the sessions",
    "ROOT/logs/brainsurgeon.log": "the log: one JSON document a line",
}
_DESCRIPTION = """\
AI agents write everything they see and think into transcripts: JSONL files that only grow. bsd
moves the large old values of such a transcript into a store beside it and leaves a short
placeholder. A value comes back, exact to the byte, when you or the agent asks for it. It is
kept in the store for 24 hours (the setting `retention`), then, compressed, in the archive, for as
long as `archive_retention` says: for ever, by default. With `archive` set to false it is deleted
for good after that time, and its placeholder stays.

`bsd run` does this by itself, as a service. All other commands work with or without it."""


def man_page() -> str:
    """Return the page, in the man macros of roff; ASCII only."""
    lines = [
        '.\\" Made by `make generated` from the command line itself; do not edit.',
        f'.TH BSD 1 "" "bsd {__version__}" "User Commands"',
        ".SH NAME",
        "bsd \\- keeps AI\\-agent session files lean by moving large old values into a store",
        ".SH SYNOPSIS",
        "\\fBbsd\\fP [\\fIOPTIONS\\fP] \\fICOMMAND\\fP [\\fIARGS\\fP]...",
        ".SH DESCRIPTION",
        *_paragraphs(_DESCRIPTION),
        ".SH OPTIONS",
        *_global_options(),
        ".SH COMMANDS",
        *_commands(),
        ".SH EXIT STATUS",
        *_list(_EXIT_CODES),
        ".SH SIGNALS",
        "\\fBbsd run\\fP understands:",
        *_list(_SIGNALS),
        ".SH ENVIRONMENT",
        *_environment(),
        ".SH SETTINGS",
        "Those that \\fBbsd config\\fP shows and changes; they work at once.",
        *_settings(),
        ".SH FILES",
        "ROOT is the OpenClaw directory, or \\fI$XDG_DATA_HOME/bsd\\fP where there is no OpenClaw.",
        *_list(_FILES),
    ]
    return "\n".join(lines) + "\n"


def _global_options() -> list[str]:
    context = click.Context(bsd)
    records = (parameter.get_help_record(context) for parameter in bsd.params)
    return _list({_escaped(name): _marked(text) for name, text in filter(None, records)})


def _commands() -> list[str]:
    context = click.Context(bsd, info_name="bsd")
    lines = []
    for title, commands in SECTIONS.items():
        lines.append(f".SS {_escaped(title)}")
        for name in commands:
            command = bsd.get_command(context, name)
            assert command is not None, name
            lines += _command(command, click.Context(command, context, name))
    return lines


def _command(command: click.Command, context: click.Context) -> list[str]:
    pieces = command.collect_usage_pieces(context)
    usage = " ".join(["\\fB" + _escaped(context.command_path) + "\\fP", *map(_escaped, pieces)])
    lines = [".TP", usage, *_paragraphs(cleandoc(command.help or ""), inside=True)]
    records = [
        record
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name != "json"
        if (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        lines += [".RS", *_list({_escaped(name): _marked(text) for name, text in records}), ".RE"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            lines += _command(below, click.Context(below, context, name))
    return lines


def _environment() -> list[str]:
    found = {
        "OPENCLAW_ROOT": "the root: the OpenClaw directory, or bsd's own",
        "BRAINSURGEON_AGENTS_DIR": "its directory \\fIagents\\fP, if OPENCLAW_ROOT is not set",
    }
    for variable, setting in VARIABLES.items():
        description = Settings.model_fields[setting].description or ""
        found[variable] = f"the setting \\fB{_escaped(setting)}\\fP: {_marked(description)}"
    return _list(found)


def _settings() -> list[str]:
    """What the page says of them, in the page's groups."""
    groups: dict[str, dict[str, str]] = {}
    for name, one in setting_descriptions().items():
        choices = [
            f'"{value}"' + (f" ({label})" if label != value else "")
            for value, label in one.choices.items()
        ]
        default = json.dumps(one.default)
        said = [
            f"{one.label}.",
            one.help,
            f"{', '.join(choices)}." if choices else "",
            f"Default: {default}" if len(default) < 60 else "",  # no line could hold it
        ]
        groups.setdefault(one.group, {})[_escaped(name)] = _marked(" ".join(filter(None, said)))
    return [line for place, found in groups.items() for line in (f".SS {place}", *_list(found))]


def _list(items: dict[str, str]) -> list[str]:
    """A list of things and what is to be said of them, both in roff already."""
    return [line for name, text in items.items() for line in (".TP", f"\\fB{name}\\fP", text)]


def _paragraphs(text: str, *, inside: bool = False) -> list[str]:
    """Text as click takes it: paragraphs, some of them marked to keep their lines."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if lines:
            lines.append(".IP" if inside else ".PP")
        kept = paragraph.partition("\b\n")[2]
        if kept:
            lines += [".nf", *map(_escaped, kept.splitlines()), ".fi"]
        else:
            lines.append(_marked(" ".join(paragraph.split())))
    return lines


def _marked(text: str) -> str:
    """Escape a sentence; what stands between `…` is set in bold."""
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fP", _escaped(text))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text.startswith((".", "'")) else text
