"""The rules for secrets: each finds what it describes, and hostile text takes bounded time."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from re import _constants as sre
from re import _parser
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
    if rule.id == "facebook-access-token":  # only the word beside it marks it as a secret
        example = f"facebook {example}"
    nested = json.dumps({"text": json.dumps({"output": f"see:\n{example}\n"})})
    for line in (json.dumps({"text": example + "\n"}), nested):
        assert secrets_in(line.encode()), line


_TOKEN = "ghp_" + "7Gk2bQ9xZt4LmW8sVr1NcY5pHd3JfA6eUoXi"


@pytest.mark.parametrize(
    "text",
    [
        "sk-" * 350_000,
        "-----BEGIN PRIVATE KEY" * 50_000,
        "key=1" * 200_000,
        ("a" * 50 + "key") * 20_000 + "=1234567890",
        "curl -u " * 125_000,
        "authorization: bearer " * 45_000,
        "a://b:" * 170_000,
        "key" + "." * 1_000_000,
        "=" * 1_000_000,
        "eyJ" + "a1" * 500_000,
        "xapp-1-" + "A-1-" * 250_000,
        "\\" * 1_000_000,
        "https://a.webhook.office.com/webhookb2/" * 26_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_ends_in_time_and_hides_nothing(text: str) -> None:
    line = f'{{"a": "{text} {_TOKEN} "}}'.encode()
    assert _TOKEN in {secret.text for secret in secrets_in(line)}


def test_ids_and_what_was_redacted_are_no_secrets() -> None:
    for line in (
        {"sessionKey": "1d3a5c7e-9b2f-4a6c-8e0d-5f7a9b1c3d5e"},
        {"token_id": "toolu_01A2b3C4d5E6f7G8h9I0jKlM"},
        {"text": "api_key = [redacted-generic-api-key]"},
        {"text": "password: ${DB_PASSWORD_2} and {{ secret.value_1 }}"},
        {"total_tokens": 1234567890123456, "key": "aaaaaaaaaaaaaaaa1"},
    ):
        assert secrets_in(json.dumps(line).encode()) == []


def test_a_secret_is_never_written_out() -> None:
    secret = Secret("github-pat", _TOKEN)
    assert repr(secret) == "Secret(github-pat, ghp_… (40 characters))"
    assert masked("abcdefgh") == "ab… (8 characters)"
    assert masked("abc") == "… (3 characters)"
    assert masked("a\x1b[3mbcdefghijklm").startswith("a [3…")


def test_a_rule_for_a_service_says_more_than_the_one_for_assignments() -> None:
    line = json.dumps({"env": {"GITHUB_TOKEN": _TOKEN}, "x": f"password = '{'k9Qz' + 'X7m2Lp4w'}'"})
    assert [(one.rule, len(one.text)) for one in secrets_in(line.encode())] == [
        ("github-pat", 40),
        ("generic-api-key", 12),
    ]


def test_a_secret_is_found_at_each_place_of_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsd.maintenance.secret_patterns._PIECE", 200)
    monkeypatch.setattr("bsd.maintenance.secret_patterns._OVERLAP", 100)
    for before in range(0, 500, 7):
        line = f"{'x ' * (before // 2)} {_TOKEN} {'y ' * 200}".encode()
        assert [secret.text for secret in secrets_in(line)] == [_TOKEN]
