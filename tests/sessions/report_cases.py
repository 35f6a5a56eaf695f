"""Sessions of the kinds that users of agents report about, made up for the tests.

Each function below writes one case into a directory: sessions of one program, and `bsd.toml`, which
names them. The case of the same name in `../shared/data/reports` is another one of its kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.openclaw_tree import set_idle
from tests.pictures import PDF, PNG, SVG
from tests.session_files import HEADER, Talk, call, jsonl, text
from tests.transcripts.agents.sources.claude_code import CLAUDE_CODE, claude_code_line
from tests.transcripts.agents.sources.codex import CODEX, codex_line, codex_meta, codex_turn
from tests.transcripts.agents.sources.pi import PI, pi_lines
from tests.transcripts.agents.sources.tree import Kind

LONG = "long old text, " * 200
OLD_SECONDS = 3 * 86_400.0
CASES: dict[str, Callable[[Path], None]] = {}


def case(build: Callable[[Path], None]) -> Callable[[Path], None]:
    CASES[build.__name__] = build
    return build


def name_source(top: Path, kind: Kind, path: Path | None = None) -> Path:
    """Write the bsd.toml that names a program's directory; returns that directory."""
    path = path or top / "home" / kind.sessions
    path.mkdir(parents=True, exist_ok=True)
    (top / "root").mkdir(exist_ok=True)
    source = f'[[sources]]\nkind = "{kind.kind}"\nname = "s"\npath = "{path}"\n'
    (top / "bsd.toml").write_text(f'root = "{top / "root"}"\n{source}')
    return path


def write(path: Path, lines: Iterable[dict[str, Any] | bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(
            line
            if isinstance(line, bytes)
            else f"{json.dumps(line, ensure_ascii=False)}\n".encode()
            for line in lines
        )
    )
    set_idle(path)
    return path


def write_openclaw(top: Path, lines: Iterable[dict[str, Any] | bytes], name: str = "s1") -> Path:
    """Write a session of OpenClaw's agent `main`."""
    return write(top / "root" / "agents" / "main" / "sessions" / f"{name}.jsonl", lines)


class Claude:
    """Writes a session of Claude Code, line by line."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self._number = 0

    def add(self, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        line = claude_code_line(self._number, kind, content, **more)
        if kind == "assistant":
            line["message"]["id"] = f"msg_{self._number}"
        self._number += 1
        self.lines.append(line)
        return line

    def calls(self, content: Any, **more: Any) -> None:
        """A call, and its result."""
        name = f"toolu_{self._number}"
        block = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "ls"}}
        self.add("assistant", [block], stop_reason="tool_use")
        self.add("user", [{"type": "tool_result", "tool_use_id": name, "content": content}], **more)

    def turn(self, content: Any = LONG, **more: Any) -> None:
        self.add("user", "do it")
        self.calls(content, **more)
        self.add("assistant", [text("done")], stop_reason="end_turn")

    def turns(self, count: int, content: Any = LONG) -> None:
        for _ in range(count):
            self.turn(content)

    def fails(self, words: str) -> None:
        """An error of the API."""
        line = self.add("assistant", [text(words)], stop_reason="stop_sequence")
        line["message"]["model"] = "<synthetic>"
        line |= {"isApiErrorMessage": True, "error": "invalid_request"}

    def write(self, top: Path, directory: str | None = None) -> Path:
        source = name_source(top, CLAUDE_CODE)
        path = source / (directory or CLAUDE_CODE.directory) / f"{CLAUDE_CODE.session}.jsonl"
        return write(path, self.lines)


def base64_block(kind: str, media_type: str, data: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def talk(turns: int, words: str = LONG) -> Talk:
    """A session of OpenClaw."""
    made = Talk()
    for number in range(turns):
        made.user()
        made.says(call(f"c{number}", "exec", command="ls"))
        made.answers(f"c{number}", words, "exec")
        made.says(text("done"))
    return made


# --- damaged lines ---


@case
def nul(top: Path) -> None:
    made = Claude()
    made.turns(6)
    whole = json.dumps(made.lines[2]).encode()
    made.lines[2:3] = [whole + b"\0" * 3000 + b"\n", b"\0" * 100 + b"\n"]
    made.lines.append(b'{"parentUuid":"half a li' + b"\0" * 70_000)
    made.write(top)


@case
def splice(top: Path) -> None:
    lines = [json.dumps(entry).encode() + b"\n" for entry in talk(7).entries]
    lines[3:5] = [lines[3][:90] + lines[4]]
    lines[6:8] = [lines[6].rstrip() + lines[7]]
    lines.append(lines[-1][:60])
    write_openclaw(top, lines)


@case
def u2028(top: Path) -> None:
    source = name_source(top, PI)
    lines = pi_lines(4)
    lines[4]["message"]["content"] = [text("a\u2028b\u2029c\x85\x0b\x0c " + LONG)]
    write(source / PI.directory / f"{PI.session}.jsonl", lines)


@case
def surrogate(top: Path) -> None:
    made = Claude()
    made.turns(6)
    raw = json.dumps(made.lines[2]).replace("long old", "half \\udfff of it, long old", 1)
    made.lines[2] = raw.encode() + b"\n"
    made.write(top)


# --- content that providers refuse ---


@case
def svg(top: Path) -> None:
    made = Claude()
    made.turn([text("look"), base64_block("image", "image/svg+xml", SVG * 9)])
    made.turn([base64_block("image", "image/jpeg", PNG)])  # declares a type other than its own
    made.turn([base64_block("image", "image/png", PNG[:-5])])  # ends in the middle
    made.turn([base64_block("image", "image/bmp", "not base64 at all; " * 60)])
    made.turn([base64_block("image", "", PNG)])
    made.turns(3, "short")
    made.write(top)


@case
def bricked(top: Path) -> None:
    made = Claude()
    made.turns(2)
    made.add("user", "what does it show?")
    made.calls([base64_block("image", "image/tiff", PNG * 4)])
    for words in ("hello?", "and now?", "forget the picture"):
        made.fails("API Error: 400 Could not process image")
        made.add("user", words)
    made.fails("API Error: 400 Could not process image")
    made.write(top)


@case
def document(top: Path) -> None:
    made = Claude()
    made.add("user", [text("read it"), base64_block("document", "application/pdf", PDF[:9000])])
    made.add("assistant", [text("read")], stop_reason="end_turn")
    plain = {"type": "text", "media_type": "text/plain", "data": LONG}
    parts = {"type": "content", "content": [text(LONG), base64_block("image", "image/png", PNG)]}
    made.turn([{"type": "document", "source": plain, "title": "a"}])
    made.turn([{"type": "document", "source": parts}])
    result = {"type": "search_result", "source": "x", "title": "y", "content": [text(LONG)] * 2}
    made.turn([result, result])
    made.turns(3, "short")
    made.write(top)


# --- turns that have ended without an answer ---


@case
def oneturn(top: Path) -> None:
    made = Claude()
    made.add("user", "port it all")
    for _ in range(40):
        made.calls(LONG)
    made.fails("Prompt is too long")
    made.write(top)


@case
def oneturn_interrupted(top: Path) -> None:
    made = Claude()
    made.add("user", "port it all")
    for _ in range(20):
        made.calls(LONG)
    made.add("user", [text("[Request interrupted by user for tool use]")])
    made.write(top)


@case
def oneturn_silent(top: Path) -> None:
    """Killed in the middle of an answer: `stop_reason` is null, and no line came for days."""
    made = Claude()
    made.add("user", "port it all")
    for _ in range(20):
        made.calls(LONG)
    made.add("assistant", [text("Now I")])
    set_idle(made.write(top), OLD_SECONDS)


@case
def oneturn_openclaw(top: Path) -> None:
    made = Talk()
    made.user()
    for number in range(20):
        made.says(call(f"c{number}", "exec"))
        made.answers(f"c{number}", LONG, "exec")
    made.says(call("last", "exec"))
    message = made.entries[-1]["message"]
    message |= {"stopReason": "aborted", "errorMessage": "Request was aborted"}
    write_openclaw(top, made.entries)


@case
def oneturn_pi(top: Path) -> None:
    lines = pi_lines(1)[:-2]  # without the lines after the answer
    number = len(lines)
    for _ in range(10):
        for entry in lines[3:5]:  # the calls, with a single result
            lines.append(json.loads(json.dumps(entry)))
            lines[-1] |= {"id": f"{number:08x}", "parentId": lines[-2]["id"]}
            number += 1
    end = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "overloaded"}
    last = {"type": "message", "id": "ffffffff", "parentId": lines[-1]["id"], "message": end}
    del lines[6]  # the answer that ended the turn
    lines[6]["parentId"] = lines[5]["id"]
    write(name_source(top, PI) / PI.directory / f"{PI.session}.jsonl", [*lines, last])


@case
def oneturn_codex(top: Path) -> None:
    turn = codex_turn(1)
    begin, calls = turn[:6], turn[6:11]
    lines = [codex_meta(), *begin]
    for number in range(10):
        for line in calls:
            again = json.loads(json.dumps(line).replace('"call_1', f'"call_{number}_'))
            lines.append(again | {"timestamp": codex_line(50 + len(lines), "x")["timestamp"]})
    lines.append(codex_line(5000, "event_msg", type="turn_aborted", reason="interrupted"))
    write(name_source(top, CODEX) / CODEX.directory / f"{CODEX.session}.jsonl", lines)


@case
def aborted(top: Path) -> None:
    made = talk(4)
    for _ in range(5):
        made.user("again")
        made.says()
        made.entries[-1]["message"] |= {"stopReason": "error", "errorMessage": "overloaded"}
    write_openclaw(top, made.entries)


# --- first lines ---


@case
def head(top: Path) -> None:
    note: dict[str, Any] = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
    made = Claude()
    made.lines += [note] * 3000
    made.turns(6)
    made.write(top)
    other = Claude()
    other.lines += [
        {"type": "queue-operation", "operation": "enqueue", "content": "hi"},
        {"type": "something-new", "value": 1},
        {"type": "ai-title", "aiTitle": "The garden"},
    ]
    other.turns(6)
    other.write(top, "-home-me-other")


@case
def headless(top: Path) -> None:
    """The header is torn: the gateway no longer recognises the session."""
    made = talk(6)
    write_openclaw(top, [json.dumps(HEADER).encode()[:30] + b"\n", *made.entries[1:]])


# --- files beside sessions ---


@case
def clawfiles(top: Path) -> None:
    raw = jsonl(*talk(6).entries)
    own = "0f0e0d0c-1111-4222-8333-444455556666"
    names = [
        own,
        f"{own}-topic-7",
        f"{own}.checkpoint.{own}",
        f"{own}.trajectory",
        f"{own}.sync-conflict-20261102-090807-QWERTY7",
        f"{own} (conflicted copy 2026-11-02)",
        f"{own} 3",
    ]
    paths = [write_openclaw(top, [raw], name) for name in names]
    for ending in (".reset.2026-11-02T00-00-00.000Z", ".bak.7", ".tmp"):
        write(paths[0].with_name(paths[0].name + ending), [raw])


@case
def subonly(top: Path) -> None:
    made = Claude()
    made.turns(6)
    for line in made.lines:
        line |= {"isSidechain": True, "agentId": "a7be"}
    source = name_source(top, CLAUDE_CODE)
    below = source / CLAUDE_CODE.directory / CLAUDE_CODE.session / "subagents"
    write(below / "agent-a7be.jsonl", made.lines)


@case
def linktop(top: Path) -> None:
    made = Claude()
    made.turns(6)
    kept = write(
        top / "dotfiles" / "projects" / CLAUDE_CODE.directory / f"{CLAUDE_CODE.session}.jsonl",
        made.lines,
    )
    link = top / "home" / ".claude" / "projects"
    link.parent.mkdir(parents=True)
    link.symlink_to(kept.parents[1])
    name_source(top, CLAUDE_CODE, link)


@case
def details(top: Path) -> None:
    lines = pi_lines(5)
    tree = {"results": [{"messages": [{"content": [{"type": "text", "text": LONG}]}] * 20}]}
    lines[4]["message"]["details"] = tree
    write(name_source(top, PI) / PI.directory / f"{PI.session}.jsonl", lines)


@case
def codex148(top: Path) -> None:
    lines = [codex_meta(), *(line for turn in range(5) for line in codex_turn(turn * 20 + 1))]
    source = name_source(top, CODEX)
    write(source / CODEX.directory / f"{CODEX.session}.jsonl", lines)
    lines[0] = json.loads(json.dumps(lines[0]).replace("0.169.0", "1.2.0"))
    write(source / "2025/09/25" / f"{CODEX.session.replace('09-24', '09-25', 1)}.jsonl", lines)


@case
def plain(top: Path) -> None:
    write_openclaw(top, talk(6).entries)


# --- kinds that the tests of other parts of bsd use ---


@case
def progress(top: Path) -> None:
    made = Claude()
    made.add("user", "look at it")
    block = {"type": "tool_use", "id": "toolu_t", "name": "Task", "input": {"prompt": "look"}}
    made.add("assistant", [block], stop_reason="tool_use")
    inner = [{"type": "user", "message": {"role": "user", "content": [text("part " * 70)]}}]
    for number in range(30):
        tree = {"type": "agent_progress", "normalizedMessages": inner * number, "agentId": "a1"}
        line = made.add("progress", None, data=tree, parentToolUseID="toolu_t")
        del line["message"]
    made.add("user", [{"type": "tool_result", "tool_use_id": "toolu_t", "content": "seen"}])
    made.add("assistant", [text("done")], stop_reason="end_turn")
    made.turns(3, "short")
    made.write(top)


@case
def attachment(top: Path) -> None:
    made = Claude()
    for _ in range(6):
        made.add("user", "do it")
        hook = {"type": "hook_success", "hookName": "Stop", "stdout": LONG, "content": ""}
        line = made.add("attachment", None, attachment=hook)
        del line["message"]
        made.add("assistant", [text("done")], stop_reason="end_turn")
    made.write(top)


@case
def twice(top: Path) -> None:
    made = Claude()
    made.turns(7)
    copies = [
        line | {"forkedFrom": {"sessionId": "0" * 8, "messageUuid": line["uuid"]}}
        for line in made.lines
    ]
    made.lines[:0] = copies
    made.write(top)


@case
def links(top: Path) -> None:
    made = Claude()
    made.turns(6)
    path = made.write(top)
    (top / "elsewhere").mkdir()
    elsewhere = path.parent.rename(top / "elsewhere" / path.parent.name)
    path.parent.symlink_to(elsewhere)


@case
def piflat(top: Path) -> None:
    write(name_source(top, PI) / f"{PI.session}.jsonl", pi_lines(6))


@case
def pinest(top: Path) -> None:
    source = name_source(top, PI)
    lines = pi_lines(6)
    write(source / PI.directory / f"{PI.session}.jsonl", lines)
    write(source / PI.directory / PI.session / "51b4cf4d" / "run-0" / "session.jsonl", lines)
