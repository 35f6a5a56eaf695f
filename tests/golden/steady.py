"""Answers without parts that differ from run to run: times, places, chance, the machine."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import bsd

_LONGEST = 400  # characters of a text; a longer text is recorded by its hash
_TIME = re.compile(
    r"\b20\d\d-\d\d-\d\d[T ]\d\d[:-]\d\d(?:[:-]\d\d(?:[.-]\d{3,6})?(?:Z|\+00:00)?)?(?![\d:])"
)
_STAMP = re.compile(r"20\d{6}T\d{6}\.\d{3}Z")  # as in the ids of the trash
_MILLISECONDS = re.compile(r"\b1[6-9]\d{11}\b")
_HASH = re.compile(r"\b[0-9a-f]{6,64}\b")
_HASHES = {"hash", "seen"}
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_EPOCH = range(1_700_000_000, 9_000_000_000)
_EPOCH_MS = range(1_700_000_000_000, 9_000_000_000_000)


class Steady:
    """Replaces values that differ between runs; texts of the sessions stay."""

    def __init__(self, places: dict[Path, str], sessions: list[Path]) -> None:
        """`places`: the name of each path in the record."""
        self._places = sorted(((str(path), name) for path, name in places.items()), reverse=True)
        content = "\n".join(path.read_text(encoding="utf-8") for path in sessions)
        names = "\n".join(map(str, sessions))
        self._times = {
            digits[:length]
            for found in _TIME.findall(content + names)
            for digits in [_digits(found)]
            for length in (12, 14)
        }
        self._ids: dict[str, str] = {found: found for found in _UUID.findall(content + names)}
        self._drawn = 0
        self._hashes: dict[str, str] = {}

    def __call__(self, answer: Any) -> Any:
        """Return the answer in the form that is equal in each run."""
        if isinstance(answer, dict):
            if answer.get("action") == "workspace_run":  # depends on the user who runs the tests
                answer = answer | {"user": 0}
            for key in _HASHES & set(answer):  # of lines that record when they were changed
                digits = str(answer[key]).rpartition(":")[2]
                self._hashes.setdefault(digits, f"<hash {len(self._hashes) + 1}>")
            return {self.text(str(key)): self(value) for key, value in answer.items()}
        if isinstance(answer, list):
            return [self(value) for value in answer]
        if isinstance(answer, str):
            return _short(self.text(answer))
        if isinstance(answer, int | float) and not isinstance(answer, bool):
            return self._number(answer)
        return answer

    def text(self, text: str) -> str:
        """Return a text in that form, at its full length."""
        for path, name in self._places:
            text = text.replace(path, name)
        text = _TIME.sub(lambda found: self._time(found[0]), text)
        text = _HASH.sub(lambda found: self._hashes.get(found[0], found[0]), text)
        text = _MILLISECONDS.sub("<ms>", _STAMP.sub("<time>", text))
        text = _UUID.sub(lambda found: self._id(found[0]), text)
        return text.replace(bsd.__version__, "<version>")

    def _time(self, text: str) -> str:
        return text if _digits(text) in self._times else "<time>"

    def _id(self, text: str) -> str:
        if text not in self._ids:
            self._drawn += 1
            self._ids[text] = f"<id {self._drawn}>"
        return self._ids[text]

    def _number(self, number: float) -> Any:
        if int(number) in _EPOCH or int(number) in _EPOCH_MS:
            return "<time>"
        return number


def shape(answer: Any) -> Any:
    """Return only the fields and their types, for values that depend on the machine."""
    if isinstance(answer, dict):
        return {key: shape(value) for key, value in sorted(answer.items())}
    if isinstance(answer, list):
        return [shape(answer[0])] if answer else []
    return "number" if type(answer) in (int, float) else type(answer).__name__


def but(answer: Any, *keys: str) -> Any:
    """Return the answer with `<…>` for the values of these keys, at any depth."""
    if isinstance(answer, dict):
        return {key: "<…>" if key in keys else but(value, *keys) for key, value in answer.items()}
    return [but(value, *keys) for value in answer] if isinstance(answer, list) else answer


def document(text: str) -> Any:
    """Return JSON as its value, any other text as its lines without padding.

    A file that exists for a minute is left out: it depends on the speed of the run.
    """
    try:
        return json.loads(text)
    except ValueError:
        return [
            re.sub(r" {2,}", "  ", line).rstrip()
            for line in text.splitlines()
            if "replaced version" not in line
        ]


def _digits(text: str) -> str:
    """Return the digits of a time to the second, or to the minute if it has no seconds."""
    return re.sub(r"\D", "", text)[:14]


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[:80]}… <{len(text)} characters, {mark}>"


def unordered(answer: Any) -> Any:
    """Return the answer with its lists sorted, since file systems list names in any order."""
    if isinstance(answer, dict):
        return {key: unordered(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return sorted((unordered(value) for value in answer), key=json.dumps)
    return answer
