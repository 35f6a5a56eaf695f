"""Every verb is named, does one thing, and is reached where it says; tests/golden holds how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bsd.actions.models import answer_model
from bsd.actions.read_extracted import page_of
from bsd.actions.verb import Verb, all_verbs
from bsd.actions.verbs import ARCHIVE_KEEP, READ_HELD, SEARCH_PAGE, SHOW_EDITABLE, SHOW_EXTRACTED
from bsd.cli.commands import COMMANDS
from bsd.core.answers import as_json
from bsd.core.errors import Invalid
from bsd.core.verb_names import NAMES
from bsd.transcripts.agents.claude_code import KIND
from bsd.transcripts.agents.page_size import OTHERS, PageSize

VERBS = all_verbs()
# Doors have routes, commands and tools of their own for these: only a part of what they tell.
# `archive keep` has a command alone: a daemon does it by itself.
OF_DOORS = [SHOW_EDITABLE, SHOW_EXTRACTED, READ_HELD, ARCHIVE_KEEP, SEARCH_PAGE]
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))


@every_verb
def test_it_does_one_thing_and_can_be_reached(verb: Verb[Any, Any]) -> None:
    assert (verb.act is None) is not (verb.ask is None)
    name = next(name for name, one in VERBS.items() if one is verb)
    by_itself = verb.route or verb.tools or NAMES[name].command
    assert by_itself or name.replace("_", "-") in COMMANDS or verb in OF_DOORS
    assert {tool.name for tool in verb.tools} <= set(NAMES[name].tools)
    assert bool(NAMES[name].locks) == (verb.changes and NAMES[name].command is not None)
    assert NAMES[name].command in {None, *COMMANDS}, f"nothing is called {NAMES[name].after}"


def test_what_an_answer_says_is_what_its_model_says() -> None:
    answer = VERBS["restore"].answer(entry_id="e1", restored=True)
    shown = as_json(answer)
    assert shown == {"restored": True, "entry_id": "e1", "keys_restored": [], "sizes_bytes": {}}
    assert set(answer_model(VERBS["restore"].answer).model_json_schema()["required"]) == set(shown)


# --- page after page gives every text whole, each page at most as long as it may be ---


def read_all(content: Mapping[str, str], size: PageSize) -> dict[str, str]:
    """What a model has read that goes on as it is told until nothing is left."""
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
