"""What is said of content whose time was up: when it was deleted, and by which setting."""

from __future__ import annotations

from pathlib import Path

from bsd.foundation.audit import AuditLog
from bsd.foundation.layout import Layout
from bsd.session.notes import told_expired


def test_the_first_run_that_deleted_it_is_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for hour, keep in ((1, "12h"), (2, "24h"), (3, "7d")):
        AuditLog(layout.audit_file, clock=lambda hour=hour: hour * 3600.0).record(  # type: ignore[misc]
            actor="daemon",
            action="retention",
            expired_before=f"1970-01-01T0{hour - 1}:30:00.000Z",
            keep=keep,
        )
    assert told_expired(layout, "1970-01-01T01:00:00.000Z") == (
        "expired: it was taken out at 1970-01-01T01:00:00.000Z, and the setting `retention` of 24h"
        " let it be deleted at 1970-01-01T02:00:00.000Z"
    )
    assert told_expired(layout, "1970-01-01T03:00:00.000Z") is None
