"""`bsd memory …`: the original's commands and its lines, and one JSON document for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.errors import Unavailable
from bsd.core.logs import close_logs
from bsd.memory.facts import FIELDS
from bsd.memory.vectors import Vectors
from tests.memory.memories import DAY, HOUR, change, rows
from tests.memory.test_plugin import fill


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Bsd = Callable[..., Ended]


@pytest.fixture
def facts_db(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "facts.db"


@pytest.fixture
def bsd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bsd:
    """`bsd --root ROOT memory …` without a new process."""

    def call(*arguments: str) -> Ended:
        code = run(["--root", str(tmp_path), "memory", *arguments])
        close_logs()
        out, err = capsys.readouterr()
        assert "internal error" not in err, err
        assert "Traceback" not in err
        return Ended(code, out, err)

    return call


def kept(bsd: Bsd, text: str, *more: str) -> str:
    """Store a fact; return its id."""
    found: str = bsd("store", text, *more, "--json").json()["id"]
    return found


def age(facts_db: Path, seconds: int) -> None:
    """Make all facts older by this time."""
    for name in ("created_at", "last_confirmed_at", "expires_at"):
        change(facts_db, f"UPDATE facts SET {name} = {name} - ?", [seconds])


def test_store(bsd: Bsd, facts_db: Path) -> None:
    ended = bsd("store", "We decided on tabs", "--entity", "style")
    assert ended.out == 'Stored: "We decided on tabs" [entity: style] [decay: permanent]\n'
    assert (
        bsd("store", "we decided on  TABS", "--entity", "style").out
        == "Similar memory already exists.\n"
    )
    document = bsd(
        *("store", "Ada likes tea", "--entity", "Ada", "--key", "drink", "--value", "tea"),
        *("--class", "session", "--confidence", "0.5", "--importance", "0.1", "--tags", "A, b"),
        *("--category", "taste", "--source", "me", "--summary", "tea", "--json"),
    ).json()
    assert set(document) == {"created", *FIELDS}
    assert document["created"] is True
    assert document["decay_class"] == "session"
    assert (document["confidence"], document["importance"]) == (0.5, 0.1)
    assert (document["tags"], document["category"]) == ("a,b", "taste")
    assert (document["source"], document["summary"]) == ("me", "tea")
    new = bsd("store", "Ada likes rum", "--supersedes", document["id"], "--json").json()
    assert new["supersedes_id"] == document["id"]
    assert rows(facts_db, "SELECT COUNT(*) FROM facts") == [(3,)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("store", " "), 2, "Error: a fact needs a text"),
        (("store", "x", "--confidence", "2"), 2, "Error: confidence must be a number between"),
        (("store", "x", "--class", "stabel"), 2, "did you mean stable?"),
        (("recall", "x"), 1, "Error: there is no database"),
        (("checkpoint",), 2, "Error: Usage: checkpoint <save|restore>"),
        (("checkpoint", "keep"), 2, "Error: Usage: checkpoint <save|restore>"),
        (("checkpoint", "save"), 2, "Error: --intent and --state required for save"),
        (("checkpoint", "save", "--intent", "x"), 2, "--intent and --state required for save"),
        (("confirm", "x"), 1, "Error: there is no database"),
        (("nonsense",), 2, "Error: no such command"),
    ],
)
def test_what_cannot_be_done_is_said(
    bsd: Bsd, facts_db: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = bsd(*arguments)
    assert ended.code == code
    assert said in ended.err
    assert "\nTry: " in ended.err
    assert ended.out == ""
    assert not facts_db.exists()


def test_recall_and_lookup(bsd: Bsd) -> None:
    fact = kept(bsd, "Ada likes the harbour", "--entity", "Ada", "--tags", "sea")
    kept(bsd, "Bob likes the mountains")
    table = bsd("recall", "harbour", "ship").out.splitlines()
    assert table[0].split() == ["SCORE", "ID", "CLASS", "ENTITY", "TEXT"]
    assert table[1].split()[:4] == ["1.00", fact, "stable", "Ada"]
    assert len(table) == 2
    document = bsd("recall", "likes", "--limit", "1", "--no-refresh", "--json").json()
    assert document["query"] == "likes"
    assert set(document["results"][0]) == {"score", *FIELDS}
    found = bsd("recall", "likes", "--tag", "SEA", "--json").json()["results"]
    assert [one["id"] for one in found] == [fact]
    assert found[0]["recall_count"] == 2
    assert bsd("recall", "nothing").out == "Nothing was found.\n"
    assert len(bsd("recall", "likes", "--limit", "1", "--json").json()["results"]) == 1
    assert fact in bsd("lookup", "ADA").out
    assert bsd("lookup", "ADA", "--tag", "land").out == "Nothing was found.\n"
    document = bsd("lookup", "ada", "drink", "--json").json()
    assert document == {"entity": "ada", "key": "drink", "results": []}


def test_confirm_and_forget(bsd: Bsd) -> None:
    fact = kept(bsd, "todo")
    assert bsd("confirm", fact).out.startswith(f"Confirmed: {fact}, until 2")
    assert bsd("confirm", fact, "--json").json()["confirmed"] is True
    assert bsd("forget", fact).out == f'Forgotten: {fact} "todo"\n'
    ended = bsd("forget", fact)
    assert ended.code == 1
    assert ended.err == (
        f"Error: there is no fact {fact}\n"
        "Try: `bsd memory recall` and `bsd memory lookup` show ids\n"
    )
    again = kept(bsd, "todo")
    assert bsd("forget", again, "--json").json()["forgotten"] is True


def fading(bsd: Bsd, facts_db: Path) -> None:
    """Three facts: one has expired, one fades, one is too faint."""
    kept(bsd, "right now: expired")
    age(facts_db, 6 * HOUR + 5)
    kept(bsd, "right now: fading")
    age(facts_db, 18 * HOUR + 5)
    kept(bsd, "too faint", "--confidence", "0.05")


def test_prune(bsd: Bsd, facts_db: Path) -> None:
    fading(bsd, facts_db)
    before = facts_db.read_bytes()
    assert bsd("prune", "--dry-run").out == (
        "Would prune: 1 expired facts\nWould soft-prune: 1 low-confidence, 1 decayed\n"
    )
    predicted = bsd("prune", "--dry-run", "--json").json()
    assert facts_db.read_bytes() == before
    assert bsd("prune").out == "Hard-pruned: 1 expired\nSoft-pruned: 1 low-confidence\nDecayed: 1\n"
    assert predicted == {
        "expired": 1,
        "decayed": 1,
        "deleted": 1,
        "dry_run": True,
        "vectors_deleted": 0,
        "vectors_pending": 0,
        "vectors_orphaned": None,
    }
    assert rows(facts_db, "SELECT text, confidence FROM facts") == [("right now: fading", 0.5)]


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (("--hard",), "Hard-pruned: 1 expired\nSoft-pruned: 0 low-confidence\nDecayed: 0\n"),
        (("--soft",), "Hard-pruned: 0 expired\nSoft-pruned: 1 low-confidence\nDecayed: 1\n"),
        # the original's output
        (("--hard", "--soft"), "Hard-pruned: 1 expired\nSoft-pruned: 0 low-conf"),
        (
            ("--soft", "--dry-run"),
            "Would prune: 0 expired facts\nWould soft-prune: 1 low-confidence, 1 decayed\n",
        ),
        (("--vectors",), "Hard-pruned: 1 expired\nSoft-pruned: 1 low-confidence\nDecayed: 1\nVect"),
    ],
)
def test_prune_by_halves(bsd: Bsd, facts_db: Path, flags: tuple[str, ...], lines: str) -> None:
    fading(bsd, facts_db)
    assert bsd("prune", *flags).out.startswith(lines)


def test_backfill_decay(bsd: Bsd, facts_db: Path) -> None:
    kept(bsd, "we decided")
    assert bsd("backfill-decay").out == "All facts already properly classified.\n"
    change(facts_db, "UPDATE facts SET decay_class = 'stable', expires_at = 5")
    assert bsd("backfill-decay").out == "Reclassified:\n  permanent: 1\n"
    assert bsd("backfill-decay", "--json").json() == {"reclassified": {}}


@pytest.mark.parametrize("words", [("stats",), ()])
def test_stats(bsd: Bsd, facts_db: Path, words: tuple[str, ...]) -> None:
    kept(bsd, "right now")
    assert "Expired" not in bsd(*words).out
    age(facts_db, 2 * DAY)
    kept(bsd, "we decided")
    lines = bsd(*words).out.splitlines()
    assert lines[0].startswith("bsd ")
    assert lines[1:] == [
        "SQLite facts:    2",
        "LanceDB vectors: 0",
        "Total: 2 (with overlap)",
        "",
        "By decay class:",
        "  permanent    1",
        "  session      1",
        "",
        "Expired (pending prune): 1",
    ]
    assert set(bsd(*words, "--json").json()) == {
        *("database", "created_by_bsd", "facts", "vectors", "vectors_problem", "by_class"),
        "expired",
    }


def test_where_nothing_may_be_changed_everything_can_be_read(
    bsd: Bsd, tmp_path: Path, facts_db: Path
) -> None:
    kept(bsd, "Ada likes tea", "--entity", "Ada")
    file = tmp_path / "bsd.toml"
    file.write_text("readonly = true\n")
    before = facts_db.read_bytes()
    for reads in (
        *((), ("stats",), ("prune", "--dry-run"), ("checkpoint", "restore")),
        *(("recall", "tea", "--no-refresh"), ("lookup", "ada", "--no-refresh")),
    ):
        assert bsd("--config", str(file), *reads).code == 0, reads
    for writes in (("recall", "tea"), ("lookup", "ada"), ("prune",), ("store", "x")):
        ended = bsd("--config", str(file), *writes)
        assert ended.code == 77, writes
        assert ended.err.startswith("Error: bsd only reads here")
    assert facts_db.read_bytes() == before


def test_vectors_are_told_of(bsd: Bsd, facts_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = kept(bsd, "right now")
    (facts_db.parent / "lancedb" / "memories.lance").mkdir(parents=True)
    answers = {"count": "1", "list": json.dumps([fact, 5, None]) + "\n", "delete": "1"}
    monkeypatch.setattr(Vectors, "_run", lambda _, verb, _told="": answers[verb])
    assert bsd("stats").out.splitlines()[2:4] == ["LanceDB vectors: 1", "Total: 2 (with overlap)"]
    age(facts_db, 2 * DAY)

    def broken(_: Vectors, verb: str, _told: str = "") -> str:
        raise Unavailable(f"no {verb}", hint="mend it")

    with monkeypatch.context() as patch:
        patch.setattr(Vectors, "_run", broken)
        ended = bsd("prune")
        assert ended.err == "1 vectors could not be deleted; the next prune tries again\n"
        assert "Vectors deleted" not in ended.out
        ended = bsd("stats")
        assert "LanceDB vectors: unknown\nTotal: 0 (with overlap)" in ended.out
        assert "no count" in ended.err
    assert bsd("prune").out.endswith("Decayed: 0\nVectors deleted: 1\n")


def test_checkpoints(bsd: Bsd) -> None:
    assert bsd("checkpoint", "restore").out == "No active checkpoint.\n"
    assert bsd("checkpoint", "restore", "--json").json() == {"checkpoint": None}
    said = ("--intent", "rename it", "--state", "half done")
    out = bsd("checkpoint", "save", *said).out
    assert out.startswith("Checkpoint saved: ")
    more = ("--expected-outcome", "green", "--working-files", "a.py, b.py")
    assert bsd("checkpoint", "save", *said, *more, "--json").json()["saved"] is True
    found = bsd("checkpoint", "restore").json()
    assert (found["intent"], found["state"]) == ("rename it", "half done")
    assert (found["expectedOutcome"], found["workingFiles"]) == ("green", ["a.py", "b.py"])


def test_a_database_of_the_plugin_is_used_as_it_is(bsd: Bsd, facts_db: Path) -> None:
    facts_db.parent.mkdir()
    fill(facts_db, "first")
    change(facts_db, "UPDATE facts SET created_at = ?", [int(time.time())])
    before = facts_db.read_bytes()
    assert "a" in bsd("recall", "harbour", "--no-refresh").out
    assert bsd("prune", "--dry-run").code == 0
    assert facts_db.read_bytes() == before
    assert bsd("backfill-decay").out == "Reclassified:\n  permanent: 1\n  stable: 1\n"
    assert bsd("stats", "--json").json()["created_by_bsd"] is False


def test_settings_give_the_place_and_a_class_in_one_line(
    bsd: Bsd, tmp_path: Path, facts_db: Path
) -> None:
    file = tmp_path / "bsd.toml"
    other = tmp_path / "elsewhere" / "f.db"
    file.write_text(
        f'[memory]\ndatabase = "{other}"\n[memory.ttl]\nephemeral = "1h"\n'
        '[memory.words.ephemeral]\ntexts = ["one-time code"]\n'
    )
    fact = bsd("--config", str(file), "store", "A one-time code", "--json").json()
    assert fact["decay_class"] == "ephemeral"
    assert fact["expires_at"] - fact["created_at"] == HOUR
    said = bsd("--config", str(file), "store", "B", "--class", "ephemeral").out
    assert said == 'Stored: "B" [decay: ephemeral]\n'
    assert other.exists()
    assert not facts_db.exists()


def test_settings_say_what_lives_on_in_which_language_and_where_vectors_are(
    bsd: Bsd, tmp_path: Path, facts_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bsd.toml"
    vectors = tmp_path / "vectors"
    file.write_text(f'[memory]\nvectors = "{vectors}"\nrefresh = ["session"]\nlanguages = ["de"]\n')
    told = ("--config", str(file))
    assert bsd(*told, "store", "Die Aufgabe", "--json").json()["decay_class"] == "active"
    bsd(*told, "store", "right now: Aufgabe")
    age(facts_db, HOUR)
    before = dict(rows(facts_db, "SELECT decay_class, expires_at FROM facts"))
    found = bsd(*told, "recall", "Aufgabe", "--json").json()["results"]
    after = {one["decay_class"]: one["expires_at"] for one in found}
    assert after["active"] == before["active"]
    assert after["session"] >= before["session"] + HOUR
    (vectors / "memories.lance").mkdir(parents=True)
    monkeypatch.setattr(Vectors, "_run", lambda *_: "7")
    assert bsd(*told, "stats", "--json").json()["vectors"] == 7
