"""A redacted secret is in no file of the root any more, and programs continue their sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.export import ExportFormat, export_session
from bsd.actions.redact_secret import SecretRedacted, redact_secret
from bsd.actions.secrets import find_secrets
from bsd.core.errors import Conflict, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.zstd import zstd
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.edit import setting
from bsd.planning.redact_text import SecretText
from tests.actions import performed
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, extract, keep
from tests.maintenance.test_forgetting import said
from tests.openclaw_tree import add_session, set_idle
from tests.refusing import raising
from tests.session_files import HEADER, LONG, NAME, Clock, Talk, entry, jsonl, make_caller

# Assembled here, so that no scanner takes this file for a leak.
TOKEN = "ghp_" + "7Gk2bQ9xZt4LmW8sVr1NcY5pHd3JfA6eUoXi"
KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(f"MIIEow{n}BAAKCAQEA{chr(65 + n) * 3}x7Qz9{n * 7}kPvYhTgRw" for n in range(6))
    + "\n-----END RSA PRIVATE KEY-----"
)
HASHES = {"github-pat": TOKEN, "private-key": KEY}


def entries() -> list[dict[str, Any]]:
    """Two secrets: in a prompt, in a call, and in long results, once as JSON in a text."""
    call = {"type": "toolCall", "id": "call3", "name": "bash"}
    nested = json.dumps({"stdout": f"{KEY}\n", "token": TOKEN})
    found = [
        HEADER,
        entry(0, "user", f"my token is {TOKEN}, keep it"),
        entry(1, "toolResult", f"export GITHUB_TOKEN={TOKEN}\n{LONG}"),
        entry(2, "assistant", "so"),
        entry(3, "toolResult", f"{LONG} {nested}"),
    ]
    found[3]["message"]["content"] = [
        {"type": "text", "text": "now"},
        call | {"arguments": {"command": f"curl -H 'X: {TOKEN}' https://x.org"}},
    ]
    return found + [entry(n, "assistant", "seen") for n in range(4, 9)]


def session(layout: Layout, name: SessionName = NAME) -> Path:
    path = add_session(layout.root, str(name), jsonl(*entries()))
    set_idle(path, 2 * DAY)
    return path


def context_of(layout: Layout, clock: Clock) -> ActionContext:
    return make_caller(layout, clock)


def redact(layout: Layout, clock: Clock, rule: str) -> SecretRedacted:
    context = context_of(layout, clock)
    [hash_] = [one.hash for one in find_secrets(context).secrets if one.rule == rule]
    return redact_secret(context, hash_)


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["live", "gone"])
def test_no_copy_is_left(layout: Layout, clock: Clock, *, is_gone: bool, packed: bool) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    keep(layout, clock)
    search(layout, "token")
    if packed:
        for file in layout.store_dir(NAME).glob("0*"):
            set_idle(file, 3 * DAY)
        RetentionRun(layout, actor="test").clean_store("24h", into_archive=True)
    if is_gone:
        path.unlink()
        keep(layout, clock)
    assert len(said(layout, TOKEN)) >= 2
    for rule, secret in HASHES.items():
        done = redact(layout, clock, rule)
        assert done.complete, done
        for piece in secret.split("\n"):
            assert "PRIVATE KEY" in piece or said(layout, piece) == []
    assert find_secrets(context_of(layout, clock)).secrets == ()
    if is_gone:
        bring_back(layout, str(NAME), clock)
    for entry_id in () if is_gone else ("e1", "e3"):
        assert performed.restore(make_caller(layout, clock), NAME, entry_id)["restored"]
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [line["id"] for line in entries()]
    text = lines[2]["message"]["content"][0]["text"]
    assert text == f"export GITHUB_TOKEN=[redacted-github-pat]\n{LONG}"
    stdout = json.loads(lines[4]["message"]["content"][0]["text"].removeprefix(f"{LONG} "))
    assert stdout == {"stdout": "[redacted-private-key]\n", "token": "[redacted-github-pat]"}
    command = lines[3]["message"]["content"][1]["arguments"]["command"]
    assert command == "curl -H 'X: [redacted-github-pat]' https://x.org"
    assert verify(layout).clean


def test_a_fork_that_needs_the_stored_line_gets_one_without_the_secret(
    layout: Layout, clock: Clock
) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    fork = SessionName("main", "fork")
    add_session(layout.root, str(fork), path.read_bytes())
    done = redact(layout, clock, "github-pat")
    assert done.complete
    assert [one.session for one in done.sessions] == [str(fork), str(NAME)]
    assert said(layout, TOKEN) == []
    for name in (fork, NAME):
        assert performed.restore(make_caller(layout, clock), name, "e1")["restored"]
        assert b"GITHUB_TOKEN=[redacted-github-pat]" in layout.session_file(name).read_bytes()


def fork_without_inline_secrets(layout: Layout, path: Path) -> tuple[SessionName, Path]:
    """A copy of a session in which only the extracted text holds a secret."""
    fork = SessionName("main", "fork")
    lines = [line for line in path.read_bytes().splitlines(True) if TOKEN.encode() not in line]
    copy = add_session(layout.root, str(fork), b"".join(lines))
    set_idle(copy, 2 * DAY)
    return fork, copy


def test_a_copy_of_a_fork_that_is_gone_keeps_all_but_the_secret(
    layout: Layout, clock: Clock
) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    fork, copy = fork_without_inline_secrets(layout, path)
    keep(layout, clock)
    copy.unlink()
    assert redact(layout, clock, "github-pat").complete
    assert said(layout, TOKEN) == []
    bring_back(layout, str(fork), clock)
    performed.restore_all(make_caller(layout, clock), fork)
    assert f"GITHUB_TOKEN=[redacted-github-pat]\\n{LONG}" in copy.read_text()
    assert verify(layout).clean


@pytest.mark.parametrize("place", ["excluded", "trash"])
def test_stored_text_that_a_session_needs_stays_if_that_cannot_be_changed(
    layout: Layout, clock: Clock, place: str
) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    fork, copy = fork_without_inline_secrets(layout, path)
    caller, trash = make_caller(layout, clock), Trash(layout, "14d")
    if place == "trash":
        (item,) = trash.delete(fork).items
    else:
        caller.config.update({"exclude": [str(fork)]})
    done = redact(layout, clock, "github-pat")
    assert not done.complete
    assert len([file for file in done.still_in if "/extracted/" in file]) == 2
    reasons = [one.why for one in done.left] + [str(one.error) for one in done.sessions]
    assert any(place in why for why in reasons)
    assert TOKEN not in path.read_text()
    if place == "trash":
        trash.restore(item.id)
    else:
        caller.config.update({"exclude": []})
    performed.restore_all(caller, fork)
    assert f"GITHUB_TOKEN={TOKEN}\\n{LONG}" in copy.read_text()
    assert redact(layout, clock, "github-pat").complete
    assert said(layout, TOKEN) == []


def escaped(text: str, at: int) -> str:
    """A text as some programs write it in JSON: one character by its code."""
    return f"{text[:at]}\\u{ord(text[at]):04X}{text[at + 1 :]}"


def test_a_secret_written_with_codes_or_backslashes_is_the_same_secret(
    layout: Layout, clock: Clock, tmp_path: Path
) -> None:
    password = "k9\\\\QzX7+pL2/vR8w"  # as JSON writes it: with one backslash
    lines = [HEADER, *(entry(n, "toolResult", f"{n} @{n} {LONG}") for n in range(2))]
    lines += [entry(2, "user", "@2 @3"), *(entry(n, "assistant", "seen") for n in range(3, 8))]
    raw = jsonl(*lines)
    for n, text in enumerate(
        (
            escaped(TOKEN, 12),
            f'db_password = \\"{password}\\"',
            f'db_password = \\"{escaped(password, 8)}\\"',
            f"{TOKEN} {escaped(TOKEN, 0)} {escaped(TOKEN, len(TOKEN) - 1)}",
        )
    ):
        raw = raw.replace(b"@%d" % n, text.encode())
    path = add_session(layout.root, str(NAME), raw)
    set_idle(path, 2 * DAY)
    caller = make_caller(layout, clock)
    pieces = (TOKEN[13:30], "QzX7", "pL2", "vR8w")
    for form in ExportFormat:
        file = tmp_path / f"out.{form}"
        done_export = export_session(caller, NAME, form, file, redact=True)
        assert {one.rule for one in done_export.secrets} == {"github-pat", "generic-api-key"}
        assert not [piece for piece in pieces if piece in file.read_text()], form
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    found = find_secrets(caller).secrets
    assert sorted(one.rule for one in found) == ["generic-api-key", "github-pat"]
    for one in found:
        done = redact_secret(caller, one.hash)
        assert done.complete
        assert done.sessions[0].values == 2
    assert [said(layout, piece) for piece in pieces] == [[], [], [], []]
    performed.restore_all(caller, NAME)
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    assert verify(layout).clean


@pytest.mark.parametrize("run", ["\\" * 400_000, "ghp_\\" * 90_000, "gh\\\\" * 90_000])
def test_runs_of_backslashes_are_read_once(run: str) -> None:
    text = SecretText(TOKEN, "gone")
    assert not text.is_in(run.encode())
    assert text.replaced(f"{run} {TOKEN[:9]}\\{TOKEN[9:]}") == f"{run} gone"


def test_undo_data_of_an_earlier_edit_goes_too(layout: Layout, clock: Clock) -> None:
    path = session(layout)
    caller = make_caller(layout, clock)
    performed.edit(caller, NAME, "e0", setting([(("message", "content", 0, "text"), "none")]))
    set_idle(path)
    clock.ahead += 120
    caller.recover()
    assert any("history" in file for file in said(layout, TOKEN))
    assert redact(layout, clock, "github-pat").complete
    assert said(layout, TOKEN) == []


def test_a_copy_made_before_a_restore_keeps_all_but_the_secret(
    layout: Layout, clock: Clock
) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    keep(layout, clock)
    performed.restore_all(make_caller(layout, clock), NAME)
    set_idle(path)
    assert redact(layout, clock, "github-pat").complete
    assert said(layout, TOKEN) == []
    path.unlink()
    bring_back(layout, str(NAME), clock)
    performed.restore_all(make_caller(layout, clock), NAME)
    assert f"GITHUB_TOKEN=[redacted-github-pat]\\n{LONG}" in path.read_text()


@pytest.mark.parametrize("step", ["lines", "rewrite_snapshot", "tidy_snapshot"])
def test_a_redaction_that_was_killed_leaves_nothing_that_is_not_found_again(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = add_session(layout.root, str(NAME), jsonl(HEADER, entry(0, "user", f"use {TOKEN}")))
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    search(layout, "use")
    with monkeypatch.context() as patch:
        place = "store.snapshot_parts" if step == "tidy_snapshot" else "maintenance.forget"
        name = f"bsd.{place}.{'Forget.' if step == 'lines' else ''}{step}"
        patch.setattr(name, raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            redact(layout, clock, "github-pat")
    assert TOKEN not in path.read_text()
    clock.ahead += 120
    make_caller(layout, clock).recover()  # the replaced version of the session goes
    set_idle(path)
    (one,) = find_secrets(make_caller(layout, clock)).secrets
    assert [place.where for place in one.places] == ["copied"]
    assert redact_secret(context_of(layout, clock), one.hash).complete
    assert said(layout, TOKEN) == []


def test_a_killed_redaction_is_told_and_goes_on_without_the_secret(
    layout: Layout, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the search index and the replaced version of the session still have it."""
    path = add_session(layout.root, str(NAME), jsonl(HEADER, entry(0, "user", f"use {TOKEN}")))
    set_idle(path, 2 * DAY)
    search(layout, "use")
    context = context_of(layout, clock)
    [hash_] = [one.hash for one in find_secrets(context).secrets]
    with monkeypatch.context() as patch:
        patch.setattr("bsd.maintenance.forget.Forget.lines", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            redact_secret(context, hash_)
    assert len(said(layout, TOKEN)) == 2
    [half] = [one for one in verify(layout).findings if one.kind == "half_redacted"]
    assert f"`bsd secrets redact {hash_[:8]}`" in str(half.hint)
    assert not redact_secret(context, hash_, dry_run=True).complete
    done = redact_secret(context, hash_[:10])
    assert (done.complete, done.rule, done.sessions[0].session) == (True, "github-pat", str(NAME))
    assert said(layout, TOKEN) == []
    assert verify(layout).clean
    with pytest.raises(NotFound):
        redact_secret(context, hash_)


def test_a_dry_run_names_the_copies_that_would_stay(layout: Layout, clock: Clock) -> None:
    excluded, trashed = SessionName("main", "excluded"), SessionName("main", "trashed")
    path, hidden, _ = (session(layout, name) for name in (NAME, excluded, trashed))
    conflict = path.with_name(f"{path.stem}.sync-conflict-20261126-120000-ABCDEFG.jsonl")
    conflict.write_bytes(path.read_bytes())
    compressed = path.with_suffix(".jsonl.zst")
    compressed.write_bytes(zstd.compress(path.read_bytes()))
    caller = make_caller(layout, clock)
    (item,) = Trash(layout, "14d").delete(trashed).items
    caller.config.update({"exclude": [str(excluded)]})
    [hash_] = [one.hash for one in find_secrets(caller).secrets if one.rule == "github-pat"]
    set_idle(path, 0)
    (one,) = redact_secret(caller, hash_, dry_run=True).sessions
    assert (one.session, "in use" in str(one.error)) == (str(NAME), True)
    set_idle(path, DAY)
    before = path.read_bytes()
    told = redact_secret(caller, hash_, dry_run=True)
    assert path.read_bytes() == before
    assert (told.sessions[0].entries, told.sessions[0].error) == (4, None)
    stays = {str(conflict), str(compressed), str(hidden), str(layout.trash / f"{item.id}.jsonl")}
    assert set(told.still_in) == stays
    assert "the model provider" in told.unreached[0]
    done = redact_secret(caller, hash_)
    assert (done.complete, set(done.still_in)) == (False, stays)
    assert TOKEN.encode() not in path.read_bytes()


def test_a_copy_that_is_older_than_the_session_and_an_edit_within_the_secret(
    layout: Layout, clock: Clock
) -> None:
    path = session(layout)
    keep(layout, clock)
    caller = make_caller(layout, clock)
    new = setting([(("message", "content", 0, "text"), f"my token is {TOKEN[:9]}, keep it")])
    performed.edit(caller, NAME, "e0", new)
    # Its program has rewritten it, without the other places.
    lines = [line for line in path.read_bytes().splitlines(True) if TOKEN.encode() not in line]
    other = [HEADER, entry(0, "user", f"what is {TOKEN}?"), entry(1, "assistant", "a token")]
    path.write_bytes(b"".join(lines))
    add_session(layout.root, "main/other", jsonl(*other))
    set_idle(path)
    clock.ahead += 120
    caller.recover()
    assert {file.split("/")[0] for file in said(layout, TOKEN)} == {"agents", "archive"}
    assert any("history" in file for file in said(layout, TOKEN[9:]))
    assert redact(layout, clock, "github-pat").complete
    assert said(layout, TOKEN[9:]) == []


def test_what_cannot_be_changed_is_told(layout: Layout, clock: Clock) -> None:
    lines = entries()
    lines[0] = {**HEADER, "cwd": f"/home/{TOKEN}"}
    lines[5]["message"]["content"] = [
        {"type": "thinking", "thinking": f"use {TOKEN}", "signature": "c2lnbmVk"}
    ]
    lines[6][TOKEN] = 1
    path = add_session(layout.root, str(NAME), jsonl(*lines))
    done = redact(layout, clock, "github-pat")
    assert not done.complete
    assert {one.entry: one.why.partition(":")[0] for one in done.left} == {
        "s": "it is the header of the session",
        "e4": "message.content[0].thinking is signed",
        "e5": "it is in the name of a member, or in a number",
    }
    assert path.read_bytes().count(TOKEN.encode()) == 3


def test_text_taken_out_stays_if_the_secret_is_the_name_of_a_member(
    layout: Layout, clock: Clock
) -> None:
    lines = entries()
    lines[3]["message"]["content"][1]["arguments"] = {TOKEN: LONG, "again": TOKEN}
    path = add_session(layout.root, str(NAME), jsonl(*lines))
    set_idle(path, 2 * DAY)
    extract(layout, NAME, clock, trigger_types=("tool_call", "tool_result"))
    assert "[[extracted-e2]]" in path.read_text()
    done = redact(layout, clock, "github-pat")
    assert "it is in the extracted content" in {one.why for one in done.left}
    assert (done.complete, done.sessions[0].forgotten) == (False, ())
    performed.restore_all(make_caller(layout, clock), NAME)
    call = json.loads(path.read_text().split("\n")[3])["message"]["content"][1]
    assert call["arguments"] == {TOKEN: LONG, "again": "[redacted-github-pat]"}


def test_a_placeholder_stays_that_has_the_secret_in_its_name(layout: Layout, clock: Clock) -> None:
    id_ = "k9QzX7pL2vR8w3Tb"
    lines = [
        HEADER,
        entry(0, "user", f'api_key = "{id_}"'),
        entry(1, "toolResult", LONG, id=id_),
        *(entry(n, "assistant", "seen") for n in range(2, 8)),
    ]
    path = add_session(layout.root, str(NAME), jsonl(*lines))
    set_idle(path, 2 * DAY)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    assert f"[[extracted-{id_}]]" in path.read_text()
    done = redact(layout, clock, "generic-api-key")
    assert 'api_key = \\"[redacted-' in path.read_text()
    assert not done.complete
    assert performed.restore_all(make_caller(layout, clock), NAME).entries == 1
    assert LONG in path.read_text()


def test_a_session_that_cannot_be_changed_stops_no_other(layout: Layout, clock: Clock) -> None:
    path = session(layout)
    extract(layout, NAME, clock, trigger_types=("tool_result",))
    foreign = add_session(layout.root, "main/foreign", b'{"a": "%b"}\n' % TOKEN.encode())
    done = redact(layout, clock, "github-pat")
    assert not done.complete
    assert {one.session: one.error is None for one in done.sessions} == {
        "main/foreign": False,
        str(NAME): True,
    }
    assert said(layout, TOKEN) == [str(foreign.relative_to(layout.root))]
    assert b"[redacted-github-pat]" in path.read_bytes()


def test_entries_that_a_signature_covers_are_told(layout: Layout, clock: Clock) -> None:
    talk = Talk()
    talk.user(f"take {TOKEN}")
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2lnbmVk"}
    talk.says(thinking, {"type": "text", "text": "yes"}, model="claude-opus-6")
    talk.user("more")
    add_session(layout.root, str(NAME), talk.raw)
    [done] = redact(layout, clock, "github-pat").sessions
    assert done.bound == ("e1",)


def test_files_of_its_program_are_told(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    [path] = home.source.glob(f"*/{home.names[0].session}.jsonl")
    lines = path.read_bytes().replace(b"do it", b"do it with " + TOKEN.encode(), 1)
    path.write_bytes(lines)
    set_idle(path)
    beside = next(path.parent.glob("*/tool-results/*.txt"))
    beside.write_text(f"token {TOKEN}\n")
    prompt = {
        "display": f"use {TOKEN}",
        "timestamp": 1767225600000,
        "project": "/home/ada",
        "sessionId": home.names[0].session,
    }
    (home.source.parent / "history.jsonl").write_bytes(jsonl(prompt))
    done = redact(home.layout, clock, "github-pat")
    assert TOKEN.encode() not in path.read_bytes()
    assert (done.complete, done.left) == (False, ())
    assert done.still_in == (
        str(beside),
        "the prompts that the program of claude-code remembers",
    )


def test_a_short_one_and_an_unknown_one_are_refused(layout: Layout, clock: Clock) -> None:
    add_session(
        layout.root,
        str(NAME),
        jsonl(HEADER, entry(0, "user", "postgres://ada:k9QzX7@db.org/x " + LONG)),
    )
    with pytest.raises(Conflict, match="too short"):
        redact(layout, clock, "url-password")
    with pytest.raises(NotFound):
        redact_secret(context_of(layout, clock), "00000000")
