"""`bsd demo`: out and back again on made-up sessions, every byte compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bsd.cli.call import Call, command
from bsd.cli.output import print_json, say, say_check
from bsd.cli.text import counted, one_line, share, size

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName
    from bsd.surgeon import Surgeon

_SESSIONS = {"main/harbour": 4 << 20, "main/tides": 1 << 20, "research/berths": 2 << 20}
_SHOWN = 160  # characters of a line
_AT_REST_SECONDS = 3600.0
_RESTORED = re.compile(rb',"_restored":"[^"]*"')
_APPENDED = b'{"type":"custom","customType":"demo","id":"d3m0d3m0","parentId":null,"data":{}}\n'


@command(
    "demo",
    """
    Works in a temporary directory and touches nothing of yours. Exit code 1 if a single byte
    came back different.

    \b
    Example:
      bsd demo
    """,
)
@click.option("--keep", is_flag=True, help="Leave the temporary directory for a closer look.")
@click.pass_obj
def demo(call: Call, /, keep: bool) -> int:
    root = Path(tempfile.mkdtemp(prefix="bsd-demo-", dir=_place()))
    call.root = str(root)
    try:
        shown = _Demo(call, root)
        shown.run()
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    if call.json:
        print_json({"exact": shown.exact, "checks": shown.checks, "root": str(root)})
    else:
        say(f"\nLeft for you: {root}" if keep else "")
        verdict = "Every byte came back." if shown.exact else "NOT everything came back exactly."
        say(verdict, style="1;32" if shown.exact else "1;31")
    return 0 if shown.exact else 1


def _place() -> str | None:
    """Where commits are strong, if there is such a place: elsewhere bsd has to wait for long."""
    from bsd.transcript.mount import strength

    memory = "/dev/shm"  # noqa: S108 -- mkdtemp makes a name in it that nobody can guess
    for place in (tempfile.gettempdir(), memory, os.environ.get("XDG_RUNTIME_DIR", "")):
        if os.access(place, os.W_OK | os.X_OK) and strength(Path(place)).level == "strong":
            return place
    return None


@dataclass
class _Demo:
    call: Call
    root: Path
    checks: list[dict[str, Any]] = field(default_factory=list)
    before: dict[SessionName, bytes] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return all(check["ok"] for check in self.checks)

    def run(self) -> None:
        self._make()
        surgeon = self.call.surgeon()
        self._dry_run(surgeon)
        self._extract(surgeon)
        name, index, entry = self._a_placeholder()
        self._restore_one(surgeon, name, index, entry)
        self._append(name)
        self._restore_all(surgeon, name)
        self._verify()

    def _make(self) -> None:
        from bsd.foundation.layout import SessionName
        from bsd.sample import write_session

        self._title("Three sessions, as agents leave them")
        for number, (text, length) in enumerate(_SESSIONS.items()):
            name = SessionName.parse(text)
            path = self._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_session(path, size=length, seed=number)
            then = time.time() - _AT_REST_SECONDS
            os.utime(path, (then, then))
            self.before[name] = path.read_bytes()
            self._tell(f"{text:<18}{size(len(self.before[name])):>10}")

    def _dry_run(self, surgeon: Surgeon) -> None:
        self._title("bsd extract --dry-run: what would leave")
        for name in self.before:
            result = surgeon.extract(name, dry_run=True)
            saved = result.bytes_before - result.bytes_after
            self._tell(f"{name!s:<18}{result.values:>5} values {size(saved):>10}")
        self._check("the dry run changed nothing", self._all_as_before())

    def _extract(self, surgeon: Surgeon) -> None:
        self._title("bsd extract: out they go, each into a file of the store first")
        for name, before in self.before.items():
            surgeon.extract(name)
            now = self._path(name).stat().st_size
            left = share(now, len(before))
            self._tell(f"{name!s:<18}{size(len(before)):>10} → {size(now):>9}  ({left})")
        smaller = all(self._path(n).stat().st_size < len(b) for n, b in self.before.items())
        self._check("every session is smaller", smaller)

    def _a_placeholder(self) -> tuple[SessionName, int, str]:
        """The first line that something was taken out of."""
        name = next(iter(self.before))
        for index, line in enumerate(self._lines(name)):
            if b'"_extracted"' in line and b"[[extracted-" in line:
                entry = json.loads(line)["id"]
                at = line.index(b"[[extracted-")
                text = line[max(0, at - 60) : at + 100].decode(errors="replace")
                self._title(f"A placeholder in its place ({name}, line {index})")
                self._tell(f"…{one_line(text, _SHOWN)}…")
                return name, index, entry
        raise LookupError("no placeholder in the demo's session")

    def _restore_one(self, surgeon: Surgeon, name: SessionName, index: int, entry: str) -> None:
        self._title(f"bsd restore {name} {entry}")
        self._tell("(bsd leaves a session alone until it has been quiet for a moment)")
        answer = surgeon.restore(name, entry)
        keys = answer["keys_restored"]
        amount = size(sum(answer["sizes_bytes"].values()))
        self._tell(f"{counted(len(keys), 'value')} back inline: {', '.join(keys)} ({amount})")
        line = _RESTORED.sub(b"", self._lines(name)[index])
        exact = line == self.before[name].split(b"\n")[index]
        self._check("the line is its old self, to the byte (and says when it came back)", exact)

    def _append(self, name: SessionName) -> None:
        self._title("Meanwhile the agent appends a line")
        with self._path(name).open("ab") as file:
            file.write(_APPENDED)
        self._tell(one_line(_APPENDED.decode(), _SHOWN))

    def _restore_all(self, surgeon: Surgeon, appended_to: SessionName) -> None:
        self._title("bsd restore-all: everything back")
        for name, before in self.before.items():
            result = surgeon.restore_all(name)
            self._tell(f"{name!s:<18}{result.values:>5} values {size(result.bytes_after):>10}")
            expected = before + (_APPENDED if name == appended_to else b"")
            now = _RESTORED.sub(b"", self._path(name).read_bytes())
            self._check(f"{name}: {len(expected):,} bytes as before", now == expected)

    def _verify(self) -> None:
        from bsd.lifecycle.verify import verify

        self._title("bsd verify")
        found = verify(self.call.layout)
        for finding in found.findings:
            self._tell(f"{finding.kind}: {finding.where}: {finding.message}")
        text = f"{counted(found.files, 'stored file')} checked, nothing in flight, nothing missing"
        self._check(text, found.clean)

    def _path(self, name: SessionName) -> Path:
        return self.root / "agents" / name.agent / "sessions" / f"{name.session}.jsonl"

    def _lines(self, name: SessionName) -> list[bytes]:
        return self._path(name).read_bytes().split(b"\n")

    def _all_as_before(self) -> bool:
        return all(self._path(name).read_bytes() == data for name, data in self.before.items())

    def _title(self, text: str) -> None:
        if not self.call.json:
            say()
            say(text, style="1")
            sys.stdout.flush()

    def _tell(self, text: str) -> None:
        if not self.call.json:
            say(f"  {text}")
            sys.stdout.flush()

    def _check(self, text: str, ok: bool) -> None:
        self.checks.append({"check": text, "ok": ok})
        if not self.call.json:
            say_check("ok" if ok else "fail", text)
