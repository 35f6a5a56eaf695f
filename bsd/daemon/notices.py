"""Notices: the parts of a status that need a person, in the same words in `bsd status` and page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bsd.core.durations import spell_seconds
from bsd.core.errors import UPDATE_BSD
from bsd.core.formatting import format_size
from bsd.setup.unserved import told_text

_MOST = 5  # notices of one kind; one more notice has the number of the others
# A disk with less free space than this share, and less than this number of bytes, is nearly full.
_NEARLY_FULL = 0.05
_LEAST_FREE = 5 << 30

_LONG_BEHIND = 3600.0  # seconds for which uploads may wait
_MANY_FAILURES = 5  # of a sender, one after the other


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a problem that a person has to solve.

    Attributes:
        id: stays the same as long as the notice is about the same problem.
        about: one word for its subject.
        remedy: a command or a sentence, shown after "Try:".
    """

    id: str
    about: str
    text: str
    remedy: str

    def as_json(self, *, dismissed: bool = False) -> dict[str, Any]:
        """Return the notice as in the status document."""
        return {
            "id": self.id,
            "about": self.about,
            "text": self.text,
            "try": self.remedy,
            "dismissed": dismissed,
        }


def notices_of(status: Mapping[str, Any]) -> list[Notice]:
    """Return the notices of a status document; the document of an older daemon may lack members."""
    return [
        *_config(status),
        *_disk(status.get("room") or {}),
        *_copies(status.get("not_copied", [])),
        *_watching(status["watcher"]["problems"]),
        *_sources(status["sources"]),
        *_forms(status.get("unknown_forms", []), "unknown_form"),
        *_forms(status.get("unrecognised", []), "unrecognised"),
        *agent_notices(status.get("unserved", [])),
        *_archive(status["retention"].get("archive", {})),
        *_clock(status["clock"]),
        *_parked(status["queue"]["parked"]),
        *_orphans(status["orphans"]["count"]),
        *_fleet(status.get("fleet") or {}),
    ]


def _config(status: Mapping[str, Any]) -> Iterator[Notice]:
    config = status["config"]
    if config["problem"]:
        text = f"the settings file is broken; the last valid settings apply: {config['problem']}"
        yield Notice("config", "config", text, f"correct {config['path']}")


def _disk(room: Mapping[str, Any]) -> Iterator[Notice]:
    free, size = room.get("free"), room.get("size")
    if free is None or not size or free >= min(_LEAST_FREE, size * _NEARLY_FULL):
        return
    text = f"the disk of bsd's root is nearly full: {format_size(free)} of {format_size(size)} free"
    yield Notice("disk", "disk", text, "free some space; `bsd status` shows the disk use of bsd")


def _copies(not_copied: list[Mapping[str, Any]]) -> Iterator[Notice]:
    for each in not_copied[:_MOST]:
        session = each["session"]
        text = f"{session} will be deleted soon by its program, and bsd cannot copy it"
        yield Notice(
            f"copy:{session}", "copies", f"{text}: {each['why']}", f"`bsd archive keep {session}`"
        )
    if (more := len(not_copied) - _MOST) > 0:
        text = f"{more:,} more sessions will be deleted soon, and bsd cannot copy them"
        yield Notice("copies", "copies", text, "`bsd archive keep`")


def _watching(problems: list[Mapping[str, Any]]) -> Iterator[Notice]:
    kinds: dict[str, int] = {}
    for problem in problems:
        kind = problem["kind"]
        number = kinds[kind] = kinds.get(kind, 0) + 1
        name = f"watching:{kind}" if number == 1 else f"watching:{kind}:{number}"
        yield Notice(name, "watching", problem["text"], problem["remedy"])


def _sources(sources: list[Mapping[str, Any]]) -> Iterator[Notice]:
    for source in sources:
        name = f"source:{source['name']}"
        if source["left_alone"]:
            text = f"{source['left_alone']}: only looked at here"
            yield Notice(name, "source", text, f"`bsd sources claim {source['name']}`")
        if problem := source["problem"]:
            yield Notice(f"{name}:reach", "source", problem["text"], problem["remedy"])


def _forms(found: Iterable[Mapping[str, Any]], kind: str) -> Iterator[Notice]:
    for each in found:
        text = f"{each['title']}: {each['text']}"
        yield Notice(f"{kind}:{each['source']}", "form", text, UPDATE_BSD)


def agent_notices(unserved: Iterable[Mapping[str, Any]]) -> Iterator[Notice]:
    """Return the notices about agents whose sessions bsd does not process."""
    for agent in unserved:
        text = told_text(agent["title"])
        yield Notice(f"agent:{agent['kind']}", "agent", text, f"`{agent['hint']}`")


def _archive(archive: Mapping[str, Any]) -> Iterator[Notice]:
    if problem := archive.get("problem"):
        yield Notice("archive", "archive", problem, "`bsd doctor`")
    if archive.get("nearly_full"):
        taken = f"{format_size(archive['used_bytes'])} of {format_size(archive['most_bytes'])}"
        what_goes = "copies of existing sessions, then the oldest data, for good"
        text = (
            f"packs and copies take {taken} (archive_max_bytes): above it bsd deletes {what_goes}"
        )
        yield Notice(
            "archive:full", "archive", text, "`bsd config set archive_max_bytes` with more"
        )


def _clock(doubt: str | None) -> Iterator[Notice]:
    if doubt:
        yield Notice("clock", "clock", doubt, "`bsd retention --trust-clock` if it is right")


def _parked(parked: list[Mapping[str, Any]]) -> Iterator[Notice]:
    for each in parked[:_MOST]:
        session = each["session"]
        failures = f"{each['failures']:,} failure{'' if each['failures'] == 1 else 's'}"
        text = f"{session} was given up after {failures}: {each['error']}"
        yield Notice(f"parked:{session}", "parked", text, f"`bsd extract {session}`")
    if (more := len(parked) - _MOST) > 0:
        text = f"{more:,} more sessions were given up"
        yield Notice("parked", "parked", text, "`bsd status --json` lists them")


def _orphans(count: int) -> Iterator[Notice]:
    if count:
        text = f"{count:,} {'file' if count == 1 else 'files'} of late lines without a place"
        yield Notice("orphans", "orphans", text, "`bsd verify`")


def _fleet(fleet: Mapping[str, Any]) -> Iterator[Notice]:
    behind = fleet.get("behind_seconds")
    if behind is not None and behind >= _LONG_BEHIND:
        files = fleet["behind_files"]
        why = f": {fleet['last_error']}" if fleet.get("last_error") else ""
        text = f"{files:,} files have been waiting for the bucket for {spell_seconds(behind)}{why}"
        yield Notice("fleet", "fleet", text, "`bsd archive push`; `bsd doctor` checks the bucket")
    for sender in fleet.get("senders", []):
        if sender["name"] != "bucket" and sender["failures"] >= _MANY_FAILURES:
            text = f"the {sender['name']} of the fleet cannot be written: {sender['last_error']}"
            yield Notice(f"fleet-{sender['name']}", "fleet", text, "`bsd doctor` checks it")
