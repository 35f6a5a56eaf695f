"""Answers as JSON."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from bsd.core.answers import OMIT_EMPTY, as_json


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    colour: Colour
    length: Annotated[int | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True)
class Whole:
    entry_id: Annotated[str, Field(serialization_alias="entryId")]
    parts: tuple[Part, ...] = ()
    notes: Annotated[list[str], Field(serialization_alias="remarks"), OMIT_EMPTY] = field(
        default_factory=list
    )
    path: Annotated[Path | None, OMIT_EMPTY] = None
    details: Annotated[dict[str, Any], OMIT_EMPTY] = field(default_factory=dict)
    bytes_read: Annotated[int, Field(exclude=True)] = 0


def test_names_and_parts_are_those_of_the_contract() -> None:
    whole = Whole("7", (Part(Colour.RED), Part(Colour.RED, 0)), ["a"], Path("/x"), bytes_read=3)
    assert as_json(whole) == {
        "entryId": "7",
        "parts": [{"colour": "red"}, {"colour": "red", "length": 0}],
        "remarks": ["a"],
        "path": "/x",
    }


def test_what_is_empty_is_left_out_only_where_that_is_declared() -> None:
    assert as_json(Whole("7")) == {"entryId": "7", "parts": []}


def test_half_a_surrogate_pair_stays_in_texts_and_in_keys() -> None:
    whole = Whole("a\ud800", details={"\udc00": ["\ud800", 1 << 70]})
    assert as_json(whole) == {
        "entryId": "a\ud800",
        "parts": [],
        "details": {"\udc00": ["\ud800", 1 << 70]},
    }


def test_pydantic_describes_the_same_names() -> None:
    schema = TypeAdapter(Whole).json_schema(mode="serialization")
    assert list(schema["properties"]) == ["entryId", "parts", "remarks", "path", "details"]
