"""The matcher of users' expressions: Python's answers, in a time that nothing drives up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.config import PREFIX_BOUND_MODELS, PruningConfig
from bsd.core.errors import Invalid
from bsd.core.pattern import LONGEST_TEXT, Pattern

_ATOMS = st.sampled_from(
    [
        *[*"ab-1", "A", ".", r"\d", r"\D", r"\w", r"\W", r"\.", r"\s", r"\-", r"\n"],
        *["[ab]", "[^a]", "[a-c1]", r"[\d-]", "[]a]", "[^]]", "[b-]", "^", "$", r"\b", r"\B"],
    ]
)
_SIGNS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}", "*?", "+?"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, _SIGNS).map(lambda two: f"(?:{two[0]}){two[1]}"),
        inner.map(lambda one: f"(?={one})"),
        inner.map(lambda one: f"(?!{one})"),
    )


_EXPRESSIONS = st.recursive(
    st.tuples(_ATOMS, _SIGNS).map(
        lambda two: two[0] if two[0] in {"^", "$", r"\b", r"\B"} else "".join(two)
    ),
    _grown,
    max_leaves=6,
)


@given(_EXPRESSIONS, st.text("abAB-1 .\n]", min_size=1, max_size=8))
def test_it_answers_as_pythons_matcher_does(expression: str, text: str) -> None:
    try:
        pattern = Pattern(expression)
    except ValueError as problem:
        assert "deep" in str(problem)  # noqa: PT017 - the only thing that these may be refused for
        return
    expected = re.search(expression, text, re.IGNORECASE)
    assert pattern.search(text) is (expected is not None)


@pytest.mark.parametrize(
    "expression",
    [
        *["(a+)+", "(a|a)*", "(a|aa)+", "(a*)*", "a*a*a*a*a*a*", "a?" * 60 + "a" * 60],
        *["(.*)*(.*)*x", "((a+)+)+", "(a?){50}a{50}b", "((a{0,100}){0,100}){0,100}b"],
    ],
)
def test_what_takes_others_for_ever_is_answered(expression: str) -> None:
    """With Python's matcher this would not come to its end."""
    assert not Pattern(f"^{expression}$").search("a" * (LONGEST_TEXT - 1) + "!")


def test_what_is_long_is_looked_at_from_its_beginning() -> None:
    assert Pattern("b").search("a" * (LONGEST_TEXT - 1) + "b")
    assert not Pattern("b").search("a" * LONGEST_TEXT + "b")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (r"(a)\1", r"\1 is not known here"),
        ("(?<=a)b", "groups are"),
        ("(?P<name>a)", "groups are"),
        ("(?s).", "groups are"),
        ("a" * 501, "more than 500 characters"),
        ("((((a+)+)+)+)", "more than 3 deep"),
        ("a{2000}", "is no number of repetitions up to 1000"),
        (r"\p", r"\p is not known here"),
        ("a++", "multiple repeat"),
        ("(a", "missing )"),
        ("a)", "unbalanced parenthesis"),
        ("[a", "missing ]"),
        ("[b-a]", "bad character range b-a"),
        ("*", "nothing to repeat"),
    ],
)
def test_what_it_does_not_know_it_refuses(expression: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        Pattern(expression)


def test_flags_that_change_nothing_are_let_pass() -> None:
    assert Pattern("(?i)Claude").search("CLAUDE-x")


def test_a_field_error_names_field_and_expression() -> None:
    with pytest.raises(Invalid) as caught:
        PruningConfig.checked({"prefix_bound_models": ["good", r"(a)\1"]})
    (error,) = caught.value.errors
    assert error.field == "prefix_bound_models"
    assert r"'(a)\\1' is not a regular expression that bsd uses: \1 is not known here" in (
        error.message
    )
    bound = PruningConfig.checked({"prefix_bound_models": ["(a+)+$"]}).prefix_bound_models
    assert bound == ("(a+)+$",)


@pytest.mark.parametrize("expression", PREFIX_BOUND_MODELS)
@pytest.mark.parametrize(
    "model",
    [
        *[
            "claude-opus-5-5",
            "anthropic/Claude-Fable-5.1",
            "claude-sonnet-5-4",
            "claude-7",
            "gpt-5",
        ],
        *[
            "claude-haiku-5.10-20270101",
            "claude-very-new-model-12",
            "claude-opus-60",
            "claude-6x",
            "gpt-5",
        ],
    ],
)
def test_the_defaults_mean_what_they_did(expression: str, model: str) -> None:
    expected = re.search(expression, model, re.IGNORECASE)
    assert Pattern(expression).search(model) is (expected is not None)
