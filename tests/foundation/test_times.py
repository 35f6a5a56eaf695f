"""The one form of a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bsd.foundation.spelling import iso_utc


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_999, UTC), "2026-01-02T03:04:05.678Z"),
        (
            datetime(2026, 1, 2, 1, 0, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-01T23:00:00.000Z",
        ),
    ],
)
def test_writes_utc_with_milliseconds(moment: float | datetime, text: str) -> None:
    assert iso_utc(moment) == text


def test_a_moment_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        iso_utc(datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None))
