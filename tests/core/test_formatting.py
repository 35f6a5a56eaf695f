"""Durations (SPEC §4's last paragraph, seed 000's SP-02) and moments, written and read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.errors import Invalid
from bsd.core.formatting import (
    DAY,
    HOUR,
    LIFETIMES,
    LONGEST,
    MINUTE,
    SHORTEST,
    WEEK,
    format_duration,
    iso_utc,
    lifetime_seconds,
    meant,
    nearest,
    parse_duration,
    shown,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("24h", 86_400_000),
        ("1d", 86_400_000),
        ("6h30m", 23_400_000),
        ("5d", 432_000_000),
        ("5D", 432_000_000),
        ("1d12h", 36 * HOUR),
        ("12h1d", 36 * HOUR),
        ("1D12H", 36 * HOUR),
        ("2d 4h", 52 * HOUR),
        (" 7d ", 7 * DAY),
        ("1w1d1h1m", WEEK + DAY + HOUR + MINUTE),
        ("030m", SHORTEST),
        ("30m", SHORTEST),
        ("0h30m", SHORTEST),
        ("52w", LONGEST),
        ("364d", LONGEST),
        ("51w7d", LONGEST),
    ],
)
def test_reads(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "5x",
        "",
        " ",
        "5",
        "h",
        "0",
        "-5d",
        "+5d",
        "1.5h",
        "1e3m",
        "5 d",
        "1d12",
        "d1",
        "1d1d",
        "1h 1H",
        "5s",
        "5ms",
        "1y",
        "1d,2h",
        "1d\x00",
        "٣d",
        "5\u2060d",
        "never",
    ],
)
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(text)
    assert caught.value.message == f"Invalid duration '{text}'. Use m, h, d, or w"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("29m", "Duration too short: 29m. Minimum: 30 minutes (30m)"),
        ("0m", "Duration too short: 0m. Minimum: 30 minutes (30m)"),
        ("53w", "Duration too long: 53w. Maximum: 52 weeks (52w)"),
        ("52w1m", "Duration too long: 52w1m. Maximum: 52 weeks (52w)"),
        ("365d", "Duration too long: 365d. Maximum: 52 weeks (52w)"),
    ],
)
def test_range_errors_name_the_bound(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "allowed"), [("59m", False), ("1h", True), ("2h", True), ("2h1m", False)]
)
def test_a_caller_may_set_other_bounds(text: str, allowed: bool) -> None:
    if allowed:
        assert parse_duration(text, minimum=HOUR, maximum=2 * HOUR) in (HOUR, 2 * HOUR)
        return
    with pytest.raises(Invalid, match=r"Minimum: 1 hour \(1h\)|Maximum: 2 hours \(2h\)"):
        parse_duration(text, minimum=HOUR, maximum=2 * HOUR)


def test_a_bound_of_several_units_is_named_too() -> None:
    with pytest.raises(Invalid, match=r"Maximum: 90 minutes \(90m\)"):
        parse_duration("91m", minimum=0, maximum=90 * MINUTE)
    assert parse_duration("0m", minimum=0) == 0


def test_absurd_numbers_are_out_of_range_not_a_crash() -> None:
    with pytest.raises(Invalid, match=r"Duration too long: 9+\.\.\."):
        parse_duration("9" * 100_000 + "w")
    assert parse_duration("0" * 100_000 + "30m") == SHORTEST


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0m"),
        (MINUTE - 1, "0m"),
        (MINUTE, "1m"),
        (HOUR - 1, "59m"),
        (HOUR, "1h"),
        (24 * HOUR, "1d"),
        (52 * HOUR, "2d 4h"),
        (36 * HOUR, "1d 12h"),
        (7 * DAY, "1w"),
        (14 * DAY, "2w"),
        (LONGEST, "52w"),
        (WEEK + DAY + HOUR + MINUTE, "1w 1d 1h 1m"),
    ],
)
def test_writes(ms: int, text: str) -> None:
    assert format_duration(ms) == text


def test_writes_no_negative_durations() -> None:
    with pytest.raises(ValueError, match="not negative"):
        format_duration(-1)


@given(st.integers(0, LONGEST))
def test_what_is_written_is_read_again(ms: int) -> None:
    assert parse_duration(format_duration(ms), minimum=0) == ms - ms % MINUTE


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(Invalid):
        assert SHORTEST <= parse_duration(text) <= LONGEST


# --- the single form of a moment ---


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


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86_400.0), ("30m", 1800.0), ("never", None), (" Never ", None)]
)
def test_how_long_something_is_kept(text: str, seconds: float | None) -> None:
    assert lifetime_seconds(text) == seconds


@pytest.mark.parametrize("text", ["29m", "53w", "forever", ""])
def test_no_lifetime(text: str) -> None:
    with pytest.raises(Invalid):
        lifetime_seconds(text)
    with suppress(Invalid):  # callers may set other bounds
        assert lifetime_seconds(text, minimum=MINUTE, maximum=60 * WEEK) is not None


# --- suggestions: only very similar words, unless the nearest word is wanted ---


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("permanant", "; did you mean permanent?"),
        ("Sesion", "; did you mean session?"),
        ("nope", ""),
        ("", ""),
    ],
)
def test_what_was_probably_meant(word: str, told: str) -> None:
    assert meant(word, LIFETIMES) == told


def test_the_nearest_of_all() -> None:
    assert nearest("KEEP_recent", ["scope", "keep_recent"]) == "keep_recent"
    assert nearest("", ["scope"]) == "scope"


def test_a_long_or_harmful_value_is_not_repeated_as_it_is() -> None:
    assert len(shown("x" * 10**6)) < 50
    assert "\x1b" not in shown("\x1b[31m")
    assert shown(float("nan")) == "NaN"
