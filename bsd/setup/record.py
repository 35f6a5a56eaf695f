"""The record of bsd's additions to files of other programs, so that they can be removed.

It is a private file of the root (`Layout.agents_file`), written before the files themselves. If an
addition was recorded but not written, its removal finds it absent and does no work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.errors import ConfigError, TemporaryFailure, os_problem
from bsd.core.file_lock import holding
from bsd.core.files import LARGEST_RECORD, read_ours, write_private
from bsd.core.layout import Layout
from bsd.setup.json_text import AddedJson
from bsd.setup.toml_text import AddedToml
from bsd.transcripts.agents.setup_files import Addition, SetupPart

_VERSION = 1
_WAIT_SECONDS = 5.0  # another bsd is done within milliseconds


@dataclass(frozen=True, slots=True)
class AddedFile:
    """An added file; `digest` is the SHA-256 of its content."""

    digest: str


Added = AddedJson | AddedToml | AddedFile
_FORMS: dict[str, type[Added]] = {"json": AddedJson, "toml": AddedToml, "whole_file": AddedFile}


@dataclass(frozen=True, slots=True)
class RecordedAddition:
    """An addition to a file."""

    part: SetupPart
    file: Path  # the path that the program uses; may be a link
    added: Added
    lock: Path | None = None  # as in `JsonMember`


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file that was missing or blank before bsd wrote to it.

    Attributes:
        blank: the file's former content; None if it did not exist.
        directories: the directories that bsd created for it, outermost first.
    """

    blank: str | None
    directories: tuple[Path, ...] = ()


@dataclass(slots=True)
class SetupRecord:
    """The additions of bsd.

    Attributes:
        additions: the additions for each agent, by the agent's name in commands.
        made: files that were missing or blank before.
        turned_off: agents that the user has turned off and not on again.
    """

    additions: dict[str, list[RecordedAddition]] = field(default_factory=dict)
    made: dict[Path, MadeFile] = field(default_factory=dict)
    turned_off: set[str] = field(default_factory=set)

    def of_file(self, agent: str, file: Path) -> list[RecordedAddition]:
        """Return the additions to a file for an agent."""
        return [each for each in self.additions.get(agent, []) if each.file == file]

    def find(self, agent: str, addition: Addition) -> Added | None:
        """Return the recorded addition at the same path of the same file; None if there is none."""
        for each in self.of_file(agent, addition.file):
            if getattr(each.added, "path", None) == getattr(addition, "path", None):
                return each.added
        return None

    def put(self, agent: str, file: Path, additions: Iterable[RecordedAddition]) -> None:
        """Replace the recorded additions to a file for an agent."""
        others = [each for each in self.additions.get(agent, []) if each.file != file]
        self.additions[agent] = [*others, *additions]
        if not self.additions[agent]:
            del self.additions[agent]

    def has_file(self, file: Path) -> bool:
        """Return True if the record has an addition to a file, for any agent."""
        return any(each.file == file for found in self.additions.values() for each in found)


def read_record(layout: Layout) -> SetupRecord:
    """Return the record of a root; empty if the file is missing. Raises ConfigError, BsdError."""
    path = layout.agents_file
    try:
        content = read_ours(path, layout.root, LARGEST_RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return SetupRecord()
    except OSError as error:
        raise os_problem(error, f"reading {path}") from error
    try:
        return _from_json(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path}, the record of bsd's additions to other programs' files, is broken: {error}",
            hint="move it away; then remove bsd's additions by hand",
        ) from None


def lock_record(layout: Layout) -> AbstractContextManager[None]:
    """Lock the record against other processes; raises TemporaryFailure, BsdError."""
    text = "another bsd is turning an agent on or off"
    return holding(layout.agents_lock, _WAIT_SECONDS, TemporaryFailure(text, hint="run it again"))


def write_record(layout: Layout, record: SetupRecord) -> None:
    """Write the record durably; raises BsdError."""
    try:
        write_private(layout.agents_file, encode_record(record))
    except OSError as error:
        raise os_problem(error, f"writing {layout.agents_file}") from error


def encode_record(record: SetupRecord) -> bytes:
    """Return the content of the record's file."""
    document = {
        "version": _VERSION,
        "agents": {
            agent: [
                {
                    "part": each.part,
                    "file": str(each.file),
                    "lock": None if each.lock is None else str(each.lock),
                    _form(each.added): asdict(each.added),
                }
                for each in additions
            ]
            for agent, additions in sorted(record.additions.items())
        },
        "made": {
            str(path): {"blank": made.blank, "directories": [*map(str, made.directories)]}
            for path, made in sorted(record.made.items())
        },
        "turned_off": sorted(record.turned_off),
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def _form(added: Added) -> str:
    return next(form for form, kind in _FORMS.items() if isinstance(added, kind))


def _from_json(document: Any) -> SetupRecord:
    return SetupRecord(
        {agent: [*map(_addition, each)] for agent, each in document["agents"].items()},
        {
            Path(path): MadeFile(made["blank"], tuple(map(Path, made["directories"])))
            for path, made in document["made"].items()
        },
        set(document["turned_off"]),
    )


def _addition(document: Any) -> RecordedAddition:
    form = next(form for form in _FORMS if form in document)
    members = document[form]
    if "path" in members:
        members["path"] = tuple(members["path"])
    lock = document["lock"]
    return RecordedAddition(
        SetupPart(document["part"]),
        Path(document["file"]),
        _FORMS[form](**members),
        None if lock is None else Path(lock),
    )
