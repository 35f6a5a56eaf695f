"""A deleted session is read as before: its pages have the same texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.actions import list_entries as module
from bsd.actions.archive import GoneEntries, copy_sessions, list_archive, show_archived
from bsd.actions.extract import extract
from bsd.actions.list_entries import list_entries
from tests.actions.test_outline_of_subagents import context_of
from tests.transcripts.agents.sources.claude_code import CLAUDE_CODE, claude_code_lines
from tests.transcripts.agents.sources.tree import EVERYTHING, Home


def test_pages_of_a_gone_session_have_the_texts_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines(6))
    context = context_of(home.layout)
    before = list_entries(context, home.name, texts=40)
    extract(context, home.name, settings=EVERYTHING)
    after = list_entries(context, home.name, texts=40)
    extracted = [text for row in after.entries for text in row.texts if text.extracted]
    assert extracted
    for row, was in zip(after.entries, before.entries, strict=True):
        assert [one.text for one in row.texts] == [one.text for one in was.texts]
    # After a page has read enough, the rest comes with a later page.
    monkeypatch.setattr(module, "_MOST_READ", 0)
    late = [
        text for row in list_entries(context, home.name, texts=40).entries for text in row.texts
    ]
    assert [text.later for text in late if text.extracted] == [True] * len(extracted)
    monkeypatch.undo()
    assert copy_sessions(context).copied == 1
    home.path.unlink()
    [gone] = list_archive(context).sessions
    page = show_archived(context, gone.id, start=3, limit=5, texts=40)
    assert isinstance(page, GoneEntries)
    assert [row.texts for row in page.entries] == [row.texts for row in after.entries[3:8]]
    assert page.next == 8
