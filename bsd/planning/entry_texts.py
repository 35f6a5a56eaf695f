"""The texts of an entry for people to read: values, arguments of calls, pictures.

Extracted values are shown as they were before extraction. Each text is cut to a limited length;
`length` gives the length of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.planning.locate import Located
from bsd.store.markers import away_paths, source_paths
from bsd.transcripts.agents.entry import Entry, Marker, other_text
from bsd.transcripts.agents.format import ToolCall, TranscriptFormat, Value
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.spans import ValuePath, format_path, is_present, value_at

_MOST_TEXTS = 50  # per entry
# Shorter texts in details, objects and copies of results are left out.
_LEAST_DETAIL = 200  # characters
_LEAST_CUT = 100  # characters kept of each long text in a call's arguments
_DEEPEST = 50  # levels of arguments in which texts are cut
_TOO_DEEP = "[nested too deeply to be shown]"


@dataclass(frozen=True, slots=True)
class MediaShown:
    """The type and the size of a picture or another file."""

    type: Annotated[str, Field(description="As in `image/png`")]
    size: Annotated[int, Field(description="Bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryText:
    """One text or picture of an entry, as it was before extraction."""

    path: Annotated[str, Field(description="Key of the value, or path of the call")]
    type: Annotated[
        str,
        Field(
            description="user, assistant, thinking, tool_call, tool_result, system; image for a "
            "picture, file for another file"
        ),
    ]
    text: Annotated[
        str,
        Field(
            description="The beginning of the text; for a call, its arguments, mostly JSON with "
            "long texts cut"
        ),
    ]
    length: Annotated[int, Field(description="Characters of the whole text")]
    extracted: bool = False
    display: Annotated[bool, Field(description="Never sent to the model")] = False
    call: Annotated[str | None, Field(description="Id of the call"), OMIT_EMPTY] = None
    name: Annotated[str | None, Field(description="The tool that is called"), OMIT_EMPTY] = None
    media: Annotated[MediaShown | None, OMIT_EMPTY] = None
    unavailable: Annotated[
        str | None, Field(description="Why the content is unavailable"), OMIT_EMPTY
    ] = None
    later: Annotated[
        bool | None,
        Field(description="True: the stored line is too large for a list"),
        OMIT_EMPTY,
    ] = None
    failed: Annotated[
        bool | None,
        Field(description="True: the result reports that its call failed"),
        OMIT_EMPTY,
    ] = None


@dataclass(frozen=True, slots=True)
class Original:
    """The line of an entry before extraction, or the reason why it is not available."""

    entry: Entry | None = None
    unavailable: str | None = None
    later: bool | None = None  # True: not read, because it is large


def entry_texts(
    located: Located, fmt: TranscriptFormat, original: Original, most: int
) -> tuple[EntryText, ...]:
    """Return the texts of an entry: those sent to the model first, then by path.

    Args:
        original: the entry before extraction; ignored if no value is extracted.
        most: the most characters of each text.
    """
    reading = _Reading(located, fmt, original, most)
    found = [(value.display, value.path, text) for value, text in reading.values()]
    found += [(False, call.path, text) for call, text in reading.calls()]
    found.sort(key=lambda each: (each[0], [(isinstance(at, str), at) for at in each[1]]))
    texts = tuple(text for _, _, text in found[:_MOST_TEXTS])
    if any(flag for _, flag in fmt.error_flags(located.entry)):
        texts = tuple(
            replace(text, failed=True) if text.type == "tool_result" else text for text in texts
        )
    return texts or tuple(_others(located, most))


class _Reading:
    """Lists the texts of one entry."""

    def __init__(
        self, located: Located, fmt: TranscriptFormat, original: Original, most: int
    ) -> None:
        self._entry, self._info, self._fmt = located.entry, located.info, fmt
        self._original, self._most = original, most
        marker = Marker.of(self._entry)
        self._away = set(away_paths(self._entry, marker).values()) if marker else set()
        self._arguments = tuple(call.arguments for call in self._info.calls if call.arguments)
        self._sources: dict[ValuePath, ValuePath] = {}
        self._known: dict[ValuePath, Value] = {}  # values of the original, by their paths in it
        if self._away and original.entry is not None:
            self._sources = source_paths(self._entry, original.entry, fmt, list(self._away))
            self._known = {value.path: value for value in fmt.values(original.entry, 1)}

    def values(self) -> Iterator[tuple[Value, EntryText]]:
        """Yield the values outside the arguments of calls."""
        left = {path for path in self._away if not self._is_argument(path)}
        for value in self._fmt.values(self._entry, _LEAST_DETAIL):
            if self._is_argument(value.path):
                continue
            away = next((at for at in (value.path, value.path[:-1]) if at in self._away), None)
            if away is None:
                yield value, self._text(value, value_at(self._entry, value.path))
            elif away in left:  # a block holds several texts
                left.remove(away)
                yield value, self._extracted(value, away)
        if not left:
            return
        # Placeholders of details are shorter than `_LEAST_DETAIL`.
        for value in self._fmt.values(self._entry, 1):
            if value.path in left:
                left.remove(value.path)
                yield value, self._extracted(value, value.path)

    def calls(self) -> Iterator[tuple[ToolCall, EntryText]]:
        """Yield the tool calls with their arguments."""
        for call in self._info.calls:
            away = call.arguments is not None and any(
                path[: len(call.arguments)] == call.arguments for path in self._away
            )
            whole = self._original.entry if away else None
            holder = self._entry if whole is None else whole
            arguments = value_at(holder, call.arguments) if call.arguments else {}
            text, length = _arguments_text(arguments, self._most)
            yield (
                call,
                EntryText(
                    path=format_path(call.arguments or call.path),
                    type="tool_call",
                    text=text,
                    length=length,
                    extracted=away,
                    call=call.id or None,
                    name=call.name or None,
                    unavailable=self._original.unavailable if away else None,
                    later=self._original.later if away else None,
                ),
            )

    def _is_argument(self, path: ValuePath) -> bool:
        return any(path[: len(at)] == at for at in self._arguments)

    def _extracted(self, value: Value, away: ValuePath) -> EntryText:
        source = self._sources.get(away)
        was = self._known.get(source, value) if source is not None else value
        if source is None or self._original.entry is None:
            return EntryText(
                path=format_path(away),
                type=_type_of(value, self._info.kind),
                text="",
                length=0,
                extracted=True,
                display=value.display,
                unavailable=self._original.unavailable,
                later=self._original.later,
            )
        return self._text(was, value_at(self._original.entry, source), away)

    def _text(self, value: Value, content: Any, away: ValuePath | None = None) -> EntryText:
        media = media_of(content)
        kind = _type_of(value, self._info.kind)
        text, length = "", 0
        if media is not None:
            kind = "image" if media.media_type.startswith("image/") else "file"
        else:
            whole = content if isinstance(content, str) else _json(content)
            text, length = whole[: self._most], len(whole)
        return EntryText(
            path=format_path(value.path if away is None else away),
            type=kind,
            text=text,
            length=length,
            extracted=away is not None,
            display=value.display,
            media=None if media is None else MediaShown(media.media_type, media.size),
        )


def _type_of(value: Value, kind: str) -> str:
    return value.type or kind


def _others(located: Located, most: int) -> Iterator[EntryText]:
    """Yield the text of an entry without values: a summary, a name, a note of its program."""
    info = located.info
    if found := other_text(located.entry):
        path, text = found
        yield EntryText(
            path=format_path(path),
            type="system",
            text=text[:most],
            length=len(text),
            display=not (info.is_message or info.is_compaction),
        )


# --- arguments of calls ---


def _arguments_text(arguments: Any, most: int) -> tuple[str, int]:
    """Return a call's arguments as text, and the length of the whole.

    If the JSON is too long, its long texts are cut so that it stays valid JSON.
    """
    if isinstance(arguments, str):  # JSON or plain text, as the program wrote it
        return arguments[:most], len(arguments)
    whole = _json(arguments)
    if len(whole) <= most:
        return whole, len(whole)
    long = sum(len(text) > _LEAST_CUT for text in _strings(arguments, _DEEPEST))
    each = max(_LEAST_CUT, most // max(1, long))
    short = _json(_cut(arguments, each, _DEEPEST))
    return (short if len(short) <= 2 * most else short[:most]), len(whole)


def _strings(tree: Any, depth: int) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif depth and isinstance(tree, dict | list):
        for member in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _strings(member, depth - 1)


def _cut(tree: Any, most: int, depth: int) -> Any:
    if isinstance(tree, str):
        return tree[:most]
    if depth and isinstance(tree, dict):
        return {key: _cut(member, most, depth - 1) for key, member in tree.items()}
    if depth and isinstance(tree, list):
        return [_cut(member, most, depth - 1) for member in tree]
    return tree


def _json(tree: Any) -> str:
    if not is_present(tree, ()):
        return ""
    try:
        return json.dumps(tree, ensure_ascii=False)
    except (RecursionError, TypeError):
        return _TOO_DEEP
