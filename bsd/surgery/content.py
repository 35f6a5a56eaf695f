"""Other texts in place of an entry's values, whether they are inline or in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bsd.agents.dialect import Value
from bsd.agents.entry import Entry
from bsd.agents.marker import MARKER, Marker
from bsd.foundation.value_path import ValuePath, paths_of
from bsd.text.splice import edit, encode_string


def put_texts(
    raw: bytes, entry: Entry, texts: Sequence[tuple[Value, str]], put: Mapping[str, bytes] = {}
) -> bytes:
    """Put texts in the place of values, and members into the entry; raises SpliceError.

    What was in the store of such a value is no longer spoken of by the line. A block that is no
    text becomes a text block.
    """
    replaced = {value.path: _encoded(value, text) for value, text in texts}
    members = dict(put)
    remove: list[ValuePath] = []
    marker = Marker.of(entry)
    if marker and (gone := _no_longer_away(marker, replaced)):
        left = tuple(key for key in marker.keys if key not in gone)
        if left:
            members[MARKER] = Marker(
                marker.ref, marker.hash, marker.size, left, marker.at
            ).to_json()
        else:
            remove.append((MARKER,))
    return edit(raw, replace=replaced, remove=remove, put=members)


def _encoded(value: Value, text: str) -> bytes:
    return value.shape.holding(encode_string(text))


def _no_longer_away(marker: Marker, replaced: Mapping[ValuePath, bytes]) -> set[str]:
    """Keys of values that a text takes the place of; a block's key names the whole block."""
    return {
        key
        for key, path in paths_of(marker.keys).items()
        if path in replaced or any(other[:-1] == path for other in replaced)
    }
