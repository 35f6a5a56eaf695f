"""What of a status needs a person: notices, in the same words for `bsd status` and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bsd.core.formatting import format_size
from bsd.setup.unserved import told_text

_MOST = 5  # notices of one kind; the last one tells how many there are beside
_NEARLY_FULL = 0.05  # of a disk that is free, and
_LEAST_FREE = 5 << 30  # bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """Something for a person to do.

    Attributes:
        id: the same for as long as it is about the same thing.
        about: one word for its subject.
        remedy: a command or a sentence: what to try.
    """

    id: str
    about: str
    text: str
    remedy: str

    def as_json(self, *, dismissed: bool = False) -> dict[str, Any]:
        """Return it as the status document has it."""
        return {
            "id": self.id,
            "about": self.about,
            "text": self.text,
            "try": self.remedy,
            "dismissed": dismissed,
        }


def notices_of(status: Mapping[str, Any]) -> list[Notice]:
    """Return the notices of a status document; one of an older daemon may lack members."""
    return [
        *_config(status),
        *_disk(status.get("room") or {}),
        *_copies(status.get("not_copied", [])),
        *_watching(status["watcher"]["problems"]),
        *_sources(status["sources"]),
        *agent_notices(status.get("unserved", [])),
        *_archive(status["retention"].get("archive", {})),
        *_clock(status["clock"]),
        *_parked(status["queue"]["parked"]),
        *_orphans(status["orphans"]["count"]),
    ]


def _config(status: Mapping[str, Any]) -> Iterator[Notice]:
    config = status["config"]
    if config["problem"]:
        text = f"the settings file is broken, the last good settings hold: {config['problem']}"
        yield Notice("config", "config", text, f"mend {config['path']}")


def _disk(room: Mapping[str, Any]) -> Iterator[Notice]:
    free, size = room.get("free"), room.get("size")
    if free is None or not size or free >= min(_LEAST_FREE, size * _NEARLY_FULL):
        return
    text = f"the disk of bsd's root is nearly full: {format_size(free)} of {format_size(size)} free"
    yield Notice("disk", "disk", text, "free some space; `bsd status` says what bsd takes")


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


def agent_notices(unserved: Iterable[Mapping[str, Any]]) -> Iterator[Notice]:
    """Return the notices about agents that bsd does not look after."""
    for agent in unserved:
        text = told_text(agent["title"])
        yield Notice(f"agent:{agent['kind']}", "agent", text, f"`{agent['hint']}`")


def _archive(archive: Mapping[str, Any]) -> Iterator[Notice]:
    if problem := archive.get("problem"):
        yield Notice("archive", "archive", problem, "`bsd doctor`")
    if archive.get("nearly_full"):
        taken = f"{format_size(archive['used_bytes'])} of {format_size(archive['most_bytes'])}"
        what_goes = "copies of sessions in their place go, then what is oldest, for good"
        text = f"packs and copies take {taken} (archive_max_bytes): beyond that {what_goes}"
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
