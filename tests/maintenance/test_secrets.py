"""Secrets are found at any place of a text, by pages as at once, and none stops the search."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bsd.actions.secrets import SecretList, find_secrets, secrets_page
from bsd.core.answers import as_json
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.secrets import SecretSearch
from bsd.planning.edit import setting
from tests.actions import performed
from tests.actions.test_redact_secret import KEY, TOKEN, session
from tests.maintenance.keeping import DAY, extract, keep
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import HEADER, NAME, Clock, entry, jsonl, make_caller

OTHER = SessionName("main", "other")


def places(found: SecretList) -> set[tuple[str, str, int, str, tuple[str, ...]]]:
    return {
        (secret.rule, place.session, place.index, place.where, place.keys)
        for secret in found.secrets
        for place in secret.places
    }


def test_in_sessions_stores_and_packs(layout: Layout, clock: Clock) -> None:
    session(layout)
    add_session(layout.root, str(OTHER), jsonl(HEADER, entry(0, "user", f"again {TOKEN}")))
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    text, command = "message.content[0].text", "message.content[1].arguments.command"
    inline = {
        ("github-pat", str(NAME), 1, "transcript", (text,)),
        ("github-pat", str(NAME), 3, "transcript", (command,)),
        ("github-pat", str(OTHER), 1, "transcript", (text,)),
    }
    away = {
        ("github-pat", str(NAME), 2),
        ("github-pat", str(NAME), 4),
        ("private-key", str(NAME), 4),
    }
    caller = make_caller(layout, clock)
    found = find_secrets(caller)
    assert places(found) == inline | {(*one, "extracted", (text,)) for one in away}
    assert [(one.rule, one.count, one.sessions) for one in found.secrets] == [
        ("github-pat", 5, 2),
        ("private-key", 1, 1),
    ]
    answer = json.dumps(as_json(found))
    assert TOKEN not in answer
    assert KEY.split("\n")[1] not in answer
    for file in layout.store_dir(NAME).glob("0*"):
        set_idle(file, 3 * DAY)
    RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    assert places(find_secrets(caller)) == inline | {(*one, "archived", (text,)) for one in away}
    assert {place[1] for place in places(find_secrets(caller, [OTHER]))} == {str(OTHER)}


def test_pages_together_are_the_whole(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(layout)
    for number in range(5):
        name = f"main/n{number}"
        add_session(layout.root, name, jsonl(HEADER, entry(0, "user", f"{number} {TOKEN}")))
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    caller = make_caller(layout, clock)
    pages: list[SecretList] = []
    cursor = None
    monkeypatch.setattr("bsd.actions.secrets._PAGE_SECONDS", 0.0)
    while not pages or cursor:
        pages.append(secrets_page(caller, cursor=cursor))
        cursor = pages[-1].cursor
    assert len(pages) > 6
    assert pages[-1].scanned == pages[-1].total
    assert set().union(*map(places, pages)) == places(find_secrets(caller))


def test_a_file_that_cannot_be_read_stops_nothing(layout: Layout, clock: Clock) -> None:
    session(layout)
    path = add_session(layout.root, str(OTHER), b"")
    path.unlink()
    path.symlink_to("/etc/hostname")
    broken = add_session(layout.root, "main/broken", b'\x00\xff{"a": "' + TOKEN.encode() + b"\n")
    found = find_secrets(make_caller(layout, clock))
    assert ("github-pat", "main/broken", 0, "transcript", ()) in places(found)
    assert ("private-key", str(NAME)) in {place[:2] for place in places(found)}
    assert broken.exists()


def test_one_that_is_stopped_answers_with_what_it_has(layout: Layout, clock: Clock) -> None:
    session(layout)
    add_session(layout.root, str(OTHER), jsonl(HEADER, entry(0, "user", f"again {TOKEN}")))
    caller = replace(make_caller(layout, clock), stopping=lambda: True)
    found = find_secrets(caller)
    assert found.stopped
    assert found.scanned < found.total
    assert len({place[1] for place in places(found)}) == 1


def test_what_is_kept_in_memory_is_bounded(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{n} ghp_{'7Gk2bQ9xZt4LmW8sVr1NcY5pHd3JfA6eUo'}{n:02d}" for n in range(30)]
    lines = [entry(n, "user", text) for n, text in enumerate(texts)]
    add_session(layout.root, str(NAME), jsonl(HEADER, *lines, *lines))
    monkeypatch.setattr("bsd.maintenance.secrets.MOST_SECRETS", 10)
    monkeypatch.setattr("bsd.maintenance.secrets.MOST_PLACES", 1)
    search = SecretSearch(layout)
    search.run()
    assert len(search.found) == 10
    assert all((len(one.places), one.more) == (1, 1) for one in search.found.values())
    assert search.unlisted == 40


def test_copies_and_undo_data_are_searched_page_by_page(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.actions.secrets._PAGE_SECONDS", 0.0)
    path = session(layout)
    keep(layout, clock)
    caller = make_caller(layout, clock)
    new = setting([(("message", "content", 0, "text"), "nothing")])
    performed.edit(caller, NAME, "e0", new)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if TOKEN.encode() not in line))
    set_idle(path)
    found: set[tuple[str, str, int]] = set()
    cursor = None
    while cursor is not None or not found:
        page = secrets_page(caller, cursor=cursor)
        found |= {(rule, where, entry) for rule, _, entry, where, _ in places(page)}
        cursor = page.cursor
    assert {each[:2] for each in found} == {("github-pat", "copied"), ("private-key", "copied")}
    assert ("github-pat", "copied", 1) in found  # the line number that undo keeps
