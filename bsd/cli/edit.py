"""What people change by hand: `bsd edit`, `replace`, `discard` and `distill` (seed 003)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from bsd.actions.verb import perform
from bsd.actions.verbs import (
    CHANGE_CONTEXT,
    EDIT,
    SHOW_EDITABLE,
    ChangeContext,
    EditEntry,
    ShowEditable,
)
from bsd.cli import completion
from bsd.cli.call import Call, command
from bsd.cli.completion import SESSION, with_entry
from bsd.cli.output import counted, note, say
from bsd.cli.verb_words import VerbWords
from bsd.cli.verbs import CallHands, carry_out
from bsd.core.errors import BsdError, Invalid, NotFound, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.planning.edit import (
    EditableEntry,
    Edited,
    Wish,
    becoming,
    read_assignment,
    setting,
)
from bsd.planning.targets import ContextChanged

_EDITOR = "vi"  # what POSIX systems have when nobody has chosen


@command(
    "edit",
    """
    Opens the entry's JSON in $VISUAL or $EDITOR. Only values that differ afterwards are changed in
    the session, all other bytes stay. Ids, types, roles and what is extracted cannot be edited.
    `bsd undo` takes an edit back.

    \b
    Examples:
      bsd edit main/4f2a 1c556fa0
      bsd edit main/4f2a 1c556fa0 --set 'message.content[0].text="shorter"'
      bsd edit main/4f2a 1c556fa0 --file entry.json
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("entry", metavar="ENTRY", shell_complete=completion.entries)
@click.option("--set", "sets", multiple=True, metavar="PATH=JSON", help="Set one value; repeat it.")
@click.option("--file", "file", metavar="FILE", help="Read the whole entry's JSON; - is stdin.")
@click.pass_obj
def edit(
    call: Call, /, session: SessionName, entry: str, sets: tuple[str, ...], file: str | None
) -> int:
    if sets and file:
        raise Invalid("--set and --file exclude each other", hint="`bsd edit --help`")
    if sets:
        wish = setting([read_assignment(text) for text in sets])
        return _apply(call, session, entry, wish)
    if file:
        text = read_text(file)
        try:
            wish = becoming(text)
        except Invalid as problem:
            raise Invalid(f"{file}: {problem.message}", hint=problem.hint) from None
        return _apply(call, session, entry, wish)
    return _edit_by_hand(call, session, entry)


def _edit_by_hand(call: Call, session: SessionName, entry: str) -> int:
    call.surgeon()  # what is in flight is finished or undone first
    entry, shown = with_entry(
        call,
        session,
        entry,
        lambda one: (one, perform(SHOW_EDITABLE, CallHands(call), session, ShowEditable(one))),
    )
    with _draft(call.layout, session, shown) as file:
        before = file.read_bytes()
        _let_edit(file)
        after = file.read_bytes()
        if after == before:
            unchanged = Edited(False, shown.entry_id, shown.index, ())
            call.answer(unchanged, lambda told: _tell(told, session))
            return 0
        return _apply(call, session, entry, becoming(decoded(after)), shown.seen)


def _apply(
    call: Call, session: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> int:
    return carry_out(call, EDIT, session, EditEntry(entry, wish, seen), VerbWords(_tell))


def _tell(answer: Edited, session: SessionName) -> None:
    if not answer.edited:
        say("Nothing was changed")
        return
    entry = answer.entry_id or f"#{answer.index}"
    changed = ", ".join(answer.changed)
    say(f"Changed {counted(len(answer.changed), 'value')} of {entry}: {changed}")
    say(f"  `bsd undo {session} {answer.operation}` takes it back")


@contextmanager
def _draft(layout: Layout, session: SessionName, shown: EditableEntry) -> Iterator[Path]:
    """A private file with the entry's JSON, kept if what was written could not be applied.

    In a directory of its own: what the editor puts beside it is private, too.
    """
    try:
        make_private_dir(layout.refuse_outside(layout.edits))
        directory = Path(tempfile.mkdtemp(prefix=f"{session.session[:100]}-", dir=layout.edits))
        file = directory / "entry.json"
        before = shown.text.encode()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(before)
    except OSError as error:
        raise os_problem(error, f"writing to {layout.edits}") from error
    try:
        yield file
    except BaseException as error:  # Ctrl-C, too, must not cost what was written
        if not file.is_file() or file.read_bytes() == before:
            _remove_if_empty(directory, file)
        elif isinstance(error, BsdError):
            # Its own class, exit code and hint stay; where the work lies is what matters most.
            error.message = f"{error.message}; what you wrote is kept in {file}"
            name = shlex.quote(str(file))
            again = f"mend it, then bsd edit {session} {_entry_name(shown)} --file {name}"
            error.hint = again if error.hint is None else f"{error.hint}; {again}"
        else:
            note(f"what you wrote is kept in {file}")
        raise
    shutil.rmtree(directory, ignore_errors=True)  # an editor's backup, too


def _entry_name(shown: EditableEntry) -> str:
    return shlex.quote(shown.entry_id or f"#{shown.index}")


def _remove_if_empty(directory: Path, file: Path) -> None:
    """Remove a draft that nobody changed; what an editor that crashed put beside it stays."""
    file.unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def _let_edit(file: Path) -> None:
    """Wait until the person is done."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    editor = chosen or _EDITOR
    hint = "set $VISUAL or $EDITOR, or use --set PATH=JSON"
    if not (chosen or sys.stdin.isatty()):
        raise Invalid(f"there is no terminal for {editor} to work on", hint=hint)
    try:
        words = shlex.split(editor)
        # Ctrl-C is for the editor, which shares the terminal; ignoring it would make it deaf, too.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            done = subprocess.run([*words, str(file)], check=False)
        finally:
            signal.signal(signal.SIGINT, before)
    except (OSError, ValueError) as error:
        raise Invalid(f"the editor {editor!r} cannot be started: {error}", hint=hint) from error
    if done.returncode:
        raise BsdError(f"{editor} ended with {done.returncode}: nothing was changed", hint=hint)
    if not file.is_file():
        raise BsdError(f"{editor} left no file {file}: nothing was changed", hint=hint)


# --- bsd replace, discard, distill ---


_EXAMPLE = '[{"start": "…", "end": "…", "replacement": "…"}]'

include_user = click.option(
    "--include-user", is_flag=True, help="Look at what the user wrote as well."
)
dry_run = click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")


@command(
    "replace",
    """
    Both markers are taken literally and go with what is between them, at least 30 characters in
    all. They must match at exactly one place of the session's texts. --file does several at once,
    all or none: a JSON array of {"start", "end", "replacement"}. `bsd undo` takes it back.

    \b
    Examples:
      bsd replace main/4f2a --start 'npm install output:' --end 'added 847 packages' --replacement …
      bsd replace main/4f2a --file operations.json --dry-run
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--start", metavar="TEXT", help="Where the range begins.")
@click.option("--end", metavar="TEXT", help="Where it ends: the first one after the start.")
@click.option("--replacement", metavar="TEXT", help="What stands there instead; may be empty.")
@click.option("--file", "file", metavar="FILE", help="Read operations from JSON; - is stdin.")
@include_user
@dry_run
@click.pass_obj
def replace(
    call: Call,
    /,
    *,
    session: SessionName,
    file: str | None,
    include_user: bool,
    dry_run: bool,
    **texts: str | None,
) -> int:
    one = {name: texts[name] for name in ("start", "end", "replacement")}
    given = [name for name, value in one.items() if value is not None]
    if file is not None and given:
        raise Invalid(f"--file and --{given[0]} exclude each other", hint="`bsd replace --help`")
    if file is None and len(given) < len(one):
        missing = ", ".join(f"--{name}" for name in one if name not in given)
        raise Invalid(f"{missing} missing", hint="or --file FILE with several operations")
    targets = [one] if file is None else _operations(file)
    return _change(call, session, "replace", targets, include_user, dry_run)


def _operations(file: str) -> object:
    """The operations in a file: an array, or what the tool is given, {"targets": […]}."""
    document = read_json(file, _EXAMPLE)
    targets = document["targets"] if isinstance(document, dict) and "targets" in document else None
    return document if targets is None else targets


@command(
    "discard",
    """
    The text of each entry becomes [content discarded]; thinking and tool calls stay. HASH is what
    `bsd context` lists. All entries or none. `bsd undo` takes it back.

    \b
    Examples:
      bsd discard main/4f2a a1b2c3
      bsd discard main/4f2a a1b2c3 0f9e8d --dry-run
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("hashes", nargs=-1, required=True, metavar="HASH…")
@include_user
@dry_run
@click.pass_obj
def discard(
    call: Call, /, session: SessionName, hashes: tuple[str, ...], include_user: bool, dry_run: bool
) -> int:
    return _change(call, session, "discard", [[one] for one in hashes], include_user, dry_run)


@command(
    "distill",
    """
    The text of the entry becomes SUMMARY; thinking and tool calls stay. HASH is what `bsd context`
    lists. `bsd undo` takes it back.

    \b
    Example:
      bsd distill main/4f2a a1b2c3 'read 47 files: auth needs a refactoring'
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.argument("hash_", metavar="HASH")
@click.argument("summary", metavar="SUMMARY")
@include_user
@dry_run
@click.pass_obj
def distill(
    call: Call,
    /,
    *,
    session: SessionName,
    hash_: str,
    summary: str,
    include_user: bool,
    dry_run: bool,
) -> int:
    return _change(call, session, "distill", [[hash_, summary]], include_user, dry_run)


def _change(
    call: Call, session: SessionName, action: str, targets: Any, include_user: bool, dry_run: bool
) -> int:
    """Do what the context tool is asked for, and tell of it."""
    asked = ChangeContext(action, targets, include_user, dry_run)
    done = "Would change" if dry_run else "Changed"
    words = VerbWords(lambda answer, name: _tell_changed(answer, name, done))
    return carry_out(call, CHANGE_CONTEXT, session, asked, words)


def _tell_changed(answer: ContextChanged, session: SessionName, done: str) -> None:
    for one in answer.changed:
        say(
            f"entry {one.message_id}: {one.original_length:,} → {one.new_length:,} "
            f"characters, about {one.tokens_saved:,} tokens saved"
        )
    for warning in answer.warnings:
        note(warning)
    places = counted(len(answer.changed), "place")
    say(f"{done} {places} of {session}, about {answer.tokens_saved:,} tokens saved")
    if answer.operation is not None:
        say(f"  `bsd undo {session} {answer.operation}` takes it back")


# --- files that are named on the command line, `-` for the standard input ---


def read_text(file: str) -> str:
    """Read a file of UTF-8; raises NotFound, Forbidden, Invalid."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        hint = "name a file that is there, or - for the standard input"
        raise NotFound(f"there is no file {file}", hint=hint) from None
    except IsADirectoryError:
        raise Invalid(f"{file} is a directory", hint="name a file in it") from None
    except OSError as error:
        raise os_problem(error, f"reading {file}") from error
    return decoded(data, _called(file))


def read_json(file: str, example: str) -> Any:
    """Read a file of JSON, of which `example` is one; raises as `read_text` does."""
    text = read_text(file)
    if not text.strip():
        raise Invalid(f"{_called(file)} is empty", hint=f"write JSON into it, as in {example}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{_called(file)} is not JSON: {error}", hint=f"as in {example}") from None


def decoded(data: bytes, what: str = "this") -> str:
    """UTF-8 as text, with or without a byte order mark; raises Invalid."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise Invalid(f"{what} is not UTF-8: {why}", hint="save it as UTF-8") from None


def _called(file: str) -> str:
    return "the standard input" if file == "-" else file
