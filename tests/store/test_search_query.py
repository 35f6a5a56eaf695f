"""What people type never is a syntax error, and snippets show what was found."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.foundation.errors import Invalid
from bsd.store.search import _SHORT, Snippet, _packed, indexable, match_expression


@pytest.mark.parametrize(
    ("typed", "expression"),
    [
        ("one two", '"one" "two"'),
        ('"one two" three', '"one two" "three"'),
        ('"never closed', '"never closed"'),
        ("begin*", '"begin*" *'),
        ("a AND NOT b", '"a" "AND" "NOT" "b"'),
        ("-> word ()", '"word"'),
        ("column:word", '"column:word"'),
    ],
)
def test_words_become_an_expression(typed: str, expression: str) -> None:
    assert match_expression(typed) == expression


@pytest.mark.parametrize("typed", ["", "  ", '""', "-> * ()", "\x00"])
def test_no_word_is_said_so(typed: str) -> None:
    with pytest.raises(Invalid, match="no word"):
        match_expression(typed)


@given(st.text(alphabet=st.characters(), max_size=40))
def test_sqlite_understands_whatever_is_typed(typed: str) -> None:
    try:
        expression = match_expression(typed)
    except Invalid:
        return
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
        database.execute("INSERT INTO words VALUES (?)", (indexable(typed),))
        database.execute("SELECT * FROM words WHERE words MATCH ?", (expression,)).fetchall()


@given(st.text(alphabet=st.characters()))
def test_whatever_is_indexed_is_utf8_without_nul(text: str) -> None:
    kept = indexable(text)
    kept.encode()
    assert "\0" not in kept


def test_a_snippet_knows_where_its_matches_are() -> None:
    snippet = Snippet.read("…so \x02one\x03 and\n \x02two\x03")
    assert snippet.text == "…so one and two"
    assert [snippet.text[start:end] for start, end in snippet.matches] == ["one", "two"]


def test_a_snippet_of_endless_words_is_cut_around_the_match() -> None:
    snippet = Snippet.read("x" * 5000 + " \x02here\x03 " + "y" * 5000)
    ((start, end),) = snippet.matches
    assert snippet.text[start:end] == "here"
    assert len(snippet.text) < 400


@pytest.mark.parametrize("length", [0, 1, 300, _SHORT - 1, _SHORT, _SHORT + 1, 9 * _SHORT])
def test_a_text_of_any_length_is_unpacked_by_whoever_reads_zlib(length: int) -> None:
    text = "".join(chr(97 + number * number % 23) for number in range(length))
    assert zlib.decompress(_packed(text)).decode() == text
    assert length < 300 or len(_packed(text)) < length
