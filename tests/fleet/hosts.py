"""A made-up host: a root with sessions and extracted values, which shares a bucket with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bsd.bucket.objects import Bucket, open_bucket
from bsd.bucket.sealing import sealing_of
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.fleet.host import HostDirectory, this_host
from bsd.fleet.manifest import HostArchive, read_host
from bsd.fleet.push import Pushed, push
from bsd.store.uploads import UploadFigures, UploadJournal
from tests.actions.performed import Caller
from tests.session_files import Clock, conversation, make_caller, write


@dataclass
class MadeHost:
    """A host; its sessions have rested for an hour."""

    layout: Layout
    settings: FleetSettings
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, top: Path, name: str = "here", **settings: Any) -> MadeHost:
        """Make a host without sessions in `top/NAME`, with the bucket `top/bucket`."""
        bucket = top / "bucket"
        bucket.mkdir(exist_ok=True)
        layout = Layout(top / name)
        (layout.agents / "main" / "sessions").mkdir(parents=True)
        given = {"bucket": bucket.as_uri(), "host": name, **settings}
        return cls(layout, FleetSettings(**given))

    @property
    def caller(self) -> Caller:
        """A context whose waiting takes no time."""
        return replace(make_caller(self.layout, self.clock, 0.0), fleet=self.settings)

    def add(self, session: str = "main/s1", words: str = "", *, extracted: bool = True) -> Path:
        """Add a session with three long results, which are extracted; return its transcript.

        Args:
            session: its name.
            words: a text that stands in each result.
            extracted: extract the results.
        """
        entries = conversation()
        for each in entries:
            if each.get("message", {}).get("role") == "toolResult":
                each["message"]["content"][0]["text"] += f" {words} of {session}"
        path = write(self.layout, entries, name := SessionName.parse(session))
        if extracted:
            self.caller.extract(name, overrides={"keep_recent": 0})
            self.clock.ahead += 3600.0
            self.caller.recover()
        return path

    def push(self, **more: Any) -> Pushed:
        """Push, as the command does."""
        return push(self.caller, **more)

    # --- what the bucket has ---

    @property
    def bucket(self) -> Bucket:
        return open_bucket(self.settings)

    @property
    def directory(self) -> HostDirectory:
        return this_host(self.layout, self.settings)

    def remote(self) -> HostArchive:
        """Return what the manifests in the bucket say of this host."""
        return read_host(self.bucket, self.directory, sealing_of(self.settings))

    def figures(self) -> UploadFigures:
        with UploadJournal(self.layout) as journal:
            return journal.figures()

    def archived(self) -> dict[str, bytes]:
        """Return all files of the local archive by path."""
        return dict(_files_below(self.layout.archive))

    def objects(self) -> dict[str, bytes]:
        """Return all objects of a bucket that is a directory, by key."""
        return dict(_files_below(Path(str(self.settings.bucket).removeprefix("file://"))))


def _files_below(top: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(top.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(top)), path.read_bytes()
