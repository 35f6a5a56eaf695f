"""Real transcripts: every long value can leave its line and come back, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from bsd.foundation.value_path import ValuePath
from bsd.text.reader import TranscriptFile, parse_entry
from bsd.text.splice import edit, find

PLACEHOLDER = b'"[[extracted-abc]]"'
LONG = 200  # characters


def long_strings(value: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, str]]:
    if isinstance(value, str) and len(value) >= LONG:
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from long_strings(member, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from long_strings(element, (*path, index))


@pytest.fixture
def transcripts(shared_data: Path) -> list[Path]:
    paths = sorted(shared_data.glob("*.jsonl"))
    assert paths
    return paths


def test_lines_joined_are_the_file(transcripts: list[Path]) -> None:
    for path in transcripts:
        data = path.read_bytes()
        with TranscriptFile(path, block=1 << 16) as transcript:
            lines = list(transcript.lines())
        assert b"".join(line.raw for line in lines) == data
        ends = accumulate(len(line.raw) for line in lines)
        assert [line.offset for line in lines] == [0, *ends][:-1]


def test_long_values_leave_and_come_back(transcripts: list[Path]) -> None:
    edited_lines = 0
    for path in transcripts:
        with TranscriptFile(path) as transcript:
            for line in transcript.lines():
                entry = parse_entry(line.raw)
                if entry is not None:
                    edited_lines += check_line(line.raw, dict(long_strings(entry)))
    assert edited_lines > 1000


def check_line(raw: bytes, values: dict[ValuePath, str]) -> bool:
    spans = find(raw, values)
    original = {path: raw[span.start : span.end] for path, span in spans.items()}
    for path, text in values.items():
        read = parse_entry(b'{"text":%s}' % original[path])
        assert read == {"text": text}

    extracted = edit(raw, replace=dict.fromkeys(values, PLACEHOLDER), put={"_extracted": b"{}"})
    assert len(extracted) < len(raw) or not values
    assert edit(extracted, replace=original, remove=[("_extracted",)]) == raw
    assert edit(edit(raw, replace=dict.fromkeys(values, PLACEHOLDER)), replace=original) == raw

    members = [path for path in values if isinstance(path[-1], str)]
    assert edit(edit(raw, remove=members), reinsert=members, original=raw) == raw
    return bool(values)
