"""The daemon's status as lines of text. The documents are those of `/api/status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from bsd.cli.output import counted, one_line, size
from bsd.core.durations import spell_seconds
from bsd.daemon.notices import Notice, agent_notices, notices_of
from bsd.planning.timing_words import (
    clock_time,
    cost_text,
    cuts_text,
    reason_words,
    short,
    timing_in,
    wait_in,
    wait_words,
)

Document = Mapping[str, Any]

_MOST_SHOWN = 10
_WIDTH = 11
ROW_INDENT = _WIDTH + 2  # columns before the text of a row
_NO_NEWS = ("unchanged", "left_alone")  # `_trouble` sums up the latter


def status_lines(status: Document, now: float) -> Iterator[str]:
    """Return the lines of `bsd status`; `now` is epoch seconds."""
    yield (
        f"bsd {status['version']} is {status['state']}: process {status['pid']},"
        f" up {spell_seconds(status['uptime_seconds'])}"
    )
    if not status["enabled"]:
        yield _row("", "extraction is switched off (`bsd config set enabled true`)")
    if status["readonly"]:
        yield _row("", "read-only: no session is changed")
    yield _row("root", status["root"])
    for root in status["roots"]:
        why = f": {root['why']}" if root["why"] else ""
        yield _row("guarantee", f"{root['level']} on {root['filesystem']}{why}")
    yield from _work(status, now)
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
    for pause in status.get("pauses", ()):  # missing in a daemon of an older version
        until = pause["until"]
        end = f"ends {spell_when(until, now)}" if until else "until it is ended"
        yield _row("paused", f"{pause['name']}, {end}")
    if exclude := status.get("exclude"):
        yield _row("excluded", ", ".join(exclude))
    yield from _trouble(status)
    yield from _recent(status["sessions"], now)


def _work(status: Document, now: float) -> Iterator[str]:
    watcher, queue, totals = status["watcher"], status["queue"], status["totals"]
    seen = f"{watcher['watched']:,} of {counted(watcher['directories'], 'directory')} by events"
    if watcher["scan_only"]:
        seen += f", {watcher['scan_only']:,} by scans only"
    yield _row("watching", f"{counted(totals['sessions'], 'session')}; {seen}")
    yield _row("queue", queue_text(queue) or "empty")
    for number, line in enumerate(cache_lines(status, now)):
        yield _row("" if number else "cache", line)
    for worker in status["workers"]:
        if worker["session"]:
            yield _row("", f"{worker['name']}: {worker['session']}")


_QUEUE_WORDS = {
    "working": "at work",
    "ready": "ready",
    "debouncing": "waiting for quiet",
    "waiting": "waiting for their time",
    "gathering": "waiting for more to save",
    "cache_warm": "waiting for a cold prompt cache",
}


def queue_text(queue: Document) -> str:
    """Return how many sessions wait, and for what reason; empty if none does."""
    # A running daemon of an older version lacks some of them.
    waiting = [f"{queue[key]:,} {text}" for key, text in _QUEUE_WORDS.items() if queue.get(key)]
    return ", ".join(waiting)


def _this_run(totals: Document) -> str:
    if not totals["values"]:
        return "no extraction since the start of the daemon"
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
    when = spell_when(retention["next_run"], now)
    if not retention["files"]:
        return f"{text}; no file is due at the next run ({when})"
    going = f"{counted(retention['files'], 'file')} ({size(retention['bytes'])})"
    where = "move into the archive" if retention.get("archive", {}).get("on") else "be deleted"
    return f"{text}; {going} will {where} {when}"


def _how_long(retention: Document) -> str:
    """Return how long values can be restored: from the store, and then from the archive."""
    archive = retention.get("archive", {})  # missing in a daemon of an older version
    if not archive.get("on"):
        return f"{retention['keep']}, then deleted"
    keep, most = archive.get("keep"), archive.get("most_bytes")
    text = "for ever" if keep == "never" else f"for {keep}"
    limit = f", up to {size(most)}" if most else ""
    return f"{retention['keep']} in the store, then {text} in the archive{limit}"


def _archive(retention: Document, now: float) -> str | None:
    """Describe the archive's content and its next deletion; None if it is empty."""
    archive = retention.get("archive", {})  # missing in a daemon of an older version
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
    """Describe the copies of whole sessions; None if there are none."""
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
    """Describe the trash; None if it is empty."""
    trash = retention.get("trash")
    there = trash.get("all_sessions", 0) if trash else 0  # missing in an older daemon
    if not trash or not (there or trash["sessions"] or trash["next_expiry"]):
        return None
    text = f"deleted sessions are kept {trash['keep']}"
    if there:
        text = f"{counted(there, 'session')} ({size(trash['all_bytes'])}); {text}"
    if trash["sessions"] and retention["next_run"]:
        going = f"{counted(trash['sessions'], 'session')} ({size(trash['bytes'])})"
        return f"{text}; {going} will be deleted {spell_when(retention['next_run'], now)}"
    if trash["next_expiry"]:
        return f"{text}; the next is deleted {spell_when(trash['next_expiry'], now)}"
    return text


def _trouble(status: Document) -> Iterator[str]:
    for notice in notices_of(status):  # an older daemon sends none; they are computed then
        yield _notice_line(notice)
    for reason, count in status["left_alone"]["reasons"].items():
        yield _row("left alone", f"{counted(count, 'session')}: {one_line(reason, 200)}")


def _notice_line(notice: Notice) -> str:
    return _row(f"! {notice.about}", f"{one_line(notice.text, 300)} (try: {notice.remedy})")


def unserved_lines(agents: Iterable[Document]) -> Iterator[str]:
    """Return a line for each agent in `unserved` of the status."""
    return map(_notice_line, agent_notices(agents))


def _recent(sessions: list[Document], now: float) -> Iterator[str]:
    told = [
        session
        for session in sessions
        if session["status"] not in _NO_NEWS or wait_in(session, now)
    ]
    if told:
        yield ""
    for session in told[:_MOST_SHOWN]:
        wait = wait_in(session, now)
        is_news = session["status"] not in _NO_NEWS
        what = str(session["status"]).replace("_", " ") if is_news else ""
        if session["values"]:
            what += f" {counted(session['values'], 'value')}, {size(session['bytes_saved'])} saved"
        if session["reason"]:
            what += f": {one_line(session['reason'], 120)}"
        if is_news and (why := why_cut(session)):
            what += f", {why}"
        if wait is not None:
            what += f"{'; ' if what else ''}{wait_words(wait, now)}"
        yield f"{spell_when(session['at'], now):>12}  {session['session']}  {what}"
    if len(told) > _MOST_SHOWN:
        yield f"{'':12}  … {len(told) - _MOST_SHOWN:,} more in --json"


def why_cut(session: Document) -> str:
    """Return why values in context left a session, from its last result; empty if none left."""
    timing = timing_in(session)
    return "" if timing is None or timing.waits else f"because {reason_words(timing)}"


def cache_lines(status: Document, now: float) -> Iterator[str]:
    """Return lines about sessions that wait for their prompt cache, and about cuts by reason."""
    if waiting := waiting_text(status, now):
        yield waiting
    waits = status.get("prompt_cache", {})
    if waits.get("tokens_rewritten"):
        cost = cost_text(waits["cost_now"], waits["unpriced"])
        yield f"cuts now would rewrite {short(waits['tokens_rewritten'])} cached tokens ({cost})"
    if cuts := cuts_text(status["totals"].get("cuts", {})):
        rewritten = status["totals"]["tokens_rewritten"]
        yield f"{cuts}{f'; {short(rewritten)} cached tokens rewritten' if rewritten else ''}"


def waiting_text(status: Document, now: float) -> str | None:
    """Return how many sessions wait for their prompt cache and until when; None if none waits."""
    waits = status.get("prompt_cache", {})  # missing in a daemon of an older version
    if not waits.get("sessions"):
        return None
    ready = f"{short(waits['tokens_ready'])} tokens ready"
    text = f"{counted(waits['sessions'], 'session')} waiting, {ready}"
    if waits["next_cold"]:
        cold = datetime.fromisoformat(waits["next_cold"]).timestamp()
        text += f"; next cold at {clock_time(cold, now)}"
    return text


def _row(name: str, text: str) -> str:
    return f"  {name:<{_WIDTH}}{text}"


def spell_when(moment: str, now: float) -> str:
    """Format the distance of an ISO 8601 moment from `now`: `3 min ago`, `in 2 h 5 min`."""
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
    """Yield lines about disk use, each with its name; a continuation line has an empty name.

    Args:
        disk: `disk` of the status document.
        now: epoch seconds.
    """
    yield "saved", _net(disk["net"], disk["saved"], disk["kept"])
    if disk["saved"] or disk["store"]:
        packed = disk["net_when_packed"]
        if packed != disk["net"]:
            yield "", f"once the store is packed: {balance(packed)}"
    if whole := disk["total"] - disk["kept"]:
        text = f"with {size(whole)} of whole sessions (copies, trash, replaced versions)"
        yield "", f"{text}: {balance(disk['net_with_copies'])}"
    if disk["uncounted"]:
        what = counted(disk["uncounted"], "session")
        yield "", f"the values of {what} are not counted yet (the daemon or `bsd search` does it)"
    parts = [f"{name} {size(disk[key])}" for key, name in _PARTS.items() if disk.get(key)]
    in_flight = disk["in_flight"]
    if in_flight["bytes"]:
        parts.append(f"in flight {size(in_flight['bytes'])}")
    yield "disk", f"{size(disk['total'])}{': ' if parts else ''}{', '.join(parts)}"
    if in_flight["files"]:
        yield "", in_flight_line(in_flight, now)


def _net(net: int, left: int, kept: int) -> str:
    if not left:
        return f"no bytes have left the present sessions; bsd keeps {size(kept)}"
    return f"{balance(net)}: {size(left)} left the sessions, bsd keeps {size(kept)}"


def balance(net: int) -> str:
    """Return how many bytes are saved; if bsd takes more than it saved, return a text on that."""
    return size(net) if net >= 0 else f"bsd takes {size(-net)} more than it has saved so far"


def in_flight_line(in_flight: Mapping[str, Any], now: float) -> str:
    """Return how many replaced versions of sessions still exist, and when they are removed."""
    what = f"{counted(in_flight['files'], 'replaced version')} of sessions"
    due_at = in_flight["due_at"]
    left = datetime.fromisoformat(due_at).timestamp() - now if due_at else 0.0
    when = f"in {max(1, round(left))} s" if left > 0 else "now"
    return (
        f"{what} ({size(in_flight['bytes'])}), removable {when} by the daemon or the next command"
    )
