"""`bsd edit`, `replace`, `discard` and `distill`: changes made by hand (seed 003)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from bsd.actions.context_tool import change_context
from bsd.actions.edit import edit_entry, show_editable
from bsd.cli.call import BsdCommand, Call
from bsd.cli.names import with_entry
from bsd.cli.options import entry_argument, session_argument
from bsd.cli.output import counted, note, say
from bsd.core.errors import BsdError, Invalid, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.planning.edit import EditableEntry, Edited, Wish, becoming, read_assignment, setting
from bsd.planning.targets import ContextChanged

# Opened only when it is read: by then, root has become the owner of the session.
TEXT_FILE = click.File(encoding="utf-8-sig", lazy=True)
_EXAMPLE = '[{"start": "…", "end": "…", "replacement": "…"}]'


@click.command("edit", cls=BsdCommand)
@session_argument
@entry_argument
@click.option("--set", "sets", multiple=True, metavar="PATH=JSON", help="Set one value; repeat it.")
@click.option(
    "--file", type=TEXT_FILE, metavar="FILE", help="Read the whole entry's JSON; - is stdin."
)
@click.pass_obj
def edit_command(
    call: Call, /, session: SessionName, entry: str, sets: tuple[str, ...], file: TextIO | None
) -> None:
    """Change values of one entry, in your editor.

    Opens the entry's JSON in $VISUAL or $EDITOR. Only values that differ afterwards are changed in
    the session; all other bytes stay. Ids, types, roles and extracted values cannot be edited. `bsd
    undo` takes an edit back.

    \b
    Examples:
      bsd edit main/4f2a 1c556fa0
      bsd edit main/4f2a 1c556fa0 --set 'message.content[0].text="shorter"'
      bsd edit main/4f2a 1c556fa0 --file entry.json
    """
    if sets and file:
        raise Invalid("--set and --file exclude each other", hint="`bsd edit --help`")
    if sets:
        answer = _apply(call, session, entry, setting([read_assignment(text) for text in sets]))
    elif file:
        answer = _apply(call, session, entry, _read_entry(file))
    else:
        answer = _edit_by_hand(call, session, entry)
    call.answer(answer, lambda answer: tell_edited(answer, session))


def tell_edited(answer: Edited, session: SessionName) -> None:
    if not answer.edited:
        say("Nothing was changed")
        return
    entry = answer.entry_id or f"#{answer.index}"
    changed = ", ".join(answer.changed)
    say(f"Changed {counted(len(answer.changed), 'value')} of {entry}: {changed}")
    say(f"  `bsd undo {session} {answer.operation}` takes it back")


def _apply(
    call: Call, session: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> Edited:
    with call.context(changes=True) as context:
        return with_entry(
            call, session, entry, lambda entry: edit_entry(context, session, entry, wish, seen)
        )


def _read_entry(file: TextIO) -> Wish:
    text = _read(file)
    try:
        return becoming(text)
    except Invalid as problem:
        raise Invalid(f"{file.name}: {problem.message}", hint=problem.hint) from None


def _read(file: TextIO) -> str:
    """Read a file of UTF-8; raises Invalid."""
    try:
        return file.read()
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise Invalid(f"{file.name} is not UTF-8: {why}", hint="save it as UTF-8") from None


def _edit_by_hand(call: Call, session: SessionName, entry: str) -> Edited:
    """Open the entry in the user's editor, and apply the difference."""
    with call.context(changes=True) as context:  # operations in flight are finished or undone first
        shown = with_entry(
            call, session, entry, lambda entry: show_editable(context, session, entry)
        )
    with _draft(call.layout, session, shown) as file:
        _open_editor(file)
        with file.open(encoding="utf-8-sig", newline="") as stream:
            after = _read(stream)
        if after == shown.text:
            return Edited(edited=False, entry_id=shown.entry_id, index=shown.index, changed=())
        return _apply(call, session, _name_of(shown), becoming(after), shown.seen)


@contextmanager
def _draft(layout: Layout, session: SessionName, shown: EditableEntry) -> Iterator[Path]:
    """Make a private file with the entry's JSON; keep it if the user's text could not be applied.

    The file has a directory of its own, so that backup files of the editor are private, too.
    """
    try:
        make_private_dir(layout.refuse_outside(layout.edits))
        directory = Path(tempfile.mkdtemp(prefix=f"{session.session[:100]}-", dir=layout.edits))
        file = directory / "entry.json"
        file.touch(0o600)
        file.write_text(shown.text, encoding="utf-8", newline="")
    except OSError as error:
        raise os_problem(error, f"writing to {layout.edits}") from error
    try:
        yield file
    except BaseException as error:  # Ctrl-C, too, must not lose the user's text
        if not file.is_file() or file.read_bytes() == shown.text.encode():
            file.unlink(missing_ok=True)
            with suppress(OSError):  # files of an editor that crashed stay
                directory.rmdir()
        elif isinstance(error, BsdError):
            name = f"{shlex.quote(_name_of(shown))} --file {shlex.quote(str(file))}"
            again = f"correct it, then bsd edit {session} {name}"
            error.message = f"{error.message}; your text is kept in {file}"
            error.hint = again if error.hint is None else f"{error.hint}; {again}"
        else:
            note(f"your text is kept in {file}")
        raise
    shutil.rmtree(directory, ignore_errors=True)  # an editor's backup, too


def _name_of(shown: EditableEntry) -> str:
    return shown.entry_id or f"#{shown.index}"


def _open_editor(file: Path) -> None:
    """Open the user's editor and wait until it ends.

    Raises:
        Invalid: there is no terminal and no editor is set.
        BsdError: the editor failed, or removed the file.
    """
    hint = "set $VISUAL or $EDITOR, or use --set PATH=JSON"
    if not (os.environ.get("VISUAL") or os.environ.get("EDITOR") or sys.stdin.isatty()):
        raise Invalid("there is no terminal for an editor to work on", hint=hint)
    # Ctrl-C is for the editor, which shares the terminal and would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        click.edit(filename=str(file))
    except (click.ClickException, ValueError) as error:
        raise BsdError(f"nothing was changed: {error}", hint=hint) from error
    finally:
        signal.signal(signal.SIGINT, before)
    if not file.is_file():
        raise BsdError(f"the editor left no file {file}: nothing was changed", hint=hint)


# --- replace, discard, distill ---


include_user_option = click.option(
    "--include-user", is_flag=True, help="Include the user's messages."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would change; change nothing."
)


@click.command("replace", cls=BsdCommand)
@session_argument
@click.option("--start", metavar="TEXT", help="Where the range begins.")
@click.option("--end", metavar="TEXT", help="Where it ends: the first match after the start.")
@click.option("--replacement", metavar="TEXT", help="The new text; may be empty.")
@click.option(
    "--file", type=TEXT_FILE, metavar="FILE", help="Read operations from JSON; - is stdin."
)
@include_user_option
@dry_run_option
@click.pass_obj
def replace_command(
    call: Call,
    /,
    session: SessionName,
    file: TextIO | None,
    include_user: bool,
    dry_run: bool,
    **texts: str | None,
) -> None:
    """Replace a range of text.

    Both markers are matched literally. The markers and the text between them, at least 30
    characters in all, are replaced. They must match at exactly one place of the session's texts.
    --file applies several operations, all or none, from a JSON array of {"start", "end",
    "replacement"}. `bsd undo` takes the change back.

    \b
    Examples:
      bsd replace main/4f2a --start 'npm install output:' --end 'added 847 packages' --replacement …
      bsd replace main/4f2a --file operations.json --dry-run
    """
    given = [f"--{name}" for name, text in texts.items() if text is not None]
    missing = [f"--{name}" for name, text in texts.items() if text is None]
    if file is not None and given:
        raise Invalid(f"--file and {given[0]} exclude each other", hint="`bsd replace --help`")
    if file is None and missing:
        hint = "or --file FILE with several operations"
        raise Invalid(f"{', '.join(missing)} missing", hint=hint)
    targets = [texts] if file is None else _read_operations(file)
    _change(call, session, "replace", targets, include_user=include_user, dry_run=dry_run)


def _read_operations(file: TextIO) -> Any:
    """Return the operations in a file: an array, or the tool's arguments, {"targets": […]}."""
    text = _read(file)
    if not text.strip():
        raise Invalid(f"{file.name} is empty", hint=f"write JSON into it, as in {_EXAMPLE}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file.name} is not JSON: {error}", hint=f"as in {_EXAMPLE}") from None
    targets = document.get("targets") if isinstance(document, dict) else None
    return document if targets is None else targets


@click.command("discard", cls=BsdCommand)
@session_argument
@click.argument("hashes", nargs=-1, required=True, metavar="HASH…")
@include_user_option
@dry_run_option
@click.pass_obj
def discard_command(
    call: Call, /, session: SessionName, hashes: tuple[str, ...], include_user: bool, dry_run: bool
) -> None:
    """Discard the text of an entry.

    The text of each entry becomes [content discarded]; thinking and tool calls stay. HASH is from
    the list of `bsd context`. Either all entries are changed or none. `bsd undo` takes the change
    back.

    \b
    Examples:
      bsd discard main/4f2a a1b2c3
      bsd discard main/4f2a a1b2c3 0f9e8d --dry-run
    """
    targets = [[hash_] for hash_ in hashes]
    _change(call, session, "discard", targets, include_user=include_user, dry_run=dry_run)


@click.command("distill", cls=BsdCommand)
@session_argument
@click.argument("hash", metavar="HASH")
@click.argument("summary", metavar="SUMMARY")
@include_user_option
@dry_run_option
@click.pass_obj
def distill_command(
    call: Call,
    /,
    session: SessionName,
    hash: str,
    summary: str,
    include_user: bool,
    dry_run: bool,
) -> None:
    """Replace the text of an entry by a summary.

    The text of the entry becomes SUMMARY; thinking and tool calls stay. HASH is from the list of
    `bsd context`. `bsd undo` takes the change back.

    \b
    Example:
      bsd distill main/4f2a a1b2c3 'read 47 files: auth needs a refactoring'
    """
    targets = [[hash, summary]]
    _change(call, session, "distill", targets, include_user=include_user, dry_run=dry_run)


def _change(
    call: Call,
    session: SessionName,
    action: str,
    targets: Any,
    *,
    include_user: bool,
    dry_run: bool,
) -> None:
    """Run the agents' context tool, and print its answer."""
    with call.context(changes=not dry_run, session=session if dry_run else None) as context:
        answer = change_context(
            context, session, action, targets, include_user=include_user, dry_run=dry_run
        )
    call.answer(answer, lambda answer: tell_changed(answer, session, dry_run=dry_run))


def tell_changed(answer: ContextChanged, session: SessionName, *, dry_run: bool) -> None:
    for place in answer.changed:
        say(
            f"entry {place.message_id}: {place.original_length:,} → {place.new_length:,} "
            f"characters, about {place.tokens_saved:,} tokens saved"
        )
    for warning in answer.warnings:
        note(warning)
    done = "Would change" if dry_run else "Changed"
    places = counted(len(answer.changed), "place")
    say(f"{done} {places} of {session}, about {answer.tokens_saved:,} tokens saved")
    if answer.operation is not None:
        say(f"  `bsd undo {session} {answer.operation}` takes it back")
