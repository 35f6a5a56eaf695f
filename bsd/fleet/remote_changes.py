"""The directory of a host in the bucket: new manifests, and objects that are no longer used."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import structlog

from bsd.bucket.errors import BucketUnreachable, OtherContent
from bsd.bucket.objects import Bucket, backoff
from bsd.bucket.sealing import Sealing
from bsd.core.layout import Layout
from bsd.fleet.host import HostDirectory
from bsd.fleet.manifest import (
    FULL_EVERY,
    generations,
    make_manifest,
    manifest_key,
    newest_generation,
)
from bsd.fleet.uploading import files_in
from bsd.sessions.commit.exchange import Step
from bsd.store.upload_places import DeletedFile, PendingManifest, PlaceJournal

_log = structlog.stdlib.get_logger(module="fleet")

_TRIES = 3
_AT_ONCE = 1000  # keys per call
# A note of a deletion becomes obsolete if the file is there again: when it is newer than the note,
# or when no deletion can take so long.
_NEWER_SECONDS, _OLD_SECONDS = 600.0, 24 * 3600.0


class PlaceTaken(Exception):
    """The manifests in this host's directory are not those that it wrote: it needs another one."""


class RemotePlace:
    """A directory of this host in the bucket, and its journal.

    Args:
        bucket: the bucket.
        directory: of the host.
        sealing: how manifests are encrypted.
        place: the journal of the directory.
        after_step: for tests.
    """

    def __init__(
        self,
        bucket: Bucket,
        directory: HostDirectory,
        sealing: Sealing,
        place: PlaceJournal,
        after_step: Step,
    ) -> None:
        self.directory = directory
        self.place = place
        self._bucket = bucket
        self._sealing = sealing
        self._after_step = after_step

    # --- manifests ---

    def finish_manifest(self) -> None:
        """Create the manifest that an interrupted push has begun; raises PlaceTaken."""
        if (pending := self.place.pending_manifest()) is not None:
            self._create(pending)

    def refuse_other_manifests(self) -> None:
        """Raise PlaceTaken unless the newest manifest is the one that the journal names."""
        found, own = newest_generation(self._bucket, self.directory), self.place.state().generation
        if found > own:
            raise PlaceTaken(f"another machine writes to {self.directory} in the bucket, too")
        if found < own:
            raise PlaceTaken(f"the bucket has lost manifests of {self.directory}")

    def write_manifest(self, now: float) -> None:
        """Create a manifest if something has changed; raises PlaceTaken."""
        if not self.place.has_changes():
            return
        state = self.place.state()
        generation = state.generation + 1
        full = generation == 1 or generation % FULL_EVERY == 0 or state.is_full
        document = make_manifest(
            self.directory,
            generation,
            state.previous,
            self.place.to_list(full=full),
            self.place.removed(),
            at=now,
            full=full,
        )
        data = self._sealing.seal(document)
        pending = PendingManifest(generation, data, hashlib.sha256(data).hexdigest(), full)
        self.place.begin_manifest(pending)
        self._after_step("manifest-begun")
        self._create(pending)

    def _create(self, pending: PendingManifest) -> None:
        key = manifest_key(self.directory, pending.generation)
        for attempt in range(_TRIES):
            try:
                self._bucket.put_new(key, pending.data)
                break
            except OtherContent as other:
                why = f"another machine writes to {self.directory} in the bucket, too"
                raise PlaceTaken(why) from other
            except BucketUnreachable:
                if attempt + 1 == _TRIES:
                    raise
                time.sleep(backoff(attempt))
        self._after_step("manifest-created")
        self.place.manifest_written(pending)
        self._after_step("manifest-noted")

    # --- objects ---

    def delete_unused(self) -> None:
        """Delete the objects that no listed file uses any more."""
        while keys := self.place.unused():
            # The objects of a file that was copied from another directory stay there.
            own = [key for key in keys if key.startswith(f"{self.directory.objects}/")]
            self._bucket.delete(own)
            self._after_step("deleted")
            self.place.objects_deleted(keys)

    def sweep(self) -> None:
        """Delete objects and manifests that interrupted pushes have left."""
        state = self.place.state()
        if not state.sweeps or self.place.has_changes():
            return
        directory = self.directory
        old = (
            manifest_key(directory, each)
            for each in generations(self._bucket, directory)
            if each < state.newest_full
        )
        self._delete(old)
        self._after_step("swept-manifests")
        keys = (each.key for each in self._bucket.list_keys(directory.objects))
        self._delete(key for key in keys if not self.place.uses(key))
        self.place.set_sweeps(on=False)

    def _delete(self, keys: Iterable[str]) -> None:
        left = iter(list(keys))
        while some := list(islice(left, _AT_ONCE)):
            self._bucket.delete(some)


def sort_deletions(
    layout: Layout, place: PlaceJournal, notes: Iterable[DeletedFile], now: float
) -> tuple[list[DeletedFile], list[DeletedFile]]:
    """Return the deletions to pass on now, and the notes that are obsolete.

    A deletion for another reason than to lose content, such as a merge of packs, waits until the
    bucket has all other files of its directory.

    Args:
        layout: the root.
        place: the journal of this root's directory.
        notes: all, sorted by path.
        now: epoch seconds.
    """
    gone: list[DeletedFile] = []
    obsolete: list[DeletedFile] = []
    for directory, group in groupby(notes, lambda note: note.path.rpartition("/")[0]):
        missing = list(_missing(layout, group, now, obsolete))
        noted = {note.path for note in missing}
        if not all(note.must for note in missing) and not _is_up(layout, place, directory, noted):
            missing = [note for note in missing if note.must]
        gone += missing
    return gone, obsolete


def _missing(
    layout: Layout, notes: Iterable[DeletedFile], now: float, obsolete: list[DeletedFile]
) -> Iterator[DeletedFile]:
    for note in notes:
        try:
            found = (layout.archive / note.path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            yield note
            continue
        age = now - note.at
        if age > _OLD_SECONDS or (age > _NEWER_SECONDS and found.st_ctime > note.at):
            obsolete.append(note)


def _is_up(layout: Layout, place: PlaceJournal, directory: str, deleted: set[str]) -> bool:
    """Return whether the bucket has all files of a directory as they are now.

    A file that is missing here, and is not one of the `deleted` ones, was lost: what it needs must
    stay in the bucket.
    """
    noted = place.noted_in(directory)
    try:
        found = files_in(layout, directory)
    except FileNotFoundError:
        found = []
    except OSError:
        return False
    lost = noted.keys() - deleted - {file.path for file in found}
    if any(path.rpartition("/")[0] == directory for path in lost):
        return False
    return all(file.path in noted and noted[file.path].stamp == file.stamp for file in found)
