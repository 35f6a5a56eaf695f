"""Exact edits of TOML files that users and other programs write: pure functions on texts.

A table is added at the end of the file, a top-level key before the first table; TOML allows this in
every file. All other characters stay unchanged, including comments and unusual formatting. tomlkit
renders new text. A removal deletes exactly the added text, so a comment that a user wrote below it
stays.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from bsd.setup.json_text import ABSENT, CHANGED_HINT, NotEditable, member

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AddedToml:
    """The change that `add` made, for `take_away`.

    Attributes:
        path: the keys of the table or of the array of tables, or the top-level key.
        value: the added value.
        in_array: `value` is an element of the array.
        text: the added characters.
    """

    path: tuple[str, ...]
    value: Any
    in_array: bool
    text: str


def parse(text: str) -> dict[str, Any]:
    """Return the content of a file; raises NotEditable."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotEditable(f"it is not valid TOML: {error}") from None


def add(
    text: str,
    path: tuple[str, ...],
    value: Any,
    *,
    in_array: bool = False,
    after: str | None = None,
) -> tuple[str, AddedToml]:
    """Add a table, an element of an array of tables, or a top-level key.

    The caller has checked that it does not exist yet.

    Args:
        after: the beginning of the line after which a top-level key should be inserted.

    Returns:
        The new text and the change.

    Raises:
        NotEditable: the file cannot be edited, for example because the array is inline.
    """
    before = parse(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    is_table = isinstance(value, dict)
    rendered = _render(path, value, in_array=in_array).replace("\n", newline)
    if is_table:
        position = len(text)
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        added = gap + rendered
    else:
        position = _place_of_key(text, after)
        added = rendered if position == 0 or text[position - 1] == "\n" else newline + rendered
    new = text[:position] + added + text[position:]
    if parse_or_none(new) != _content_with(before, path, value, in_array=in_array):
        raise NotEditable(f"{'.'.join(path)} is written in a form to which bsd cannot add")
    return new, AddedToml(path, value, in_array, added)


def take_away(text: str, added: AddedToml, *, force: bool = False) -> str | None:
    """Remove an addition; return None if it no longer exists.

    Args:
        force: also remove a value that was changed since, or written by hand.

    Raises:
        NotEditable: the file cannot be edited, or the addition was changed.
    """
    document = parse(text)
    now = _present(document, added)
    if now is None:
        return None
    why = f"{'.'.join(added.path)} was changed since bsd added it"
    if now != added.value:
        if not force:
            raise NotEditable(why, hint=CHANGED_HINT)
        added = replace(added, value=now, text="")
    wanted = _content_without(document, added)
    # A program that rewrites its file may use other line breaks.
    plain = added.text.replace("\r\n", "\n")
    forms = (added.text, plain, plain.replace("\n", "\r\n"))
    pieces = [*forms, *(form.lstrip("\r\n") for form in forms)]
    for piece in filter(None, dict.fromkeys(pieces)):
        for found in re.finditer(re.escape(piece), text):
            new = text[: found.start()] + text[found.end() :]
            if _pruned(parse_or_none(new), added.path) == wanted:
                return new
    if not force:
        raise NotEditable(why, hint=CHANGED_HINT)
    new = _without_table(text, added)
    if _pruned(parse_or_none(new), added.path) != wanted:
        raise NotEditable(f"{'.'.join(added.path)} cannot be removed without risk")
    return new


def parse_or_none(text: str) -> dict[str, Any] | None:
    """Parse a text; None if it is not TOML."""
    try:
        return parse(text)
    except NotEditable:
        return None


def _present(document: dict[str, Any], added: AddedToml) -> Any:
    """Return the present value of an addition; None if it no longer exists.

    In an array, the element counts that has all added members, even if it has further members.
    """
    found = member(document, added.path)
    if found is ABSENT:
        return None
    if not added.in_array:
        return found
    tables = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if added.value in tables:
        return added.value
    return next((each for each in tables if each == {**each, **added.value}), None)


def _render(path: tuple[str, ...], value: Any, *, in_array: bool) -> str:
    """Render a table with its header, or a key with its value; ends with a line break."""
    if not isinstance(value, dict):
        return tomlkit.dumps({path[-1]: value})
    content: Any = [value] if in_array else value
    for key in reversed(path):
        content = {key: content}
    return tomlkit.dumps(content)


def _place_of_key(text: str, after: str | None) -> int:
    """Return the position for a new top-level key, before the first table."""
    first_table = _HEADER.search(text)
    position = 0
    for line in text[: first_table.start() if first_table else None].splitlines(keepends=True):
        position += len(line)
        if after is not None and line.startswith(after):
            return position
    return 0


def _content_with(before: Any, path: tuple[str, ...], value: Any, *, in_array: bool) -> Any:
    if not path:
        return [*before, value] if in_array else value
    key, *rest = path
    inner: Any = before.get(key, [] if in_array and not rest else {})
    if not isinstance(inner, list if in_array and not rest else dict):
        raise NotEditable(f"{key} is not a table")
    return {**before, key: _content_with(inner, tuple(rest), value, in_array=in_array)}


def _content_without(document: dict[str, Any], added: AddedToml) -> dict[str, Any]:
    """Return the content without an addition, and without tables that become empty."""
    key, *rest = added.path
    inner: Any = document[key]
    if rest:
        inner = _content_without(inner, AddedToml(tuple(rest), added.value, added.in_array, ""))
    elif added.in_array:
        inner = list(inner)
        inner.remove(added.value)
    else:
        inner = None
    kept = {name: value for name, value in document.items() if name != key}
    return kept if not inner else {**document, key: inner}


def _pruned(document: dict[str, Any] | None, path: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the content without empty tables on the path."""
    if document is None or not path or path[0] not in document:
        return document
    inner = document[path[0]]
    inner = _pruned(inner, path[1:]) if isinstance(inner, dict) else inner
    kept = {name: value for name, value in document.items() if name != path[0]}
    return {**document, path[0]: inner} if inner else kept


def _without_table(text: str, added: AddedToml) -> str:
    """Remove a table with its content, including comments up to the next table."""
    try:
        document: Any = tomlkit.parse(text)
        holder = document
        for key in added.path[:-1]:
            holder = holder[key]
        if added.in_array:
            tables = holder[added.path[-1]]
            del tables[next(n for n, each in enumerate(tables) if each.unwrap() == added.value)]
            if not tables:
                del holder[added.path[-1]]
        else:
            del holder[added.path[-1]]
        return tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError, StopIteration) as error:
        raise NotEditable(f"{'.'.join(added.path)} cannot be removed: {error}") from None
