"""What was wrong with a field is said in our words, at every door that takes fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bsd.actions.models import Expected, expected, field_errors, fields_of
from bsd.core.formatting import LIFETIMES, meant, nearest, shown


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    number: int = Field(5, ge=1, le=100)
    some: int | None = Field(None, ge=0)
    part: float = Field(0.5, ge=0, le=1)
    place: int = Field(0, ge=0, lt=1000)
    yes: bool = False
    words: list[str] | None = None
    name: str = Field("x", min_length=1, max_length=9)
    mode: Literal["hard", "soft", "both"] = "both"
    mixed: Annotated[int | bool | None, Expected("true, false or a number")] = Field(
        None, alias="_mixed"
    )
    need: str


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"number": "abc"}, "number must be a whole number from 1 to 100, not 'abc'"),
        ({"number": 0}, "number must be a whole number from 1 to 100, not 0"),
        ({"number": True}, "number must be a whole number from 1 to 100, not true"),
        ({"some": -1}, "some must be a whole number, 0 or more, not -1"),
        ({"part": 2}, "part must be a number from 0 to 1, not 2"),
        ({"place": -1}, "place must be a whole number from 0 to 999, not -1"),
        ({"yes": "x"}, "yes must be true or false, not 'x'"),
        ({"words": "x"}, "words must be a list of texts, not 'x'"),
        ({"words": ["x", 7, 8]}, "words must be a list of texts"),
        ({"name": ""}, "name must be a text of 1 to 9 characters, not ''"),
        ({"name": {}}, "name must be a text of 1 to 9 characters, not an object"),
        ({"mode": "x"}, "mode must be 'hard', 'soft' or 'both', not 'x'"),
        ({"_mixed": []}, "_mixed must be true, false or a number, not a list"),
        ({"other": 1}, "other is not known here"),
        ({"need": None}, "need must be a text, not null"),
    ],
)
def test_what_it_should_have_been_and_what_it_was(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate({"need": "x", **given})
    (error,) = field_errors(caught.value.errors(include_url=False), fields_of(Asked))
    assert error == (next(iter(given)), message)


def test_what_is_missing_is_said_beside_all_else() -> None:
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate({"number": 0, "yes": 1})
    errors = field_errors(caught.value.errors(include_url=False), fields_of(Asked))
    assert [error.field for error in errors] == ["number", "yes", "need"]
    assert errors[-1].message == "need is missing"


def test_a_long_or_harmful_value_is_not_repeated_as_it_is() -> None:
    assert len(shown("x" * 10**6)) < 50
    assert "\x1b" not in shown("\x1b[31m")
    assert shown(float("nan")) == "NaN"
    assert expected(Any) == "an object", "nobody is told the name of a class"


# --- suggestions: only of what looks very much like the word, unless the nearest is wanted ---


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
