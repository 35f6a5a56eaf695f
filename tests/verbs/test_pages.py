"""Page after page gives every text whole, each page at most as long as it may be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bsd.foundation.errors import Invalid
from bsd.verbs.pages import LONGEST_TEXT, page_of


def read_all(content: Mapping[str, str]) -> dict[str, str]:
    """What a model has read that goes on as it is told until nothing is left."""
    read = dict.fromkeys(content, "")
    keys, offset, left = list(content), 0, sum(map(len, content.values()))
    while keys:
        page = page_of("e1", content, keys, offset)
        given = sum(map(len, page.texts.values()))
        assert 0 < given <= LONGEST_TEXT
        for key, text in page.texts.items():
            read[key] += text
        left -= given
        assert page.left == left
        keys, offset = list(page.following), page.offset
    assert left == 0
    return read


@pytest.mark.parametrize("first", [1, LONGEST_TEXT - 1, LONGEST_TEXT, 60_000, 100_001])
@pytest.mark.parametrize("second", [1, 30_000, LONGEST_TEXT, 90_000])
def test_pages_together_are_the_texts(first: int, second: int) -> None:
    content = {
        "a": "".join(map(chr, range(200, 300))) * (first // 100 + 1),
        "b": "".join(map(chr, range(400, 507))) * (second // 107 + 1),
        "c": "end",
    }
    content["a"], content["b"] = content["a"][:first], content["b"][:second]
    assert read_all(content) == content


def test_behind_the_end_there_is_nothing() -> None:
    assert page_of("e1", {"a": "abc"}, ["a"], 2).texts == {"a": "c"}
    with pytest.raises(Invalid, match="has 3 characters"):
        page_of("e1", {"a": "abc"}, ["a"], 3)
