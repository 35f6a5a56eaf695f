"""`bsd context`: the table for people."""

from __future__ import annotations

from bsd.doors.cli.output import print_table, say
from bsd.doors.cli.text import counted, size
from bsd.doors.cli.verbs import verb_command
from bsd.foundation.layout import SessionName
from bsd.surgery.view import Context


def _tell(found: Context, _: SessionName) -> None:
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
    print_table(columns, rows, right=("INDEX", "SIZE"))
    out = f"{counted(found.extracted_entries, 'entry')} extracted"
    stored = size(found.extracted_size_bytes)
    say(
        f"\n{found.session}: {counted(found.total_entries, 'entry')}, "
        f"{size(found.size_bytes)}; {out} ({stored}), "
        f"{found.extractable_entries} extractable; "
        f"last extraction: {found.last_extracted_at or 'never'}"
    )


context = verb_command("get_context", _tell)
