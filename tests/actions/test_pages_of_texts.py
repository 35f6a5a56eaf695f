"""Pages of extracted texts: joined, they equal the texts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bsd.actions.read_extracted import page_of
from bsd.core.errors import Invalid
from bsd.transcripts.agents.claude_code.program import KIND
from bsd.transcripts.agents.page_size import OTHERS, PageSize


def read_all(content: Mapping[str, str], size: PageSize) -> dict[str, str]:
    """Return the text that a model has read after following each hint to the end."""
    read = dict.fromkeys(content, "")
    keys, offset, left = list(content), 0, sum(map(len, content.values()))
    while keys:
        page = page_of("e1", content, keys, offset, size)
        given = sum(map(len, page.texts.values()))
        assert given > 0
        assert sum(map(size.of, page.texts.values())) <= size.whole
        for key, text in page.texts.items():
            read[key] += text
        left -= given
        assert page.left == left
        keys, offset = list(page.following), page.offset
    assert left == 0
    return read


@pytest.mark.parametrize("size", [KIND.page_size, OTHERS])
@pytest.mark.parametrize("first", [1, 15_500, 59_999, 60_000, 100_001])
@pytest.mark.parametrize("second", [1, 30_000, 60_000, 90_000])
def test_pages_together_are_the_texts(first: int, second: int, size: PageSize) -> None:
    content = {
        "a": "".join(map(chr, range(200, 300))) * (first // 100 + 1),
        "b": "".join(map(chr, range(400, 507))) * (second // 107 + 1),
        "c": "end",
    }
    content["a"], content["b"] = content["a"][:first], content["b"][:second]
    assert read_all(content, size) == content


def test_behind_the_end_there_is_nothing() -> None:
    assert page_of("e1", {"a": "abc"}, ["a"], 2).texts == {"a": "c"}
    with pytest.raises(Invalid, match="has 3 characters"):
        page_of("e1", {"a": "abc"}, ["a"], 3)
