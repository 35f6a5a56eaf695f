"""The running daemon, asked over its Unix socket, and its status in lines for people.

Loads next to nothing: `bsd status` is quick.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from bsd.cli.commands import PIPE_CLOSED
from bsd.cli.output import counted, one_line, print_json, say, size
from bsd.core.durations import spell_seconds
from bsd.core.errors import BsdError, FieldError, Forbidden, Unavailable, os_problem
from bsd.core.locations import (
    find_root,
    find_socket,
    may_be_believed,
    peer_uid,
    read_settings_file,
    settings_file,
)
from bsd.core.verb_names import split_command

_ANSWER_SECONDS = 10.0
_BLOCK = 1 << 16


class NotRunning(BsdError):
    """Nobody listens on the socket."""

    exit_code: ClassVar[int] = 3
    status: ClassVar[int] = 503


class DaemonRefused(BsdError):
    """The daemon answered with an error."""


class Client:
    """One daemon, the one of a root; every question is a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str) -> Any:
        """Ask for a document; raises NotRunning, Unavailable, Forbidden, Refused."""
        return self._ask("GET", path, _ANSWER_SECONDS)

    def post(self, path: str) -> Any:
        """Let something be done, however long it takes; raises as `get` does."""
        return self._ask("POST", path, None)

    def _ask(self, method: str, path: str, seconds: float | None) -> Any:
        try:
            status, body = self._exchange(method, path, seconds)
            document = json.loads(body)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NotRunning("the daemon is not running", hint="`bsd run` starts it") from None
        except (TimeoutError, BlockingIOError):
            raise Unavailable(
                f"the daemon does not answer on {self.path}", hint="`bsd logs` shows its log"
            ) from None
        except (ConnectionError, ValueError) as error:
            raise Unavailable(
                f"the daemon broke off its answer: {error}",
                hint="it may be stopping; run it again",
            ) from error
        except OSError as error:
            raise os_problem(error, f"asking the daemon on {self.path}") from error
        # An unhealthy daemon tells how it is with 503, too.
        if status >= 400 and "error" in document:
            raise _refused(document)
        return document

    def _exchange(self, method: str, path: str, seconds: float | None) -> tuple[int, bytes]:
        """One request and its answer; raises OSError, ValueError.

        Not by http.client: loading it takes longer than everything else here.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # Where many wait to be let in, a socket with a time-out of Python's is refused at once.
            if seconds is not None:
                budget = struct.pack("ll", int(seconds), 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, budget)
            connection.connect(os.fspath(self.path))
            connection.settimeout(seconds)
            self._check(peer_uid(connection))
            connection.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: bsd\r\nConnection: close\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: connection.recv(_BLOCK), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        length = [
            int(f.partition(":")[2]) for f in fields if f.lower().startswith("content-length:")
        ]
        if length != [len(body)]:
            raise ValueError(f"{len(body)} bytes came")
        return int(first.split(" ")[1]), body

    def _check(self, uid: int) -> None:
        # In a directory for all, somebody else may have been quicker.
        if not may_be_believed(uid):
            raise Forbidden(
                f"the socket {self.path} belongs to user {uid}, not to you",
                hint="remove it, or set BRAINSURGEON_SOCKET",
            )


def find_client(
    root: str | None, config: str | None, environ: Mapping[str, str] = os.environ
) -> Client:
    """Find the daemon that `--root` and `--config` mean; raises ConfigError for broken settings."""
    named = Path(config) if config is not None else None
    in_file = read_settings_file(named or settings_file(environ), required=named is not None)
    if not all(_is_whole(in_file.get(key, "/")) for key in ("root", "socket")):
        from bsd.core.settings import load_settings

        load_settings(named)  # says what is wrong with it
    found = find_root(root, environ, in_file.get("root"))
    configured = environ.get("BRAINSURGEON_SOCKET") or in_file.get("socket")
    return Client(find_socket(found, environ, configured if isinstance(configured, str) else None))


def _is_whole(path: object) -> bool:
    return isinstance(path, str) and (path == "~" or path.startswith(("/", "~/")))


def _refused(document: Mapping[str, Any]) -> DaemonRefused:
    errors = tuple(
        FieldError(str(one["field"]), str(one["message"])) for one in document.get("errors", ())
    )
    return DaemonRefused(str(document["error"]), hint=document.get("hint"), errors=errors)


# --- what it answered, in lines ---


Document = Mapping[str, Any]

_MOST_SHOWN = 10
_WIDTH = 11
_NO_NEWS = ("unchanged", "left_alone")  # the latter are summed up above


def status_lines(status: Document, now: float) -> Iterator[str]:
    """What a person wants to know first; `now` is epoch seconds."""
    yield (
        f"bsd {status['version']} is {status['state']}: process {status['pid']},"
        f" up {spell_seconds(status['uptime_seconds'])}"
    )
    if not status["enabled"]:
        yield _row("", "extraction is switched off (`bsd config set enabled true`)")
    if status["readonly"]:
        yield _row("", "read-only: nothing is changed")
    yield _row("root", status["root"])
    for root in status["roots"]:
        why = f": {root['why']}" if root["why"] else ""
        yield _row("guarantee", f"{root['level']} on {root['filesystem']}{why}")
    yield from _work(status)
    for name, line in disk_lines(status["disk"], now):
        yield _row(name, line)
    yield _row("this run", _this_run(status["totals"]))
    yield _row("retention", _retention(status["retention"], now))
    if archive := _archive(status["retention"], now):
        yield _row("archive", archive)
    if copies := _copies(status["retention"]):
        yield _row("copies", copies)
    if trash := _trash(status["retention"], now):
        yield _row("trash", trash)
    yield from _trouble(status)
    yield from _recent(status["sessions"], now)


def _work(status: Document) -> Iterator[str]:
    watcher, queue, totals = status["watcher"], status["queue"], status["totals"]
    seen = f"{watcher['watched']:,} of {counted(watcher['directories'], 'directory')} by events"
    if watcher["scan_only"]:
        seen += f", {watcher['scan_only']:,} by scans only"
    yield _row("watching", f"{counted(totals['sessions'], 'session')}; {seen}")
    words = {
        "working": "at work",
        "ready": "ready",
        "debouncing": "until quiet",
        "waiting": "for their time",
        "gathering": "until there is more to save",
    }
    waiting = [f"{queue[key]:,} {text}" for key, text in words.items() if queue[key]]
    yield _row("queue", ", ".join(waiting) or "empty")
    for worker in status["workers"]:
        if worker["session"]:
            yield _row("", f"{worker['name']}: {worker['session']}")


def _this_run(totals: Document) -> str:
    if not totals["values"]:
        return "nothing was extracted since the start of the daemon"
    text = (
        f"{size(totals['bytes_saved'])}, about {totals['tokens_saved']:,} tokens of text:"
        f" {counted(totals['values'], 'value')} of {counted(totals['entries'], 'entry')}"
    )
    if totals["bytes_saved"] > 0:
        cost = totals["bytes_written"] / totals["bytes_saved"]
        text += f"; {cost:.1f} bytes written for each"
    return text


def _retention(retention: Document, now: float) -> str:
    if retention["keep"] == "never":
        return "extracted content is kept for ever"
    text = f"extracted content is kept {_how_long(retention)}"
    if retention["next_run"] is None:
        return text
    going = f"{counted(retention['files'], 'file')} ({size(retention['bytes'])})"
    where = "move into the archive" if retention.get("archive", {}).get("on") else "be deleted"
    what = f"{going} will {where}" if retention["files"] else "nothing will go"
    return f"{text}; {what} {spell_when(retention['next_run'], now)}"


def _how_long(retention: Document) -> str:
    """Say for how long content can be restored: in the store, and then in the archive."""
    archive = retention.get("archive", {})  # an older daemon that still runs has none
    if not archive.get("on"):
        return f"{retention['keep']}, then deleted"
    keep, most = archive.get("keep"), archive.get("most_bytes")
    text = "for ever" if keep == "never" else f"for {keep}"
    limit = f", up to {size(most)}" if most else ""
    return f"{retention['keep']} in the store, then {text} in the archive{limit}"


def _archive(retention: Document, now: float) -> str | None:
    """What the archive holds, saves, and will lose; nothing, if it is empty."""
    archive = retention.get("archive", {})  # a daemon that was not restarted has none
    if not archive.get("packs"):
        return None
    since = spell_when(archive["oldest"], now)
    text = f"{counted(archive['lines'], 'value')} ({size(archive['content'])}) in "
    text += f"{size(archive['kept'])}, the oldest came {since}"
    if archive["files"] and retention["next_run"]:
        what = "pack or copy" if archive["files"] == 1 else "packs and copies"
        going = f"{archive['files']:,} {what} ({size(archive['bytes'])})"
        return f"{text}; {going} will be deleted {spell_when(retention['next_run'], now)}"
    if archive["next_expiry"]:
        return f"{text}; the next is deleted {spell_when(archive['next_expiry'], now)}"
    return text


def _copies(retention: Document) -> str | None:
    """What copies of sessions take, and how many of these are gone; nothing, if there are none."""
    copies = retention.get("copies")
    if not copies or not copies["sessions"]:
        return None
    text = f"of {counted(copies['sessions'], 'session')} ({size(copies['content'])}) in "
    text += size(copies["kept"])
    if not copies["gone"]:
        return text
    kept = {"never": "for ever", "off": "until you forget them"}.get(copies["keep"], copies["keep"])
    return f"{text}; {copies['gone']:,} of them gone, kept {kept} (`bsd archive list`)"


def _trash(retention: Document, now: float) -> str | None:
    """What is in the trash; nothing, if that is nothing."""
    trash = retention.get("trash")
    there = trash.get("all_sessions", 0) if trash else 0  # a daemon that was not restarted has none
    if not trash or not (there or trash["sessions"] or trash["next_expiry"]):
        return None
    text = f"deleted sessions are kept {trash['keep']}"
    if there:
        text = f"{counted(there, 'session')} ({size(trash['all_bytes'])}); {text}"
    if trash["sessions"] and retention["next_run"]:
        going = f"{counted(trash['sessions'], 'session')} ({size(trash['bytes'])})"
        return f"{text}; {going} will go {spell_when(retention['next_run'], now)}"
    if trash["next_expiry"]:
        return f"{text}; the next goes {spell_when(trash['next_expiry'], now)}"
    return text


def _of_archive(archive: Document) -> Iterator[str]:
    if problem := archive.get("problem"):
        yield _row("! archive", problem)
    if archive.get("nearly_full"):
        taken = f"{size(archive['used_bytes'])} of {size(archive['most_bytes'])}"
        what_goes = "copies of sessions in their place go, then what is oldest, for good"
        text = f"packs and copies take {taken} (archive_max_bytes): beyond that {what_goes}"
        yield _row("! archive", text)


def _trouble(status: Document) -> Iterator[str]:
    for problem in status["watcher"]["problems"]:
        yield _row("! watching", f"{problem['text']} (try: {problem['remedy']})")
    for source in status["sources"]:
        if source["left_alone"]:
            way = f"try: `bsd sources claim {source['name']}`"
            yield _row("! source", f"{source['left_alone']}: only looked at here ({way})")
        if problem := source["problem"]:
            yield _row("! source", f"{problem['text']} (try: {problem['remedy']})")
    yield from _of_archive(status["retention"].get("archive", {}))
    if status["clock"]:
        yield _row("! clock", f"{status['clock']} (`bsd retention --trust-clock` if it is right)")
    if status["config"]["problem"]:
        yield _row("! config", f"{status['config']['problem']} (the last good one holds)")
    for parked in status["queue"]["parked"]:
        yield _row("! parked", f"{parked['session']}: {one_line(parked['error'], 200)}")
    if status["orphans"]["count"]:
        orphans = counted(status["orphans"]["count"], "file")
        yield _row("! orphans", f"{orphans} of late lines without a place (`bsd verify`)")
    for reason, count in status["left_alone"]["reasons"].items():
        yield _row("left alone", f"{counted(count, 'session')}: {one_line(reason, 200)}")


def _recent(sessions: list[Document], now: float) -> Iterator[str]:
    told = [session for session in sessions if session["status"] not in _NO_NEWS]
    if told:
        yield ""
    for session in told[:_MOST_SHOWN]:
        what = str(session["status"]).replace("_", " ")
        if session["values"]:
            what += f" {counted(session['values'], 'value')}, {size(session['bytes_saved'])} saved"
        if session["reason"]:
            what += f": {one_line(session['reason'], 120)}"
        yield f"{spell_when(session['at'], now):>12}  {session['session']}  {what}"
    if len(told) > _MOST_SHOWN:
        yield f"{'':12}  … {len(told) - _MOST_SHOWN:,} more in --json"


def _row(name: str, text: str) -> str:
    return f"  {name:<{_WIDTH}}{text}"


def spell_when(moment: str, now: float) -> str:
    """Write how far an ISO 8601 moment is from `now`: `3 min ago`, `in 2 h 5 min`."""
    seconds = datetime.fromisoformat(moment).timestamp() - now
    if abs(seconds) < 1:
        return "now"
    return f"in {spell_seconds(seconds)}" if seconds > 0 else f"{spell_seconds(-seconds)} ago"


_PARTS = {
    "store": "store",
    "archive": "archive",
    "copies": "copies",
    "index": "search index",
    "history": "history",
    "trash": "trash",
    "orphans": "orphans",
    "databases": "databases",
    "others": "settings and audit",
    "log": "log",
}


def disk_lines(disk: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """What left sessions, what bsd keeps, and what of that goes by itself soon; epoch seconds.

    Each line behind its name, which is empty where a line goes on.
    """
    yield "saved", _net(disk["net"], disk["saved"], disk["kept"])
    if disk["saved"] or disk["store"]:
        packed = disk["net_when_packed"]
        if packed != disk["net"]:
            yield "", f"once the store is packed: {size(packed)}"
    if whole := disk["total"] - disk["kept"]:
        text = f"with {size(whole)} of whole sessions (copies, trash, replaced versions)"
        yield "", f"{text}: {size(disk['net_with_copies'])}"
    if disk["uncounted"]:
        what = counted(disk["uncounted"], "session")
        yield "", f"what left {what} is not counted yet (the daemon or `bsd search` does it)"
    parts = [f"{name} {size(disk[key])}" for key, name in _PARTS.items() if disk.get(key)]
    in_flight = disk["in_flight"]
    if in_flight["bytes"]:
        parts.append(f"in flight {size(in_flight['bytes'])}")
    yield "disk", f"{size(disk['total'])}{': ' if parts else ''}{', '.join(parts)}"
    if in_flight["files"]:
        yield "", in_flight_line(in_flight, now)


def _net(net: int, left: int, kept: int) -> str:
    if not left:
        return f"nothing has left the sessions that are there; bsd keeps {size(kept)}"
    return f"{size(net)}: {size(left)} left the sessions, bsd keeps {size(kept)}"


def in_flight_line(in_flight: Mapping[str, Any], now: float) -> str:
    """Which replaced versions of sessions are still there, and when they go."""
    what = f"{counted(in_flight['files'], 'replaced version')} of sessions"
    due_at = in_flight["due_at"]
    left = datetime.fromisoformat(due_at).timestamp() - now if due_at else 0.0
    when = f"in {max(1, round(left))} s" if left > 0 else "now"
    return f"{what} ({size(in_flight['bytes'])}) may go {when}: by the daemon, or the next command"


def quick_status(argv: list[str]) -> int | None:
    """Answer `[--root DIR] [--config FILE] [--json] status [--json]`; returns the exit code.

    None: the call wants something else, or it went wrong; then nothing was printed.
    """
    before, name, after = split_command(argv)
    if name != "status" or any(option != "--json" for option in after):
        return None
    named: dict[str, str | None] = {"--root": None, "--config": None}
    given = [option for option in before if option != "--json"]
    for option, value in zip(given[::2], given[1::2], strict=False):
        if option not in named or value.startswith("-"):
            return None
        named[option] = value
    if len(given) % 2:
        return None
    try:
        document = find_client(named["--root"], named["--config"]).get("/api/status")
    except BsdError:  # the full command line does the same once more, and tells it with all care
        return None
    if hasattr(sys.stdout, "reconfigure"):  # a name may hold what the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print_status(document, as_json="--json" in argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python's flush at exit fails as well
        return PIPE_CLOSED
    return 0


def print_status(document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the daemon's status for people or for programs."""
    if as_json:
        print_json(document)
        return
    for line in status_lines(document, time.time()):
        say(line)
