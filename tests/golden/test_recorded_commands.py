"""Answers of each command, its exit code, and its lines in the audit log."""

from __future__ import annotations

from typing import Any

from tests.golden.book import check
from tests.golden.conftest import Ask
from tests.golden.steady import but, unordered
from tests.golden.world import World

A = "main/alpha"
_OF_MANY = {"extract", "restore-all"}
_MESSAGES = {"user", "assistant", "toolResult"}
PROGRAMS = {
    "pi": "2025-12-01T10-00-00-000Z_01997e76-d124-7592-9cac-2ec05abbca08",
    "claude": "8463c716-a2ea-4c14-9efa-87158ebd9f20",
    "codex": "rollout-2025-09-24T18-22-20-01997e76-d124-7592-9cac-2ec05abbca08",
}


class Story:
    """Asks the commands in turn, and keeps their answers."""

    def __init__(self, ask: Ask, world: World) -> None:
        self._ask = ask
        self._steady = world.steady
        self.answers: dict[str, Any] = {}

    def __call__(self, *words: str, less: tuple[str, ...] = ()) -> Any:
        """Run a command with --json; return the document."""
        return self._keep(self._ask(*words, "--json"), words, "--json", less)

    def plainly(self, *words: str, less: tuple[str, ...] = ()) -> None:
        """Run a command for its output for people."""
        self._keep(self._ask(*words), words, "", less)

    def both(self, *words: str) -> Any:
        answer = self(*words)
        self.plainly(*words)
        return answer

    def _keep(
        self, answer: dict[str, Any], words: tuple[str, ...], more: str, less: tuple[str, ...]
    ) -> Any:
        which = " ".join(self._steady.text(word) for word in (*words, more) if word)
        while which in self.answers:
            which += " (again)"
        kept = self._steady(but(answer, *less))
        self.answers[which] = unordered(kept) if words[0] in _OF_MANY else kept
        return answer["out"]


def test_commands(ask: Ask, world: World) -> None:
    story = Story(ask, world)
    look(story)
    extract(story)
    change(story, world)
    throw_away(story)
    leave_out(story)
    care(story)
    remember(story)
    work_in_places(story, world)
    fail(story)
    story.answers["what lies there"] = world.lies()
    check("commands", story.answers)


def look(story: Story) -> None:
    story.both("sessions")
    story("sessions", "--agent", "other", "--limit", "1")
    story.both("sources", "list")
    story("show", A, "--limit", "6")
    story.plainly("show", A, "--limit", "6")
    story.both("summary", A)
    story.both("replay", A, "--keep-recent", "3,10", "--when", "now")
    story.both("context", A)
    story.both("history", A)
    story.both("prices", "deepseek-flash", "--at", "2026-11-20T09:00:00+00:00")
    story.both("trash", "list")


def extract(story: Story) -> None:
    story.both("extract", A, "--dry-run")
    story("config", "set", "age_threshold_hours", "0")
    story.both("extract", A, "--dry-run")
    story.both(
        "extract", "--dry-run", "--keep-recent", "0", "--trigger-types", "thinking,tool_call"
    )
    story("extract", A, "--keep-recent", "1")
    story.plainly("extract", "main/beta", "--keep-recent", "0", "--keep-chars", "20")
    story("extract", "--keep-recent", "0", "--min-value-length", "40")
    story("extract", A)
    story.both("sessions")
    story.both("search", "tide")
    story("sessions", "-q", "tide")
    story.both("prices", "--at", "2026-11-20")


def leave_out(story: Story) -> None:
    story.both("exclude")
    story.both("exclude", "main/be*", "~/private")
    story("sessions")
    story.both("show", "main/beta")
    story("exclude", "--remove", "nothing")
    story.both("exclude", "--remove", "main/be*", "~/private")
    story.both("pause")
    story.both("pause", "main")
    story("sessions", "--agent", "main", "--limit", "1")
    story.both("extract", "main/beta")
    story("pause", "nobody")
    story.both("pause", "main", "--end")


def change(story: Story, world: World) -> None:
    known = story("context", A)
    out = known["extracted_ids"]
    entry = next(one for one in known["entries"] if one["type"] == "user" and not one["extracted"])
    story.both("show", A, "--entry", out[0])
    story.both("show", A, "--entry", out[0], "--full")
    story.both("restore", A, out[0])
    story("restore", A, out[0])
    story.plainly("restore", A, out[1])
    story("restore_remote", "--session", A, "--entry", out[2])
    story("restore_remote", "--session", A, "--entry", out[2], "--inline", "now")
    story("purge_control", "get_context", "--session", A)
    story("purge_control", "restore", out[3], "--session", A)
    story("purge_control", "set_extractable", out[3], "false", "--session", A)
    for value in ("false", "true", "5", "unset"):
        story("set-extractable", A, entry["id"], value)
    story.plainly("set-extractable", A, entry["id"], "true")
    beta = story("context", "main/beta")
    user, *others = (
        one for one in beta["entries"] if one["type"] in _MESSAGES and not one["extracted"]
    )
    story("edit", "main/beta", user["id"], "--set", "message.content[0].text=The tide is out.")
    story.plainly("show", "main/beta", "--entry", user["id"])
    ways = ("--start", "The", "--end", "out.", "--replacement", "Low water.", "--include-user")
    story.both("replace", "main/beta", *ways, "--dry-run")
    story("replace", "main/beta", *ways)
    story("discard", "main/beta", others[0]["hash"], "--dry-run")
    story("discard", "main/beta", others[0]["hash"], "--include-user")
    story("distill", "main/beta", others[1]["hash"], "In short.", "--dry-run", "--include-user")
    story("distill", "main/beta", others[1]["hash"], "In short.", "--include-user")
    story.both("history", "main/beta")
    story.both("undo", "main/beta")
    story("undo", "main/beta", "1")
    story("history", "main/beta")
    for agent, session in PROGRAMS.items():
        name = f"{agent}/{session}"
        story("show", name, "--limit", "3")
        for one in story("context", name).get("extracted_ids", [])[:1]:
            story("restore", name, one)
        story("undo", name, "--yes")
        story("summary", name)
    story("restore-all", A, "--to", str(world.top / "whole.jsonl"))
    story("restore-all", A, "--keep-enabled", "--yes")
    story("restore-all", "--yes")


def throw_away(story: Story) -> None:
    story("extract", "other/gamma", "--keep-recent", "0")
    gone = story("delete", "other/gamma", "--yes")
    story.both("trash", "list")
    story("trash", "restore", gone["trash_id"])
    story.plainly("delete", "other/gamma", "--yes")
    story.plainly("trash", "empty", "--yes")
    gone = story("delete", "other/old", "--yes")
    story("trash", "delete", gone["trash_id"], "--yes")
    story("delete", "main/spare", "--permanent", "--yes")
    story("trash", "empty", "--yes")


def care(story: Story) -> None:
    story.both("verify")
    story("verify", "--repair")
    story.both("retention", "--dry-run")
    story("retention")
    story("doctor", less=("exit", "ok", "checks", "err"))
    story("service", "install", "--dry-run", less=("file", "unit", "content", "text"))
    story("sources", "claim", "pi", "--yes")
    story("sources", "claim", "nobody", "--yes")


def remember(story: Story) -> None:
    story("memory", "stats")
    first = story("memory", "store", "Ada prefers tea", "--entity", "Ada", "--key", "drink")
    story("memory", "store", "Ada prefers tea")
    story.plainly("memory", "store", "The harbour closes at nine", "--class", "session")
    story(
        *("memory", "store", "Ada drinks coffee", "--entity", "Ada", "--key", "drink"),
        *("--value", "coffee", "--tags", "a,b", "--confidence", "0.5", "--importance", "0.9"),
        *("--category", "preference", "--supersedes", first["id"]),
    )
    story.both("memory", "recall", "tea coffee")
    story("memory", "recall", "tea", "--include-superseded", "--include-expired", "--refresh")
    story.both("memory", "lookup", "Ada")
    story("memory", "lookup", "Ada", "drink", "--tag", "a")
    story("memory", "confirm", first["id"])
    story("memory", "checkpoint", "save", "--intent", "to sail", "--state", "in port")
    story("memory", "checkpoint", "restore")
    story.both("memory", "prune", "--dry-run")
    story("memory", "prune", "--hard")
    story("memory", "backfill-decay")
    story("memory", "forget", first["id"])
    story("memory", "forget", first["id"])
    story.both("memory", "stats")


def work_in_places(story: Story, world: World) -> None:
    volatile = ("bytes", "reclaimed_bytes", "age_hours", "seconds", "cpu_seconds", "memory_bytes")
    story("workspace", "create", "first")
    story("workspace", "create", "first")
    story("workspace", "touch", "first")
    story("workspace", "list", less=volatile)
    story("workspace", "run", "first", "--isolate", "no", "--", "sh", "-c", "echo hi; exit 3")
    (world.workspaces / "bare").mkdir()
    story("workspace", "list", "--sizes", less=volatile)
    story("workspace", "repair", "--dry-run", less=volatile)
    story("workspace", "repair", less=volatile)
    story("workspace", "prune", "--max-count", "1", "--dry-run", less=volatile)
    story("workspace", "prune", "--older-than", "never", "--yes", less=volatile)


def fail(story: Story) -> None:
    story("status", less=("disk",))
    for words in (
        ("show", "main/nobody"),
        ("show", "nonsense"),
        ("show", A, "--entry", "nobody"),
        ("context", "../x/y"),
        ("restore", A, "nobody"),
        ("restore", "main/foreign", "x"),
        ("extract", "main/foreign"),
        ("extract", A, "--keep-recent", "many"),
        ("extract", A, "--keep-recent", "-1"),
        ("extract", A, "--trigger-types", "nothing"),
        ("edit", A, "nobody", "--set", "a=1"),
        ("discard", A, "ffffff"),
        ("discard", A, "no hash"),
        ("replace", A, "--start", "never said", "--end", "nor this", "--replacement", "x"),
        ("undo", A, "99"),
        ("delete", "main/nobody", "--yes"),
        ("trash", "restore", "nobody"),
        ("trash", "delete", "nobody", "--yes"),
        ("memory", "confirm", "nobody"),
        ("memory", "store", ""),
        ("workspace", "touch", "nobody"),
        ("workspace", "create", "../x"),
        ("config", "get", "nothing"),
        ("config", "set", "keep_recent", "many"),
        ("purge_control", "nothing"),
        ("jobs",),
        ("jobs", "run", "auto"),
        ("nothing",),
        ("show",),
        ("show", A, "--nothing"),
    ):
        story.both(*words)
