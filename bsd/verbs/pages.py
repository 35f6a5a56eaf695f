"""An entry's values as a model is given them: texts by key, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bsd.agents.values import Picture, picture_of
from bsd.foundation.errors import Invalid
from bsd.foundation.value_path import names_value, parse_path

LONGEST_TEXT = 40_000  # characters of all texts of a page
LARGEST_PICTURES = 5_000_000  # characters of base64, as much as providers take


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an entry's values, and where the rest begins.

    A picture stands under `pictures`, and under `texts` what it is. Anything else that is no text
    is JSON there.
    """

    entry_id: str
    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)
    following: tuple[str, ...] = ()  # keys of which there is more; the first one may be cut
    offset: int = 0  # so many characters of that one have been given
    left: int = 0  # characters of all of them that have not

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract; those that say nothing are left out."""
        answer: dict[str, Any] = {"texts": self.texts}
        if self.pictures:
            answer["pictures"] = {
                key: {"media_type": one.media_type, "data": one.data}
                for key, one in self.pictures.items()
            }
        if self.following:
            answer["characters_left"] = self.left
            answer["next"] = {
                "tool": "read_extracted",
                "entry": self.entry_id,
                "keys": list(self.following),
                "offset": self.offset,
            }
        return answer


def page_of(
    entry_id: str, content: Mapping[str, Any], keys: Sequence[str], offset: int = 0
) -> Page:
    """A page of the values with these keys; `offset` characters of the first are passed over.

    Raises Invalid for an offset behind the end.
    """
    page = Page(entry_id)
    room = LONGEST_TEXT
    for number, key in enumerate(keys):
        picture = None if offset else picture_of(content[key])
        taken = sum(len(one.data) for one in page.pictures.values())
        if picture is not None and len(picture.data) <= LARGEST_PICTURES:
            if taken + len(picture.data) > LARGEST_PICTURES:
                return _ended(page, content, keys[number:], 0)
            page.pictures[key] = picture
            page.texts[key] = _described(picture)
            continue
        text = text_of_value(content[key])
        if offset and offset >= len(text):
            raise Invalid(
                f"{key} has {len(text)} characters, so there is nothing from {offset} on",
                hint="leave `offset` out to begin at its beginning",
            )
        if room:
            page.texts[key] = text[offset : offset + room]
        if offset + room < len(text):
            return _ended(page, content, keys[number:], offset + room if room else 0)
        room, offset = room - (len(text) - offset), 0
    return page


def text_of_value(value: Any) -> str:
    """A value as text: itself, or JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply to be shown; `bsd show AGENT/SESSION --entry ID --full` can]"


def matching(name: str, keys: Iterable[str]) -> list[str]:
    """The keys that a name means: a whole path, or one segment of it."""
    return [key for key in keys if names_value(name, parse_path(key))]


def _ended(page: Page, content: Mapping[str, Any], left: Sequence[str], offset: int) -> Page:
    characters = sum(len(text_of_value(content[key])) for key in left) - offset
    return replace(page, following=tuple(left), offset=offset, left=characters)


def _described(picture: Picture) -> str:
    return f"[a picture: {picture.media_type}, {len(picture.data) * 3 // 4} bytes]"
