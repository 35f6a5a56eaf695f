"""The rules for secrets: each finds what it describes, and hostile text takes bounded time."""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from bsd.maintenance import secret_patterns
from bsd.maintenance.secret_patterns import Secret, masked, secrets_in

_WORDS = string.ascii_letters + string.digits
_NAMES = {
    sre.CATEGORY_DIGIT: string.digits,
    sre.CATEGORY_WORD: _WORDS,
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_NOT_SPACE: _WORDS,
}
_RULES = secret_patterns._finder().rules


def _matching(pattern: Any, chance: random.Random) -> str:
    """A text that a parsed pattern matches."""
    return "".join(_texts(pattern, chance))


def _texts(pattern: Any, chance: random.Random) -> Iterator[str]:
    for op, value in pattern:
        if op is sre.LITERAL:
            yield chr(value)
        elif op is sre.IN:
            yield chance.choice(_members(value))
        elif op is sre.ANY:
            yield "."
        elif op is sre.BRANCH:
            yield _matching(chance.choice(value[1]), chance)
        elif op is sre.SUBPATTERN:
            yield _matching(value[-1], chance)
        elif op in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
            least, most, repeated = value
            # Names may have text before the operator; most tests do without.
            count = least if most <= 50 else min(most, least + chance.randint(0, 9))
            yield from (_matching(repeated, chance) for _ in range(count))
        elif op is not sre.AT:
            raise AssertionError(op)


def _members(items: Any) -> str:
    members = ""
    for op, value in items:
        if op is sre.NEGATE:
            return _WORDS
        if op is sre.LITERAL:
            members += chr(value)
        elif op is sre.RANGE:
            members += "".join(map(chr, range(value[0], value[1] + 1)))
        elif op is sre.CATEGORY:
            members += _NAMES.get(value, "")
    return "".join(one for one in members if one in string.printable and one not in "\\\x0b\x0c\r")


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule.id)
def test_finds_an_example_of_each_rule(rule: Any) -> None:
    parsed = _parser.parse(rule.regex.pattern)
    examples = [_matching(parsed, random.Random(seed)) for seed in range(60)]
    for example in examples:
        if rule.at(example.encode(), 0) or list(rule.within(example.encode(), 0, len(example))):
            break
    else:
        pytest.fail(f"no example of {rule.id} among {examples[:3]}")
    nested = json.dumps({"text": json.dumps({"output": f"see:\n{example}\n"})})
    for line in (json.dumps({"text": example + "\n"}), nested):
        assert secrets_in(line.encode()), line
