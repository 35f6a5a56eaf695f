"""Exact edits of JSON files that users and other programs write: pure functions on texts.

A member or an element is added at the end of its object or array, in the formatting of the file;
all other characters stay unchanged. The removal of an addition also changes no other characters,
even if other members were added beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bsd.core.errors import Conflict

ABSENT = object()
CHANGED_HINT = "edit the file by hand, or remove it with `bsd agents off NAME --force`"

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_START = re.compile(r"(?:\r\n|\n|\r)([ \t]*)\Z")
_DECODER = json.JSONDecoder()
_USUAL_INDENT = "  "


class NotEditable(Conflict):
    """The file cannot be edited without risk to its other content; it is left unchanged."""


@dataclass(frozen=True, slots=True)
class AddedJson:
    """The change that `add` made, for `take_away`.

    Attributes:
        path: the keys that lead to the member, or to the array of the element.
        value: the value of the member or element.
        is_element: `value` was added to the array at `path`.
        made: the number of innermost objects and arrays on the path that were created.
        inner: if the object or array was empty, the white space between its brackets; else None.
        mark: a text that identifies an element even if it was changed since; or "".
    """

    path: tuple[str, ...]
    value: Any
    is_element: bool
    made: int
    inner: str | None
    mark: str = ""


class _JsonSlot(NamedTuple):
    """A member or an element, as positions in the text."""

    key: str | None
    begin: int  # of the key, or of an element's value
    value: int
    end: int


class _JsonContainer(NamedTuple):
    """An object or an array in the text; `close` is the position of its closing bracket."""

    open: int
    close: int
    slots: list[_JsonSlot]


def parse(text: str) -> dict[str, Any]:
    """Return the object in a file; an empty file counts as an empty object.

    Raises NotEditable for comments, trailing commas, an array, or broken JSON.
    """
    content = text.removeprefix(_BOM)
    if not content.strip():
        return {}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotEditable(f"it is not plain JSON: {error}") from None
    if not isinstance(document, dict):
        raise NotEditable("it is JSON, but not an object")
    return document


def add(
    text: str, path: tuple[str, ...], value: Any, *, is_element: bool = False
) -> tuple[str, AddedJson]:
    """Add a member, or an element of an array; return the new text and the change.

    The caller has checked that it does not exist yet. Raises NotEditable.
    """
    parse(text)
    if not text.removeprefix(_BOM).strip():
        text += "{}\n"
    steps = path if is_element else path[:-1]
    container, found = _walk(text, steps)
    missing = path[found:]
    if (text[container.open] == "[") is bool(missing):
        wanted = "object" if missing else "array"
        raise NotEditable(f"{'.'.join(path[:found])} is not an {wanted}")
    key, *rest = missing or (None,)  # an element of an existing array has no key
    content = [value] if is_element and missing else value
    for step in reversed(rest):
        content = {step: content}
    made = len(missing) if is_element else len(missing) - 1
    inner = None if container.slots else text[container.open + 1 : container.close]
    new = _insert(text, container, key, content)
    parse(new)
    return new, AddedJson(path, value, is_element, made, inner)


def take_away(text: str, added: AddedJson, *, force: bool = False) -> str | None:
    """Remove an addition; return None if it no longer exists.

    Args:
        force: also remove a member whose value was changed since.

    Raises:
        NotEditable: the file cannot be edited, or the member was changed.
    """
    parse(text)
    path, keys = added.path, [*added.path]
    container, found = _walk(text, path if added.is_element else path[:-1])
    if found < len(path) - (0 if added.is_element else 1):
        return None
    index = _element(text, container, added) if added.is_element else _member(container, keys.pop())
    if index is None:
        return None
    if not force and _value(text, container.slots[index]) != added.value:
        why = f"{'.'.join(path)} was changed since bsd added it"
        raise NotEditable(why, hint=CHANGED_HINT)
    return _remove(text, container, index, added, keys)


def elements(document: Mapping[str, Any], path: tuple[str, ...]) -> list[Any]:
    """Return the elements of the array at a path; [] if there is no array."""
    found = member(document, path)
    return found if isinstance(found, list) else []


def member(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value of the member at a path; `ABSENT` if it does not exist."""
    found: Any = document
    for key in path:
        found = found.get(key, ABSENT) if isinstance(found, dict) else ABSENT
    return found


def _walk(text: str, path: tuple[str, ...]) -> tuple[_JsonContainer, int]:
    """Return the innermost existing object or array on a path, and the number of keys to it.

    Raises NotEditable if another kind of value is on the path, or if a key of it occurs twice.
    """
    container = _container(text, _skip(text, 1 if text.startswith(_BOM) else 0))
    for number, key in enumerate(path):
        index = _member(container, key)
        if index is None:
            return container, number
        at = container.slots[index].value
        if text[at] != "{" and not (text[at] == "[" and number == len(path) - 1):
            raise NotEditable(f"{'.'.join(path[: number + 1])} is not an object")
        container = _container(text, at)
    return container, len(path)


def _container(text: str, at: int) -> _JsonContainer:
    """Return the object or array that begins at a position of a valid JSON text."""
    is_object = text[at] == "{"
    slots, position = [], _skip(text, at + 1)
    while text[position] not in "}]":
        key, begin = None, position
        if is_object:
            key, end = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, position)
        slots.append(_JsonSlot(key, begin, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return _JsonContainer(at, position, slots)


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _member(container: _JsonContainer, key: str) -> int | None:
    """Return the index of the member with this name; raises NotEditable if there are several."""
    found = [index for index, slot in enumerate(container.slots) if slot.key == key]
    if len(found) > 1:
        raise NotEditable(f"the key {key} occurs twice")
    return found[0] if found else None


def _element(text: str, container: _JsonContainer, added: AddedJson) -> int | None:
    """Return the index of the added element, even if it was changed since."""
    values = [_value(text, slot) for slot in container.slots]
    if added.value in values:
        return values.index(added.value)
    marked = (n for n, value in enumerate(values) if has_mark(value, added.mark))
    return next(marked, None)


def has_mark(value: Any, mark: str) -> bool:
    """Return True if a value contains a text; an empty text does not count."""
    return bool(mark) and mark in json.dumps(value, ensure_ascii=False)


def _value(text: str, slot: _JsonSlot) -> Any:
    return _DECODER.raw_decode(text, slot.value)[0]


def _insert(text: str, container: _JsonContainer, key: str | None, content: Any) -> str:
    """Insert a new last member or element, formatted like the others."""
    indent, newline = _indent(text), "\r\n" if "\r\n" in text else "\n"
    if container.slots:
        last, before = container.slots[-1], container.open
        if len(container.slots) > 1:
            before = _skip(text, container.slots[-2].end)  # the comma
        space = text[before + 1 : last.begin]
        line = _LINE_START.search(space)
        body = _render(key, content, line[1] if line else None, indent, newline)
        return f"{text[: last.end]},{space}{body}{text[last.end :]}"
    if indent is None and _is_one_line(text):
        body = _render(key, content, None, indent, newline)
        return text[: container.open + 1] + body + text[container.close :]
    outer = _indent_of_line(text, container.open)
    own = outer + (indent or _USUAL_INDENT)
    body = newline + own + _render(key, content, own, indent, newline) + newline + outer
    return text[: container.open + 1] + body + text[container.close :]


def _render(
    key: str | None, content: Any, line: str | None, indent: str | None, newline: str
) -> str:
    """Write a member or an element; `line` is the indent of its line, None for a single line."""
    if line is None:
        body = json.dumps(content, ensure_ascii=False)
    else:
        body = json.dumps(content, ensure_ascii=False, indent=indent or _USUAL_INDENT)
        body = body.replace("\n", newline + line)
    return body if key is None else f"{json.dumps(key, ensure_ascii=False)}: {body}"


def _is_one_line(text: str) -> bool:
    return "\n" not in text.strip() and text.removeprefix(_BOM).strip() != "{}"


def _indent(text: str) -> str | None:
    """Return the indentation of members of the outermost object; None without indentation."""
    container = _container(text, _skip(text, 1 if text.startswith(_BOM) else 0))
    for slot in container.slots[:1]:
        found = _LINE_START.search(text[container.open + 1 : slot.begin])
        return (found[1] or None) if found else None
    return None


def _indent_of_line(text: str, position: int) -> str:
    begin = max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
    found = re.compile(r"[ \t]*").match(text, begin)
    return found[0] if found else ""


def _remove(
    text: str, container: _JsonContainer, index: int, added: AddedJson, keys: list[str]
) -> str:
    """Remove a member or element, and the objects made for it if they are empty afterwards."""
    slots = container.slots
    if index > 0:
        return text[: slots[index - 1].end] + text[slots[index].end :]
    if len(slots) > 1:
        return text[: slots[0].begin] + text[slots[1].begin :]
    made = added.made
    while made and keys:
        key = keys.pop()
        container, _ = _walk(text, tuple(keys))
        index = _member(container, key) or 0
        made -= 1
        if len(container.slots) > 1:
            return _remove(text, container, index, added, [])
    inner = "" if added.inner is None else added.inner
    return text[: container.open + 1] + inner + text[container.close :]
