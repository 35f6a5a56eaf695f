"""Words and numbers for people: none of them can control a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.cli.output import counted, one_line, print_table, safe, share, size

_ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80)
_DANGEROUS = {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
_DIRECTION = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(_ANY_TEXT)
def test_nothing_dangerous_survives(text: str) -> None:
    shown = safe(text)
    assert not {unicodedata.category(character) for character in shown} & _DANGEROUS
    assert not set(shown) & _DIRECTION
    shown.encode("utf-8")  # no lone surrogate is left


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=80))
def test_what_is_harmless_stays(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("\udcff", "\\udcff"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\U000e0001", "\\U000e0001"),
        ("👩\u200d🚀", "👩\u200d🚀"),
    ],
)
def test_how_it_is_shown(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_lines_stay_where_they_are_wanted() -> None:
    assert safe("a\nb\t\r\x07", lines=True) == "a\nb\t\\x0d\\x07"


@given(_ANY_TEXT, st.integers(min_value=2, max_value=40))
def test_one_line_is_one_line_and_no_longer(text: str, length: int) -> None:
    line = one_line(text, length)
    assert len(line) <= length
    assert line.splitlines() in ([], [line])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (1258291, "1.2 MB"),  # seed 000's example
        ((1 << 20) - 1, "1.0 MB"),
        (1 << 40, "1.0 TB"),
        (-2048, "-2.0 KB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (0, "key", "0 keys"),
        (12345, "session", "12,345 sessions"),
    ],
)
def test_counts(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_a_share_of_nothing_is_nothing() -> None:
    assert (share(1, 0), share(1, 3)) == ("0 %", "33 %")


# --- tables: columns stay aligned, with any text in the cells ---


def test_columns_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "1", "x"), ("港 ⚓", "1,000", ""), ("\x1b[31m", "20", "naïve")]
    print_table(("NAME", "SIZE", ""), rows, right=("SIZE",))
    assert capsys.readouterr().out.splitlines() == [
        "NAME       SIZE",
        "a             1  x",
        "港 ⚓     1,000",
        r"\x1b[31m     20  naïve",
    ]


def test_the_last_column_takes_the_room_that_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("first", "x" * 50), ("second", "港" * 20)]
    print_table(("NAME", "TEXT"), rows, last_may_shrink=True)
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == ["first   " + "x" * 21 + "…", "second  " + "港" * 10 + " …"]
