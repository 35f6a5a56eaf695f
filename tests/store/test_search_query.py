"""No input is a syntax error in a search, and snippets show the matches."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.errors import Invalid
from bsd.store.search_words import TOKENIZE, Matcher, Snippet, fold, indexable, match_expression


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


_ALPHABET = 'aAeéÉßſ \u0301*"-日ΣςİıK'


@pytest.mark.parametrize("ascii_only", [True, False])
@given(before=st.text(), words=st.text(_ALPHABET, min_size=1, max_size=12), after=st.text())
def test_no_line_that_holds_the_words_is_passed_over(
    before: str, words: str, after: str, *, ascii_only: bool
) -> None:
    text = f"{before} {words} {after}"
    try:
        matcher = Matcher(words)
    except Invalid:
        return
    with closing(matcher):
        line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode("utf-8", "replace")
        lines = b'{"text":"other"}\n' + line + b"\n" + b'{"text":"more"}\n'
        start = lines.index(line)
        if matcher.snippet(text) is not None:
            assert (start, start + len(line) + 1) in set(matcher.candidates(lines))


def test_folding_makes_no_words_differ_that_the_tokenizer_takes_for_the_same() -> None:
    """A word in the tokenizer's form must also stay the same, since dead rows are deleted by it."""
    letters = [chr(code) for code in range(0x80, 0x3000)]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, {TOKENIZE})")
        database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'instance')")
        insert = "INSERT INTO words (text) VALUES (?)"
        database.executemany(insert, ((f"a{letter}b",) for letter in letters))
        query = "SELECT doc, term FROM terms ORDER BY doc, offset"
        found: dict[int, list[str]] = {}
        for doc, term in database.execute(query):
            found.setdefault(doc - 1, []).append(term)
        for doc, terms in found.items():
            if len(terms) == 1:
                assert fold(terms[0]) == fold(f"a{letters[doc]}b"), hex(ord(letters[doc]))
        database.execute("DELETE FROM words")
        terms = sorted({term for both in found.values() for term in both})
        database.executemany(insert, ((term,) for term in terms))
        again = database.execute("SELECT term FROM terms ORDER BY doc").fetchall()
        assert [term for (term,) in again] == terms
