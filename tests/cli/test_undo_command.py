"""`bsd history`, `bsd undo`, `bsd edit` as people and programs use them."""

from __future__ import annotations

import json
import re
import shlex
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call, lines_of, rest
from tests.openclaw_tree import set_idle

HISTORY = {
    *("operation", "action", "at", "actor", "state", "undoes", "entries", "entry_ids", "values"),
    *("bytes_before", "bytes_after"),
}


@pytest.fixture
def alpha(root: Path) -> Path:
    return root / "agents" / "main" / "sessions" / "alpha.jsonl"


def an_entry(bsd: Call) -> str:
    """The id of a user's message."""
    entries = bsd("show", "main/alpha", "--json").document["entries"]
    found: str = next(entry["id"] for entry in entries if entry["role"] == "user")
    return found


def editor(tmp_path: Path, program: str) -> str:
    """An editor that runs a Python program with `path`, and `text`, the content of the file."""
    file = tmp_path / "editor.py"
    file.write_text(
        "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n" + program
    )
    return shlex.join([sys.executable, str(file)])


def test_history_and_undo(bsd: Call, root: Path, alpha: Path) -> None:
    original = alpha.read_bytes()
    assert bsd("extract", "main/alpha").code == 0
    rest(root)
    document = bsd("history", "main/alpha", "--json").document
    assert set(document) == {"session", "operations"}
    (extracted,) = document["operations"]
    assert set(extracted) == HISTORY | {"cut_reason"}
    assert (extracted["operation"], extracted["action"], extracted["actor"]) == (
        1,
        "extract",
        "cli",
    )
    assert len(extracted["entry_ids"]) == extracted["entries"] > 3
    out = bsd("history", "main/alpha").out
    assert re.search(r"1 .*extract .*cli .*done .*−.* and \d+ more", out)
    ended = bsd("undo", "main/alpha", "--json")
    assert ended.code == 0
    assert ended.document == {
        "undone": 1,
        "action": "extract",
        "at": extracted["at"],
        "entries": extracted["entry_ids"],
        "gone": [],
        "operations": [2],
    }
    assert alpha.read_bytes() == original
    rest(root)
    ended = bsd("undo", "main/alpha", "2")
    assert "Undid operation 2 (undo" in ended.out
    assert "`bsd undo main/alpha 3` does it again" in ended.out
    assert "undo of 2" in bsd("history", "main/alpha").out
    rest(root)
    assert "The values stay inline until `bsd extract main/alpha`" in bsd("undo", "main/alpha").err
    assert alpha.read_bytes() == original


def a_restore(bsd: Call, root: Path, alpha: Path) -> bytes:
    """Extract, then restore an entry; return the session's content after that."""
    assert bsd("extract", "main/alpha").code == 0
    rest(root)
    (extracted,) = bsd("history", "main/alpha", "--json").document["operations"]
    assert bsd("restore", "main/alpha", extracted["entry_ids"][0]).code == 0
    rest(root)
    return alpha.read_bytes()


@pytest.mark.parametrize("number", [[], ["2"]], ids=["newest", "named"])
def test_undoing_a_restore_asks(
    bsd: Call, root: Path, alpha: Path, monkeypatch: pytest.MonkeyPatch, number: list[str]
) -> None:
    restored = a_restore(bsd, root, alpha)
    ended = bsd("undo", "main/alpha", *number)  # no user is there to answer
    assert ended.code == 2
    assert f"Try: `bsd undo {' '.join(['main/alpha', *number])} --yes`" in ended.err
    assert alpha.read_bytes() == restored

    asked = []

    def confirm(question: str, refusal: str) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr("bsd.cli.call.confirm", confirm)
    assert bsd("undo", "main/alpha", *number).code == 1
    assert alpha.read_bytes() == restored
    ended = bsd("undo", "main/alpha", *number)
    assert ended.code == 0
    assert alpha.read_bytes() != restored
    assert re.fullmatch(
        r"Undo operation 2 \(restore, [-T:0-9]{19} UTC\): "
        r"extract \d+ values? of 1 entry from main/alpha again\?",
        asked[0],
    )
    assert "Undid operation 2 (restore" in ended.out
    assert "1 entry, whose values are extracted again" in ended.out


def test_undoing_a_restore_unasked(bsd: Call, root: Path, alpha: Path) -> None:
    restored = a_restore(bsd, root, alpha)
    assert bsd("undo", "main/alpha", "--yes", "--json").document["undone"] == 2
    assert alpha.read_bytes() != restored
    rest(root)
    ended = bsd("undo", "main/alpha")
    assert (ended.code, "Undid operation 1 (extract" in ended.out) == (0, True)


def test_a_dry_run_says_what_comes_back(bsd: Call, root: Path, alpha: Path) -> None:
    bsd("extract", "main/alpha")
    rest(root)
    before = alpha.read_bytes()
    ended = bsd("undo", "main/alpha", "--dry-run")
    assert ended.code == 0
    assert "`bsd undo main/alpha 1` undoes operation 1 (extract" in ended.out
    assert re.search(r"\d+ values come back into the session; it grows by [\d.]+ KB\.", ended.out)
    assert re.search(r"reads about [\d,]+ tokens more", ended.out)
    document = bsd("undo", "main/alpha", "--dry-run", "--json").document
    assert document["undone"] == 1
    assert document["operations"] == []
    assert document["effect"]["values_back"] > 3
    assert alpha.read_bytes() == before


def test_all_that_was_taken_out_since_yesterday_comes_back(
    bsd: Call, root: Path, alpha: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals = {path: path.read_bytes() for path in root.glob("agents/*/sessions/*.jsonl")}
    bsd("extract")
    rest(root)
    bsd("set-extractable", "main/beta", an_entry_that_is_away(bsd, "main/beta"), "true")
    rest(root)
    lean = alpha.read_bytes()
    ended = bsd("undo", "--since", "yesterday", "--dry-run")
    assert ended.code == 1  # beta is left
    assert re.search(r"main/alpha +would be undone +1 +\d+ +[\d.]+ KB +~[\d,]+", ended.out)
    assert re.search(r"main/beta +left +0 of 1", ended.out)
    assert "main/beta was left as it is: operation 1 (extract" in ended.err
    assert "2 operations in 2 sessions would be undone:" in ended.out
    assert re.search(r"\d+ values come back into their sessions; they grow by", ended.out)
    assert "nothing was changed" in ended.out
    assert alpha.read_bytes() == lean

    ended = bsd("undo", "--since", "yesterday")  # no user is there to answer
    assert (ended.code, "Try: `bsd undo --since yesterday --yes`" in ended.err) == (2, True)
    assert alpha.read_bytes() == lean

    asked: list[str] = []

    def confirm(question: str, refusal: str) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr("bsd.cli.call.confirm", confirm)
    ended = bsd("undo", "--since", "yesterday", "--agent", "main")
    assert asked == ["Undo 1 operation in 1 session?"]
    assert "1 operation in 1 session undone:" in ended.out
    assert alpha.read_bytes() == originals[alpha]
    document = bsd("undo", "--since", "1h", "--yes", "--json").document
    assert document["undone"] == 1  # the other agent's
    assert document["sessions"][0]["status"] == "left"
    beta = alpha.with_name("beta.jsonl")
    assert all(path == beta or path.read_bytes() == raw for path, raw in originals.items())
    assert "are left to undo" in bsd("undo", "main/alpha", "--since", "1h", "--yes").out


def an_entry_that_is_away(bsd: Call, session: str) -> str:
    (extracted,) = bsd("history", session, "--json").document["operations"]
    found: str = extracted["entry_ids"][0]
    return found


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--since", "soon"),
        ("--agent", "main", "main/alpha"),
        ("main/alpha", "1", "--since", "1h"),
    ],
)
def test_an_undo_that_means_nothing(bsd: Call, words: tuple[str, ...]) -> None:
    ended = bsd("undo", *words)
    assert (ended.code, "Try:" in ended.err) == (2, True)


def test_a_history_can_be_empty_and_a_session_unknown(bsd: Call) -> None:
    assert "the history of main/alpha is empty" in bsd("history", "main/alpha").out
    assert bsd("history", "main/alpha", "--json").document["operations"] == []
    assert bsd("history", "main/nobody").code == 1
    assert bsd("undo", "main/nobody").code == 1
    ended = bsd("undo", "main/alpha")
    assert (ended.code, "there is no operation left to undo" in ended.err) == (1, True)
    assert bsd("undo", "main/alpha", "0").code == 2


def test_what_stands_in_the_way_is_said(bsd: Call, root: Path, alpha: Path) -> None:
    entry = an_entry(bsd)
    bsd("set-extractable", "main/alpha", entry, "false")
    rest(root)
    bsd("set-extractable", "main/alpha", entry, "true")
    rest(root)
    before = alpha.read_bytes()
    ended = bsd("undo", "main/alpha", "1")
    assert ended.code == 1
    assert "operation 2 (set_extractable" in ended.err
    assert entry in ended.err
    assert "undo operation 2 first" in ended.err
    assert alpha.read_bytes() == before


def test_edit_by_assignment(bsd: Call, root: Path, alpha: Path) -> None:
    original = alpha.read_bytes()
    entry = an_entry(bsd)
    argv = ("edit", "main/alpha", entry, "--set", 'message.content[0].text="short"', "--set", "n=1")
    document = bsd(*argv, "--json").document
    assert document["edited"] is True
    assert document["changed"] == ["message.content[0].text", "n"]
    assert document["operation"] == 1
    changed = [
        (one, other)
        for one, other in zip(original.split(b"\n"), lines_of(alpha), strict=True)
        if one != other
    ]
    assert len(changed) == 1
    assert json.loads(changed[0][1])["message"]["content"][0]["text"] == "short"
    rest(root)
    again = bsd(*argv, "--json")
    assert again.document["edited"] is False
    assert "Nothing was changed" in bsd(*argv).out
    assert bsd("undo", "main/alpha").code == 0
    assert alpha.read_bytes() == original


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", 'id="x"'),
        ("--set", "nonsense"),
        ("--set", "a=1", "--file", "-"),
        ("--set", 'message.role="assistant"'),
    ],
)
def test_an_edit_that_cannot_be(bsd: Call, alpha: Path, arguments: tuple[str, ...]) -> None:
    before = alpha.read_bytes()
    ended = bsd("edit", "main/alpha", an_entry(bsd), *arguments)
    assert ended.code == 2
    assert "Try:" in ended.err
    assert alpha.read_bytes() == before


def test_edit_in_the_editor(bsd: Call, root: Path, alpha: Path, tmp_path: Path) -> None:
    entry = an_entry(bsd)
    modes = tmp_path / "modes"
    program = (
        "modes = [str(one.stat().st_mode) for one in (path, path.parent)]\n"
        f"pathlib.Path({str(modes)!r}).write_text(' '.join(modes))\n"
        "path.write_text(text.replace('{\\n', '{\\n  \"mine\": [1],\\n', 1))\n"
    )
    ended = bsd("edit", "main/alpha", entry, VISUAL=editor(tmp_path, program))
    assert (ended.code, ended.err) == (0, "")
    assert f"Changed 1 value of {entry}: mine" in ended.out
    (line,) = [line for line in lines_of(alpha) if b'"mine"' in line]
    assert line.startswith(b'{"mine":[1],')
    assert [stat.S_IMODE(int(mode)) for mode in modes.read_text().split()] == [0o600, 0o700]
    assert list((root / ".brainsurgeon" / "edits").iterdir()) == []


def test_an_editor_that_changes_nothing_or_fails(bsd: Call, alpha: Path, tmp_path: Path) -> None:
    entry = an_entry(bsd)
    before = alpha.read_bytes()
    edit = ("edit", "main/alpha", entry)
    assert "Nothing was changed" in bsd(*edit, VISUAL=editor(tmp_path, "")).out
    ended = bsd(*edit, VISUAL=editor(tmp_path, "sys.exit(3)"))
    assert (ended.code, "nothing was changed: " in ended.err) == (1, True)
    ended = bsd(*edit, VISUAL="/nowhere/editor", EDITOR="true")
    assert (ended.code, "--set" in ended.err) == (1, True)
    assert "--set" in bsd(*edit, VISUAL="'unclosed").err
    assert "left no file" in bsd(*edit, VISUAL=editor(tmp_path, "path.unlink()")).err
    assert alpha.read_bytes() == before
    assert list((bsd.root / ".brainsurgeon" / "edits").iterdir()) == []


def test_an_edit_that_cannot_be_applied_is_kept(bsd: Call, alpha: Path, tmp_path: Path) -> None:
    entry = an_entry(bsd)
    before = alpha.read_bytes()
    broken = editor(tmp_path, "path.write_text(text + 'my work')")
    ended = bsd("edit", "main/alpha", entry, VISUAL=broken)
    assert ended.code == 2
    match = re.search(r"your text is kept in (\S+entry\.json)", ended.err)
    assert match is not None
    kept = Path(match[1])
    assert kept.read_text().endswith("my work")
    assert alpha.read_bytes() == before
    assert f"--file {kept}" in ended.err
    kept.write_text(kept.read_text().removesuffix("my work").replace("{", '{"mine":2,', 1))
    assert bsd("edit", "main/alpha", entry, "--file", str(kept)).code == 0
    assert b'{"mine":2,' in alpha.read_bytes()


def test_an_entry_that_changes_while_it_is_edited(bsd: Call, alpha: Path, tmp_path: Path) -> None:
    entry = an_entry(bsd)
    program = (
        f"session = pathlib.Path({str(alpha)!r})\n"
        f'before, after = b\'"id":"{entry}"\', b\'"id": "{entry}"\'\n'
        "content = session.read_bytes()\n"
        "assert content.count(before) == 1\n"
        "session.write_bytes(content.replace(before, after))\n"
        "import os, time\n"
        "os.utime(session, (time.time() - 3600,) * 2)\n"
        "path.write_text(text.replace('{', '{\"mine\":1,', 1))\n"
    )
    ended = bsd("edit", "main/alpha", entry, "--json", VISUAL=editor(tmp_path, program))
    assert ended.code == 1
    assert "changed meanwhile" in ended.document["error"]
    match = re.search(r"kept in (\S+entry\.json)", ended.document["error"])
    assert match is not None
    assert '"mine":1' in Path(match[1]).read_text()
    assert b"mine" not in alpha.read_bytes()
    set_idle(alpha)
