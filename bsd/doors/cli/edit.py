"""`bsd edit`: one entry in the editor, or values of it from the command line."""

from __future__ import annotations

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

import click

from bsd.doors.cli import complete
from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.files import decoded, read_text
from bsd.doors.cli.interrupt import stop_request
from bsd.doors.cli.names import with_entry
from bsd.doors.cli.output import counted, note, print_json, say
from bsd.doors.cli.verbs import CallHands
from bsd.foundation.errors import BsdError, Invalid, os_problem
from bsd.foundation.files import make_private_dir
from bsd.foundation.layout import Layout, SessionName
from bsd.session.session import Session
from bsd.surgery.edit import (
    EditableEntry,
    Edited,
    Wish,
    becoming,
    read_assignment,
    setting,
    show_entry,
)
from bsd.verbs.edit import EDIT, EditEntry
from bsd.verbs.verb import perform

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
@click.argument("entry", metavar="ENTRY", shell_complete=complete.entries)
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
    entry, shown = with_entry(call, session, entry, lambda one: (one, _shown(call, session, one)))
    with _draft(call.layout, session, shown) as file:
        before = file.read_bytes()
        _let_edit(file)
        after = file.read_bytes()
        if after == before:
            return _tell(call, session, Edited(shown.entry_id, shown.index, ()))
        return _apply(call, session, entry, becoming(decoded(after)), shown.seen)


def _shown(call: Call, session: SessionName, entry: str) -> EditableEntry:
    source, fmt = Session(call.layout, session).open()
    with source:
        return show_entry(source, fmt, entry)


def _apply(
    call: Call, session: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> int:
    with stop_request() as request:
        hands = CallHands(call, request)
        answer = with_entry(
            call,
            session,
            entry,
            lambda one: perform(EDIT, hands, session, EditEntry(one, wish, seen)),
        )
    _tell(call, session, answer)
    return request.exit_code


def _tell(call: Call, session: SessionName, answer: Edited) -> int:
    if call.json:
        print_json(answer.as_json())
    elif not answer.edited:
        say("Nothing was changed")
    else:
        entry = answer.entry_id or f"#{answer.index}"
        changed = ", ".join(answer.changed)
        say(f"Changed {counted(len(answer.changed), 'value')} of {entry}: {changed}")
        say(f"  `bsd undo {session} {answer.operation}` takes it back")
    return 0


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
