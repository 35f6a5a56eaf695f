"""Finds the values of an entry in blocks, objects and texts; pictures; words to search for."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from bsd.transcripts.agents.entry import (
    PLACEHOLDER_START,
    Entry,
    arguments_at,
    ends_in_placeholder,
    is_placeholder,
    is_structural,
    text_of,
)
from bsd.transcripts.agents.format import (
    EntryInfo,
    Rank,
    Shape,
    Title,
    ToolCall,
    TranscriptFormat,
    Value,
)
from bsd.transcripts.spans import ValuePath, value_at

# By type of a block: the member with the arguments of a call.
CALLS: Mapping[str, str] = {"toolCall": "arguments"}

# Limits recursion; no program nests content deeper on purpose.
_DEEPEST = 200

# Members that tie a result to its call: an object with one of them is never extracted whole.
_LINKS = (b'"toolCallId"', b'"toolUseId"', b'"tool_call_id"', b'"tool_use_id"')
_START = PLACEHOLDER_START.encode()


def text_value(
    path: ValuePath,
    text: str,
    type_: str | None,
    *,
    display: bool = False,
    leaf: bool = False,
    custom: bool = False,
    fixed: bool = False,
) -> Value:
    """Return a string as a value; `Value` describes `type_` and the flags."""
    return Value(
        path,
        Shape.TEXT,
        type_,
        display,
        len(text),
        leaf=leaf,
        custom=custom,
        text=text,
        fixed=fixed,
    )


def leaf_values(
    tree: Any,
    path: ValuePath,
    type_: str | None,
    at_least: int,
    *,
    display: bool = False,
    custom: bool = False,
) -> list[Value]:
    """List the strings of at least `at_least` characters in an object or array at `path`.

    Leaves out members that tie the entry together (`is_structural`), and members deeper than
    `_DEEPEST`. Other values than objects and arrays give an empty list.
    """
    return [
        text_value(where, text, type_, display=display, leaf=True, custom=custom)
        for where, text in _leaves(tree, path, max(at_least, 1), _DEEPEST)
    ]


def _leaves(
    tree: Any, path: ValuePath, at_least: int, depth: int
) -> Iterator[tuple[ValuePath, str]]:
    members: Iterator[tuple[str | int, Any]]
    if isinstance(tree, dict):
        members = ((key, tree[key]) for key in tree if not is_structural(key))
    elif isinstance(tree, list):
        members = iter(enumerate(tree))
    else:
        return
    for step, value in members:
        if isinstance(value, str):
            if len(value) >= at_least:
                yield (*path, step), value
        elif depth and isinstance(value, (dict, list)):
            yield from _leaves(value, (*path, step), at_least, depth - 1)


def object_values(
    tree: Any, path: ValuePath, type_: str | None, at_least: int, *, custom: bool = False
) -> list[Value]:
    """List an object's strings of at least `at_least` characters, or else the whole object.

    The whole is a value if no string is long enough and its compact JSON is. It is never extracted
    whole if it ties a result to its call, or already contains a placeholder.
    """
    leaves = leaf_values(tree, path, type_, at_least, custom=custom)
    if leaves or not tree or not isinstance(tree, (dict, list)):
        return leaves
    text = compact_json(tree)
    length = _characters(text)
    if length < at_least or _START in text or any(link in text for link in _LINKS):
        return []
    return [Value(path, Shape.WHOLE, type_, display=False, length=length, leaf=True, custom=custom)]


def unit_values(
    value: Any, path: ValuePath, type_: str | None, at_least: int, *, display: bool
) -> list[Value]:
    """List a value that is extracted whole, if its text or JSON has at least `at_least` characters.

    An object or array that already contains a placeholder is listed by its strings. So is every
    object and array if `at_least` is 0 or 1, for callers that read values.
    """
    if isinstance(value, str):
        is_long = len(value) >= max(at_least, 1)
        return [text_value(path, value, type_, display=display, leaf=True)] if is_long else []
    if at_least > 1 and isinstance(value, (dict, list)):
        text = compact_json(value)
        if (length := _characters(text)) < at_least:
            return []
        if _START not in text:
            return [Value(path, Shape.WHOLE, type_, display, length, leaf=True)]
    return leaf_values(value, path, type_, at_least, display=display)


def _characters(text: bytes) -> int:
    """Return the number of characters in UTF-8; ASCII is not decoded, to save memory."""
    return len(text) if text.isascii() else len(text.decode("utf-8", "surrogatepass"))


def compact_json(tree: Any) -> bytes:
    """Return a value as JSON without spaces; empty if it is nested too deeply."""
    try:
        return orjson.dumps(tree)
    except (TypeError, ValueError):  # lone surrogates, integers of more than 64 bits
        try:
            text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
        except RecursionError:
            return b""
        return text.encode("utf-8", "surrogatepass")


def block_values(
    blocks: list[Any],
    path: ValuePath,
    entry_type: str | None,
    at_least: int,
    *,
    api: str = "",
    calls: Mapping[str, str] = CALLS,
) -> list[Value]:
    """List the values of typed content blocks at `path`; blocks of other types are left alone.

    Args:
        blocks: the content of a message.
        path: its path.
        entry_type: the type of values in text and image blocks.
        at_least: least number of characters of a string in a call's arguments.
        api: the API of the message, which decides whether the signature of thinking is removed with
            the text.
        calls: by type of a block that is a call: the member with its arguments.
    """
    values: list[Value] = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text":
            if text := text_of(block.get("text")):
                values.append(text_value((*path, index, "text"), text, entry_type))
        elif kind == "thinking":
            values += _thinking(block, (*path, index), api)
        elif kind == "image":
            values += _image(block, (*path, index), entry_type)
        elif isinstance(kind, str) and kind in calls:
            name = calls[kind]
            # Arguments stay an object in any case; only strings in them are extracted.
            if isinstance(block.get(name), dict):
                values += leaf_values(block[name], (*path, index, name), "tool_call", at_least)
    return values


def _thinking(block: Entry, path: ValuePath, api: str) -> list[Value]:
    """List the text of a thinking block, by the rules of how providers replay thinking."""
    text = text_of(block.get("thinking"))
    signature = block.get("thinkingSignature")
    if text is None or block.get("redacted"):
        return []
    if signature is not None and not isinstance(signature, str):
        return []  # no known format writes this, so the scope of the signature is unknown
    where = (*path, "thinking")
    if not signature or _keeps_signature(api):
        return [text_value(where, text, "thinking")]
    return [
        Value(
            where,
            Shape.TEXT,
            "thinking",
            display=False,
            length=len(text) + len(signature),
            removes=((*path, "thinkingSignature"),),
            text=text,
        )
    ]


def _keeps_signature(api: str) -> bool:
    """Return whether a signature is independent of the text beside it.

    For the OpenAI family, it is an item of its own or the name of a field. For Anthropic, Bedrock
    and Google, it proves the text and is removed with it. An API that is not described is treated
    in the same way: without a signature, every adapter sends the block as plain text or drops it,
    while a signature beside a changed text may be refused.
    """
    return api.startswith(("openai-", "azure-openai-")) or "codex" in api


def _image(block: Entry, path: ValuePath, entry_type: str | None) -> list[Value]:
    source = block.get("source")
    data = text_of(block.get("data"))
    if data is None and isinstance(source, dict):
        data = text_of(source.get("data"))
    # The whole block is replaced, since a placeholder is not valid base64.
    return [Value(path, Shape.BLOCK, entry_type, display=False, length=len(data))] if data else []


def embedded_values(block: Entry, path: ValuePath, type_: str | None) -> list[Value]:
    """List the embedded values in a block of the Messages API: image, document, search result.

    Any media type counts, and the base64 need not be valid: the whole block is replaced, since a
    placeholder is not base64. The blocks inside a document or a search result are listed one by
    one.
    """
    source = block.get("source")
    match block.get("type"):
        case "image" | "document" if isinstance(source, dict):
            if data := text_of(source.get("data")):
                return [Value(path, Shape.BLOCK, type_, display=False, length=len(data))]
            return _inside(source.get("content"), (*path, "source", "content"), type_)
        case "search_result":
            return _inside(block.get("content"), (*path, "content"), type_)
    return []


def _inside(content: Any, path: ValuePath, type_: str | None) -> list[Value]:
    """List the texts and media in a content inside a block."""
    if isinstance(content, str):
        return [text_value(path, content, type_)] if content else []
    values: list[Value] = []
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict) and block.get("type") == "text":
            if text := text_of(block.get("text")):
                values.append(text_value((*path, index, "text"), text, type_))
        elif isinstance(block, dict) and block.get("type") == "image":
            values += embedded_values(block, (*path, index), type_)
    return values


def result_values(
    content: Any,
    path: ValuePath,
    kind: str,
    media: Callable[[Entry, ValuePath, str], list[Value]],
) -> list[Value]:
    """List the values of a tool's result at `path`: a text, or texts and media in blocks.

    Args:
        content: the result.
        path: its path.
        kind: the type of blocks with a text.
        media: returns the values of any other block.
    """
    if isinstance(content, str):
        return [text_value(path, content, "tool_result")] if content else []
    values: list[Value] = []
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict):
            continue
        text = text_of(block.get("text"))
        if block.get("type") == kind and text:
            values.append(text_value((*path, index, "text"), text, "tool_result"))
        values += media(block, (*path, index), "tool_result")
    return values


def calls_in(
    blocks: Any, path: ValuePath, calls: Mapping[str, str] = CALLS
) -> tuple[ToolCall, ...]:
    """Return the tool calls in content blocks."""
    if not isinstance(blocks, list):
        return ()
    found = []
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and isinstance(kind := block.get("type"), str) and kind in calls:
            call_id, name = text_of(block.get("id")), text_of(block.get("name"))
            here = (*path, index)
            found.append(ToolCall(call_id or "", name or "", here, arguments_at(block, here)))
    return tuple(found)


# --- pictures, and other content in base64 ---

LARGEST_PICTURE = 5_000_000  # characters of base64; the limit of providers
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[A-Za-z0-9.+-]{1,60}")
_DATA_URL = re.compile(r"data:([^;,]*);base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_SHORTEST_BASE64 = 200  # characters; a shorter text does no harm
_UNKNOWN_TYPE = "application/octet-stream"
# The first bytes of files of each type. If a session holds a picture of another type, or of other
# bytes than its type says, providers refuse every later request of the session.
_BEGINNINGS: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_OTHER_BEGINNINGS: Mapping[str, tuple[bytes, ...]] = {
    "application/pdf": (b"%PDF-",),
    "application/zip": (b"PK\x03\x04",),
    "application/gzip": (b"\x1f\x8b\x08",),
    "image/svg+xml": (b"<svg",),
    "image/tiff": (b"II*\x00", b"MM\x00*"),
    "audio/mpeg": (b"ID3",),
    "audio/ogg": (b"OggS",),
}


@dataclass(frozen=True, slots=True)
class Media:
    """Content in base64 from a block or a text of a session."""

    media_type: str  # as named in the session
    data: str  # base64

    @property
    def size(self) -> int:
        """Size in bytes after decoding."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    def why_not_shown(self) -> str | None:
        """Return why this cannot be sent to a model as a picture; None if it can."""
        if self.media_type not in _BEGINNINGS:
            return "models take png, jpeg, gif and webp only"
        if len(self.data) > LARGEST_PICTURE:
            return f"it is larger than {LARGEST_PICTURE:,} characters of base64"
        try:
            content = base64.b64decode(self.data, validate=True)
        except ValueError:  # also raised for text that is not ASCII
            return "it is not valid base64"
        if _type_of(content) != self.media_type:
            return f"its bytes are not {self.media_type}"
        return None


def media_of(value: Any) -> Media | None:
    """Return the base64 content of a value: of a block, or of a text that is only base64."""
    if isinstance(value, str):
        return _media_in(value)
    if not isinstance(value, dict):
        return None
    source, inline = value.get("source"), value.get("inlineData")
    if isinstance(inline, dict):
        media, data = inline.get("mimeType"), inline.get("data")
    elif isinstance(source, dict):
        if source.get("type") == "text":
            return None
        media, data = source.get("media_type"), source.get("data")
    elif value.get("type") == "input_image":
        url = text_of(value.get("image_url")) or ""
        head = _DATA_URL.match(url)
        media, data = (head[1], url[head.end() :]) if head else (None, None)
    elif value.get("type") == "image" or "mimeType" in value:
        media, data = value.get("mimeType"), value.get("data")
    else:
        return None
    if not isinstance(data, str) or not data:
        return None
    known = isinstance(media, str) and _MEDIA_TYPE.fullmatch(media)
    return Media(str(media) if known else _UNKNOWN_TYPE, data)


def _media_in(text: str) -> Media | None:
    """Return the content of a text that is a data URL, or base64 of a known file type."""
    if len(text) < _SHORTEST_BASE64:
        return None
    url = _DATA_URL.match(text)
    data = text[url.end() :] if url else text
    if len(data) < _SHORTEST_BASE64 // 2 or not _BASE64.fullmatch(data):
        return None
    media = _type_of(base64.b64decode(data[:32]))
    if url and _MEDIA_TYPE.fullmatch(url[1]):
        media = url[1]
    return None if media is None else Media(media, data)


def _type_of(content: bytes) -> str | None:
    """Return the type of a file by its first bytes, or None."""
    for media, beginnings in {**_BEGINNINGS, **_OTHER_BEGINNINGS}.items():
        if content.startswith(beginnings):
            is_webp = content[8:12] == b"WEBP"
            return media if media != "image/webp" or is_webp else None
    return None


# --- words by which the search finds an entry ---

# The search index holds the messages of users and models, not of tools.
_SAID = frozenset(("user", "assistant"))
# Members with text in entries without values: summaries, and names of the session.
_SAYINGS = ("summary", "name", "label")
# Names of arguments with files, without case and underscores.
_PATHS = frozenset(
    ("path", "paths", "filepath", "filename", "file", "notebookpath", "directory", "dir", "cwd")
)
_LONGEST_PATH = 1000  # characters
_LONGEST_ARGUMENTS = 64 << 10  # characters, for arguments that are a JSON text


def words_of(
    entry: Entry,
    fmt: TranscriptFormat,
    info: EntryInfo,
    title: Title | None,
    original: Callable[[], Entry | None] = lambda: None,
) -> str:
    """Return the text by which the index finds an entry.

    The text consists of texts of users and assistants, names and summaries of the session, and
    names of tools with the paths in their arguments.

    Args:
        entry: the entry.
        fmt: its format.
        info: its properties.
        title: the title that it gives its session.
        original: returns the entry as it was before extraction; called if a text of a user or an
            assistant was extracted.
    """
    found: list[str | None] = []
    whole: Entry | None = None
    for value in fmt.values(entry):
        if value.type not in _SAID or value.display or value.custom:
            continue
        text = value.text
        if text is not None and ends_in_placeholder(text) is not None:
            whole = whole or original() or {}
            text = text_of(value_at(whole, value.path)) or text
        found.append(text)
    for call in info.calls:
        found += [call.name, *_paths_of(entry, call)]
    found += [text_of(entry.get(key)) for key in _SAYINGS]
    if title and title.rank is not Rank.PROMPT and title.text not in found:
        found.append(title.text)
    return _joined(found)


def _paths_of(entry: Entry, call: ToolCall) -> Iterator[str]:
    """Yield the files and directories that a call names in its arguments."""
    arguments = None if call.arguments is None else value_at(entry, call.arguments)
    if isinstance(arguments, str) and len(arguments) <= _LONGEST_ARGUMENTS:
        with suppress(orjson.JSONDecodeError):
            arguments = orjson.loads(arguments.encode("utf-8", "replace"))
    if not isinstance(arguments, dict):
        return
    for key, value in arguments.items():
        if key.replace("_", "").casefold() in _PATHS:
            for path in value if isinstance(value, list) else (value,):
                if isinstance(path, str) and len(path) <= _LONGEST_PATH:
                    yield path


def all_words_of(entry: Entry) -> str:
    """Return all strings of an entry, except structural members and placeholders."""
    return _joined(value.text for value in leaf_values(entry, (), None, 1))


def words_at(entry: Entry, paths: list[ValuePath]) -> str:
    """Return the text of an entry's values at these paths, which are extracted values."""
    found: list[str] = []
    for path in paths:
        value = value_at(entry, path)
        if isinstance(value, str):
            found.append(value)
        elif not (isinstance(value, dict) and value.get("type") == "image"):
            found += [leaf.text or "" for leaf in leaf_values(value, (), None, 1)]
    return "\n".join(filter(None, found))


def part_words(
    entry: Entry, fmt: TranscriptFormat, part: str, only: list[ValuePath] | None = None
) -> str:
    """Return the text of one part of an entry: `thinking`, or `call` (tools and their arguments).

    Args:
        entry: the entry.
        fmt: its format.
        part: the part.
        only: paths of extracted values; restricts the text to these.
    """
    found: list[str] = []
    if part == "call":
        calls = fmt.info(entry).calls
        paths = [call.arguments for call in calls if call.arguments is not None]
        found += [call.name for call in calls] if only is None else []
    else:
        paths = [value.path for value in fmt.values(entry) if value.type == "thinking"]
    if only is not None:
        paths = [
            max(path, value, key=len)
            for path in paths
            for value in only
            if path[: len(value)] == value or value[: len(path)] == path
        ]
    for path in paths:
        value = value_at(entry, path)
        if isinstance(value, str):
            found.append(value)
        else:
            found += [leaf.text or "" for leaf in leaf_values(value, (), None, 1)]
    return _joined(found)


def _joined(found: Iterable[str | None]) -> str:
    return "\n".join(text for text in found if text and not is_placeholder(text))
