"""Commands for the entries of one session: show, context, restore, set-extractable."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence

import click

from bsd.actions.context_tool import get_context
from bsd.actions.edit import set_extractable
from bsd.actions.files_touched import show_file
from bsd.actions.read_extracted import text_of_value
from bsd.actions.restore import restore
from bsd.actions.show import (
    ReadEntry,
    ShownEntries,
    ShownValue,
    WholeEntry,
    read_entry,
    show_entries,
    show_value,
)
from bsd.cli import completion
from bsd.cli.call import BsdCommand, Call
from bsd.cli.completion import KEYS, offering
from bsd.cli.names import with_entry
from bsd.cli.options import entry_argument, session_argument
from bsd.cli.outcomes import MEANINGS
from bsd.cli.output import counted, note, one_line, print_table, say, say_wrapped, size
from bsd.cli.pager import paged
from bsd.cli.progress import waiting
from bsd.cli.read_entry import tell_entry
from bsd.cli.shown_file import tell_file
from bsd.core.errors import Invalid
from bsd.core.layout import SessionName
from bsd.planning.edit import Extractable, ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.timing_words import words
from bsd.planning.view import Context, EntryView
from bsd.transcripts.reader import parse_entry

_PREVIEW = 200  # characters (seed 000, SP-06)


@click.command("show", cls=BsdCommand)
@session_argument
@click.argument("read", required=False, metavar="[ENTRY]", shell_complete=completion.entries)
@click.option(
    "--entry", metavar="ENTRY", shell_complete=completion.entries, help="Only this entry, in short."
)
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many entries.")
@click.option("--full", is_flag=True, help="Whole texts, extracted ones from the store.")
@click.option(
    "--key", metavar="KEY", help="Only this value of ENTRY: its path, or a segment of it."
)
@click.option(
    "--file", "path", metavar="PATH", help="Each read and change of this file, as the model saw it."
)
@click.option("--raw", is_flag=True, help="Do not render Markdown on a terminal.")
@click.option("--no-pager", is_flag=True, help="Do not use a pager for long output.")
@click.pass_obj
def show_command(
    call: Call,
    /,
    session: SessionName,
    *,
    read: str | None,
    entry: str | None,
    start: int,
    limit: int | None,
    full: bool,
    key: str | None,
    path: str | None,
    raw: bool,
    no_pager: bool,
) -> None:
    """Show the entries of a session, or one of them in full.

    📎 marks an entry with extracted values. If ENTRY is given, its texts are shown whole, extracted
    ones included; on a terminal, Markdown is rendered. --full prints whole lines, with the
    extracted values from the store. --key prints only the text of one value, to read or to pipe.
    The session is not changed. ENTRY is an id or a line number; #N is always the line number,
    counted from 0. --file shows the calls that read, change or name a file, with their results as
    the model got them; PATH is the end of the file's path, as in `bsd search --file`.

    \b
    Examples:
      bsd show main/4f2a --from 100 --limit 20
      bsd show main/4f2a 1c556fa0
      bsd show main/4f2a --entry '#45' --full --json
      bsd show main/4f2a --entry 1c556fa0 --key output | less
      bsd show main/4f2a --file src/auth.py
    """
    if read is not None and entry is not None:
        raise Invalid("ENTRY is given twice", hint=f"bsd show {session} {read}")
    entry = entry or read
    if path is not None:
        if entry is not None or key is not None:
            hint = f"bsd show {session} --file {path}"
            raise Invalid("--file cannot be combined with ENTRY or --key", hint=hint)
        with call.context(changes=False, session=session) as context:
            shown = show_file(context, session, path)
        with paged(wanted=not (no_pager or call.json)):
            call.answer(shown, tell_file)
        return
    if key is not None and entry is None:
        hint = f"bsd show {session} --entry ID --key {key}"
        raise Invalid("--key needs --entry", hint=hint)
    is_read = read is not None and key is None and not (full or call.json)

    def act(entry: str | None) -> ShownEntries | ShownValue | ReadEntry:
        if entry is not None and is_read:
            return read_entry(context, session, entry)
        if entry is not None and key is not None:
            return show_value(context, session, entry, key)
        return show_entries(context, session, entry=entry, start=start, limit=limit, full=full)

    with call.context(changes=False, session=session) as context, waiting(f"reading {session}"):
        answer = act(None) if entry is None else with_entry(call, session, entry, act)
    with paged(wanted=not (no_pager or call.json)):
        call.answer(answer, lambda answer: tell_shown(answer, raw=raw))


def tell_shown(found: ShownEntries | ShownValue | ReadEntry, *, raw: bool = False) -> None:
    if isinstance(found, ReadEntry):
        tell_entry(found, raw=raw)
        return
    if isinstance(found, ShownValue):
        _print_value(text_of_value(found.value))
        return
    if found.begins_in is not None:
        say_wrapped(found.begins_in.in_words())
    whole = [entry for entry in found.entries if isinstance(entry, WholeEntry)]
    for entry in whole:
        _print_whole(entry, full=found.full)
    if not whole:
        print_entries(found.entries)
        if found.resume:
            say(f"Continue it: {found.resume}")
        if found.wait:
            say_wrapped(f"It {words(found.wait, time.time())}")
    if found.damaged is not None and found.damaged.count:
        note(found.damaged.in_words())
    if found.left_alone is not None:
        note(f"bsd does not edit {found.session}: {found.left_alone}")


def _print_value(text: str) -> None:
    """Print a value: escaped on a terminal, unchanged in a file or a pipe."""
    if sys.stdout.isatty():
        say(text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def print_entries(views: Sequence[EntryView]) -> None:
    """Print entries as a table."""
    rows = [
        (
            str(view.index),
            view.id or "",
            view.type,
            size(view.size),
            "📎" if view.extracted else "",
            " ".join(_notes(view)),
            one_line(view.preview, 80),
        )
        for view in views
    ]
    columns = ("INDEX", "ID", "TYPE", "SIZE", "", "NOTES", "TEXT")
    print_table(
        columns, rows, right=("INDEX", "SIZE"), last_may_shrink=True, spare=("NOTES", "ID", "SIZE")
    )
    out = sum(view.extracted for view in views)
    say(f"\n{counted(len(views), 'entry')}, {out} of them extracted")


def _notes(view: EntryView) -> Iterator[str]:
    if view.extractable is not None:
        yield f"_extractable={str(view.extractable).lower()}"
    if view.restored is not None:
        yield f"restored {view.restored}"


def _print_whole(view: WholeEntry, *, full: bool) -> None:
    badge = "📎 extracted" if view.extracted else ""
    head = (f"#{view.index}", view.id or "(no id)", view.type, size(view.size), badge)
    say("  ".join(part for part in (*head, *_notes(view)) if part))
    if full:
        entry = parse_entry(view.line.encode("utf-8", "surrogateescape"))
        say(view.line if entry is None else json.dumps(entry, indent=2, ensure_ascii=False))
    else:
        say(f"  {one_line(view.preview, _PREVIEW)}")
    for key, value in view.content.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2)
        say(f"\n📎 {key} ({size(len(text.encode('utf-8', 'surrogatepass')))})")
        say(text if full else f"  {one_line(text, _PREVIEW)}")
    for key, why in view.unavailable.items():
        say(f"\n📎 {key}: {why}")
    say()


@click.command("context", cls=BsdCommand)
@session_argument
@click.pass_obj
def context_command(call: Call, /, session: SessionName) -> None:
    """List the entries of a session as an agent sees them.

    Lists every entry with the six-digit hash of its content, its size, and whether it can be or has
    been extracted.

    \b
    Examples:
      bsd context main/4f2a
      bsd context main/4f2a --json | jq -r '.extracted_ids[]'
    """
    with call.context(changes=False, session=session) as context, waiting(f"reading {session}"):
        answer = get_context(context, session)
    call.answer(answer, tell_context)


def tell_context(found: Context) -> None:
    columns = ("HASH", "INDEX", "ID", "TYPE", "SIZE", "EXTRACTABLE", "EXTRACTED")
    rows = [
        (
            entry.hash,
            str(entry.index),
            entry.id or "",
            entry.type,
            size(entry.size_bytes),
            "" if entry.extractable is None else str(entry.extractable).lower(),
            "yes" if entry.extracted else "",
        )
        for entry in found.entries
    ]
    print_table(columns, rows, right=("INDEX", "SIZE"), spare=("EXTRACTABLE", "ID"))
    out = f"{counted(found.extracted_entries, 'entry')} extracted"
    say(
        f"\n{found.session}: {counted(found.total_entries, 'entry')}, {size(found.size_bytes)}; "
        f"{out} ({size(found.extracted_size_bytes)}), {found.extractable_entries} extractable; "
        f"last extraction: {found.last_extracted_at or 'never'}"
    )


@click.command("restore", cls=BsdCommand)
@session_argument
@entry_argument
@click.option(
    "--keys",
    type=KEYS,
    metavar="KEY,…",
    help="Only these values, by path or by name; default: all.",
)
@click.pass_obj
def restore_command(call: Call, /, session: SessionName, entry: str, keys: list[str] | None) -> int:
    """Put one entry's values back, exact to the byte.

    ENTRY is the id in the placeholder [[extracted-ENTRY]]. A key is a value's path, which `bsd
    show` lists, or one segment of it; without --keys all values are put back. A restored entry is
    not extracted again for keep_after_restore_seconds.

    \b
    Examples:
      bsd restore main/4f2a 1c556fa0
      bsd restore main/4f2a 1c556fa0 --keys text,details
    """
    with call.context(changes=True) as context:
        answer = with_entry(
            call, session, entry, lambda entry: restore(context, session, entry, keys)
        )
    call.answer(answer, lambda answer: tell_restored(answer, session))
    return int(bool(answer.unavailable or (keys and answer.changed)))


def tell_restored(answer: Restored, session: SessionName) -> None:
    keys, sizes = answer.keys_restored, answer.sizes_bytes
    if keys:
        total = size(sum(sizes.values()))
        say(f"Restored {counted(len(keys), 'value')} ({total}) of {answer.entry_id} in {session}")
        for key in keys:
            say(f"  {key}  {size(sizes[key])}")
    for key, why in answer.unavailable.items():
        note(f"{key}: {why}")
    if answer.expired is not None:
        note(answer.expired)
    for key in answer.changed:
        note(f"{key}: it was changed after it was extracted, and stays as it is")
    if answer.previous_restored_at is not None:
        say(f"It was restored before, at {answer.previous_restored_at}. {answer.suggestion}")


_EXTRACTABLE: dict[str, bool | None] = {"true": True, "false": False, "unset": None}


def read_extractable(text: str) -> Extractable:
    """Parse a value of `_extractable`: `true`, `false`, a number, or `unset`; raises Invalid."""
    word = text.strip().lower()
    if word in _EXTRACTABLE:
        return _EXTRACTABLE[word]
    if word.isascii() and word.isdigit() and len(word) < 10:
        return int(word)
    hint = "true, false, a number, or unset"
    raise Invalid(f"{text!r} is not a value for _extractable", hint=hint)


@click.command("set-extractable", cls=BsdCommand)
@session_argument
@entry_argument
@click.argument(
    "value", metavar="true|false|N|unset", shell_complete=offering(lambda *_: _EXTRACTABLE)
)
@click.pass_obj
def set_extractable_command(call: Call, /, session: SessionName, entry: str, value: str) -> None:
    """Pin an entry, or extract it early.

    VALUE is false (never extract this entry), true (extract it regardless of its type, size and
    position), a number (keep it for this many messages instead of keep_recent), or unset. Any VALUE
    also ends the protection of an entry whose extraction was undone: the daemon may extract it
    again.

    \b
    Examples:
      bsd set-extractable main/4f2a 1c556fa0 false
      bsd set-extractable main/4f2a 1c556fa0 20
    """
    extractable = read_extractable(value)
    with call.context(changes=True) as context:
        answer = with_entry(
            call,
            session,
            entry,
            lambda entry: set_extractable(context, session, entry, extractable),
        )
    call.answer(answer, tell_extractable)


def tell_extractable(answer: ExtractableSet) -> None:
    now, before = (
        "unset" if value is None else str(value).lower()
        for value in (answer.extractable, answer.previous)
    )
    say(f"Set _extractable={now} for entry {answer.entry_id} (before: {before})")
    if answer.stays is not None:
        why = MEANINGS.get(answer.stays)
        note(f"It is not extracted now: {answer.stays}" + (f" ({why})" if why else ""))
