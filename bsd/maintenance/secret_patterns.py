"""Finds keys and passwords in lines of JSON, by the rules of gitleaks (`secret_rules.json`).

`packaging/secret_rules.py` writes the rules. Running more than two hundred regular expressions over
every byte would take minutes for a gigabyte. Therefore each rule is tried only near literal text
without which it cannot match (`_Finder`), at no more than `_MOST_PLACES` places per megabyte, and
over at most `_Rule.after` bytes from each place. That bounds the time that hostile text can take.
This module does not read sessions and does not print secrets.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import orjson

_RULES = Path(__file__).with_name("secret_rules.json")
_MOST_PLACES = 2000  # limit of the places per megabyte at which a rule is tried
_BEFORE = 120  # bytes before a literal from which a rule is tried
_NAME = 44  # bytes before an operator in which the assigned name ends
_SLACK = 16
_PIECE, _OVERLAP = 4 << 20, 32 << 10  # bytes; a long line is searched in pieces
_MOST_NAMES = 1 << 16
_SHOWN = 4  # characters of a secret that are shown to users
_SHORTEST = 5  # characters
_GENERIC = "generic-api-key"

# Escapes of JSON, including those of JSON inside a JSON string, with several backslashes.
_ESCAPES = (
    (b"\\n", b"\n"),
    (b"\\r", b"\n"),
    (b"\\t", b"\t"),
    (b"\\\\", b""),
    (b'\\"', b'"'),
    (b"\\/", b"/"),
    (b"\\\n", b"\n"),
)
_CODE = re.compile(rb"\\+u(?![dD][89a-fA-F]|00[01][0-8bcefBCEF])([0-9a-fA-F]{4})")
# A value with a digit: the rules for assignments accept no other values as secrets.
_ASSIGNED = re.compile(rb"[=:>,|][\x60'\"\s=]{0,5}(?=[a-z_.+/~@-]{0,64}[0-9])(?=[\w.=+/~@-]{5})")
# The bytes of a name; any other byte ends it.
_NAME_BYTES = b"abcdefghijklmnopqrstuvwxyz0123456789_.- \t"
_ENDS = bytes(byte if byte in _NAME_BYTES else 0 for byte in range(256))
_AROUND = b"\x00 \t"
# Ids of entries, calls and requests, which programs write into every line.
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ID = re.compile(rb"(?:toolu|call|msg|req|resp|rs|fc|srvtoolu|chatcmpl|run|session)[_-][\w-]+")
REDACTED = re.compile(r"\[redacted-[a-z0-9-]+\]")


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that matches a rule for secrets. Its `repr` does not show the text."""

    rule: str
    text: str

    def __repr__(self) -> str:
        return f"Secret({self.rule}, {self.masked})"

    @property
    def hash(self) -> str:
        """The first 16 hex digits of the SHA-256 of the text, by which users name the secret."""
        return hash_of(self.text)

    @property
    def masked(self) -> str:
        """The first characters of the text, fewer if it is short, and its length."""
        return masked(self.text)

    @property
    def replacement(self) -> str:
        """The text that replaces the secret."""
        return f"[redacted-{self.rule}]"


def hash_of(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def masked(text: str) -> str:
    """Return the first 4 characters of a text, at most a quarter of it, and its length."""
    shown = min(_SHOWN, len(text) // 4)
    head = "".join(one if one.isprintable() else " " for one in text[:shown])
    return f"{head}… ({len(text)} characters)"


def entropy(text: bytes) -> float:
    """Return the Shannon entropy of a text, in bits per byte."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())


class _Rule:
    """A rule; its regular expression is compiled on first use."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.id: str = document["id"]
        self.kind: str = document["kind"]
        self.heads = tuple(head.encode() for head in document["heads"])
        self.after: int = document["after"]
        self._document = document

    @cached_property
    def regex(self) -> re.Pattern[bytes]:
        return re.compile(self._document["regex"].encode())

    @cached_property
    def _allow(self) -> tuple[re.Pattern[bytes], ...]:
        return _compiled(self._document.get("allow", ()))

    @cached_property
    def _allow_match(self) -> tuple[re.Pattern[bytes], ...]:
        return _compiled(self._document.get("allow_match", ()))

    @cached_property
    def _stopwords(self) -> re.Pattern[bytes] | None:
        words = [re.escape(word.encode()) for word in self._document.get("stopwords", ())]
        return re.compile(b"|".join(words)) if words else None

    def at(self, text: bytes, place: int) -> tuple[int, int] | None:
        """Return [start, end) of the secret if the rule matches at a place."""
        end = min(len(text), place + self.after + _SLACK)
        match = self.regex.match(text, place, end)
        return self._secret(text, match, end) if match else None

    def within(self, text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield [start, end) of each secret in a part of a text."""
        for match in self.regex.finditer(text, max(0, start), min(len(text), end)):
            if span := self._secret(text, match, end):
                yield span

    def _secret(self, text: bytes, match: re.Match[bytes], end: int) -> tuple[int, int] | None:
        if match.end() == end < len(text):
            return None  # the match may continue, so its end is not known
        group = self._document.get("secretGroup") or next(
            (at for at in range(1, self.regex.groups + 1) if match[at]), 0
        )
        whole = text[_start_of_name(text, match.start()) : match.end()]
        return match.span(group) if self._is_secret(match[group], whole) else None

    def _is_secret(self, secret: bytes, match: bytes) -> bool:
        if len(secret) < _SHORTEST or entropy(secret) <= self._document.get("entropy", 0.0):
            return False
        if self.id == _GENERIC and (_UUID.fullmatch(secret) or _ID.fullmatch(secret)):
            return False
        if any(each.search(secret) for each in (*_finder().allow, *self._allow)):
            return False
        if any(each.search(match) for each in self._allow_match):
            return False
        lower = secret.lower()
        if any(word in lower for word in _finder().stopwords):
            return False
        return self._stopwords is None or self._stopwords.search(lower) is None


def _start_of_name(text: bytes, at: int) -> int:
    """Return the start of the word that continues at a place, at most 50 bytes before it."""
    head = text[max(0, at - 50) : at]
    word = re.search(rb"[\w.-]*\Z", head)
    return at - (len(word[0]) if word else 0)


def _compiled(patterns: Iterable[str]) -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(pattern.encode()) for pattern in patterns)


class _Finder:
    """All rules, and the literal texts near which each is tried."""

    def __init__(self) -> None:
        document = orjson.loads(_RULES.read_bytes())
        self.version: str = document["version"]
        self.allow = _compiled(document["allow"])
        self.stopwords = [word.encode() for word in document["stopwords"]]
        self.rules = [_Rule(rule) for rule in document["rules"]]
        by_kind = {
            kind: [rule for rule in self.rules if rule.kind == kind]
            for kind in ("prefix", "assigned", "near")
        }
        self._assigned = by_kind["assigned"]
        self._near = [(head, rule) for rule in by_kind["near"] for head in rule.heads]
        heads = sorted({head for rule in by_kind["prefix"] for head in rule.heads})
        self._by_head = {
            head: [rule for rule in by_kind["prefix"] if _has_head(rule, head)] for head in heads
        }
        # Not a lookbehind: in this form the engine skips letters and digits quickly.
        self._heads = re.compile(rb"[^a-z0-9](" + _trie(heads) + rb")")
        self._names: dict[bytes, tuple[_Rule, ...]] = {}

    def find(self, text: bytes) -> list[tuple[int, int, str]]:
        """Return (start, end, rule id) of each secret in a text without escapes, in order."""
        found: dict[tuple[int, int], str] = {}
        lower = text.lower()
        for rule, span in (*self._prefixed(text, lower), *self._near_to(text, lower)):
            found.setdefault(span, rule.id)
        taken = sorted(found)
        # A rule for a particular service has priority over the generic rule for assignments.
        for rule, (start, end) in self._assigned_in(text, lower):
            if rule.id != _GENERIC:
                found[start, end] = rule.id
            elif not any(a < end and start < b for a, b in taken):
                found.setdefault((start, end), rule.id)
        return [(start, end, rule) for (start, end), rule in sorted(found.items())]

    def _prefixed(self, text: bytes, lower: bytes) -> Iterator[tuple[_Rule, tuple[int, int]]]:
        places, most = Counter[str](), _most_places(text)
        for match in self._heads.finditer(b" " + lower):
            for rule in self._by_head[match[1]]:
                places[rule.id] += 1
                if places[rule.id] <= most and (span := rule.at(text, match.start())):
                    yield rule, span

    def _near_to(self, text: bytes, lower: bytes) -> Iterator[tuple[_Rule, tuple[int, int]]]:
        most = _most_places(text)
        for head, rule in self._near:
            at, places = lower.find(head), 0
            while at >= 0 and places < most:
                end = at + len(head) + rule.after + _SLACK
                for span in rule.within(text, at - _BEFORE, end):
                    yield rule, span
                at, places = lower.find(head, at + len(head)), places + 1

    def _assigned_in(self, text: bytes, lower: bytes) -> Iterator[tuple[_Rule, tuple[int, int]]]:
        names, known = lower.translate(_ENDS), self._names
        places, most = Counter[str](), _most_places(text)
        for match in _ASSIGNED.finditer(lower):
            at = match.start()
            start = at - _NAME if at > _NAME else 0
            head = names[start:at].rstrip(_AROUND)
            name = head[head.rfind(b"\x00") + 1 :]
            rules = known.get(name)
            for rule in self._rules_of(name) if rules is None else rules:
                places[rule.id] += 1
                if places[rule.id] <= most:
                    begins = sorted({name.find(each) for each in rule.heads} - {-1})
                    offset = start + len(head) - len(name)
                    spans = (rule.at(text, offset + each) for each in begins)
                    if span := next(filter(None, spans), None):
                        yield rule, span

    def _rules_of(self, name: bytes) -> tuple[_Rule, ...]:
        """Return the rules for secrets that are assigned to this name."""
        rules = self._names.get(name)
        if rules is None:
            rules = tuple(
                rule for rule in self._assigned if any(head in name for head in rule.heads)
            )
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[name] = rules
        return rules


def _most_places(text: bytes) -> int:
    return _MOST_PLACES * (1 + (len(text) >> 20))


def _has_head(rule: _Rule, head: bytes) -> bool:
    """Return True if `head` begins with any literal of the rule, which is then tried there."""
    return any(head.startswith(own) for own in rule.heads)


def _trie(words: list[bytes]) -> bytes:
    """Return a pattern that matches the longest of these sorted words, grouped by prefixes."""
    by_first: dict[bytes, list[bytes]] = {}
    for word in words:
        if word:
            by_first.setdefault(word[:1], []).append(word[1:])
    branches = [
        re.escape(first) + (b"(?:" + _trie(rest) + b")" if rest != [b""] else b"")
        for first, rest in by_first.items()
    ]
    return b"|".join(branches) + (b"|" if b"" in words else b"")


@cache
def _finder() -> _Finder:
    return _Finder()


def rules_version() -> str:
    """Return the version of gitleaks from which the rules come."""
    return _finder().version


def without_escapes(line: bytes) -> bytes:
    """Return a line of JSON with the escapes of its strings resolved and backslashes removed."""
    if b"\\" in line:
        if b"\\u00" in line:
            line = _CODE.sub(lambda code: chr(int(code[1], 16)).encode(), line)
        for escaped, plain in _ESCAPES:
            line = line.replace(escaped, plain)
    return line


def secrets_in(line: bytes) -> list[Secret]:
    """Return the secrets in a line of JSON or any other text, each once.

    A long line is searched in pieces, which overlap by more than the length of a secret.
    """
    found: dict[str, Secret] = {}
    for start in range(0, max(1, len(line)), _PIECE):
        piece = line[max(0, start - _OVERLAP) : start + _PIECE + _OVERLAP]
        text = without_escapes(piece)
        is_last = start + _PIECE + _OVERLAP >= len(line)
        for begin, end, rule in _finder().find(text):
            secret = text[begin:end].decode("utf-8", "replace")
            if (end < len(text) or is_last) and not REDACTED.search(secret):
                found.setdefault(secret, Secret(rule, secret))
    return list(found.values())
