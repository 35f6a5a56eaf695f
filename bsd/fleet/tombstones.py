"""Publishes what this host has forgotten for good, and forgets what other hosts have forgotten.

A tombstone waits in the journal of uploads until the bucket has it. All that wait become one
object, `tombstones/<time>-<random>.json`, after this host's own objects are deleted. Every host
reads the objects that it has not obeyed yet, at the beginning of each push. If a session is busy,
its tombstones are obeyed by a later push.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import orjson
import structlog

from bsd.bucket.objects import Bucket, ListedObject
from bsd.core.errors import BsdError, Busy, Conflict, os_problem
from bsd.core.layout import SessionName
from bsd.fleet.context import FleetContext
from bsd.maintenance.obey_tombstone import ObedientForget, stores_by_hash
from bsd.maintenance.tell_others import ROWS, add_rows
from bsd.store.checked import moment, text
from bsd.store.tombstone import VERSION, Tombstone
from bsd.store.uploads import UploadJournal

_log = structlog.stdlib.get_logger(module="fleet")

DIRECTORY = "tombstones"
_ENDING = ".json"
_MOST_IN_ONE = 1000  # tombstones of one object
_AT_ONCE = 8  # objects that are read at the same time
# Clocks of hosts differ by less: what was stored here shortly after the moment goes, too.
GRACE_SECONDS = 300.0
_TOO_NEW = "update bsd on this machine (pip install -U brainsurgeond), or delete the object"


@dataclass(frozen=True, slots=True)
class TombstoneObject:
    """An object with tombstones.

    Attributes:
        id: its key below `tombstones/`, without `.json`.
        host: the directory of the host that wrote it.
        tombstones: their times are by the clock of the bucket's service.
    """

    id: str
    host: str
    tombstones: tuple[Tombstone, ...]


@dataclass(slots=True)
class Obeyed:
    """The result of `obey`.

    Attributes:
        sessions: the sessions of which something was forgotten here.
        waiting: why some tombstones must wait, such as a session in use.
        problems: why some tombstones cannot be obeyed; a user must act.
        kept_by: other sessions of this host that still keep the same content.
    """

    sessions: set[SessionName] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    kept_by: set[str] = field(default_factory=set)


# --- writing ---


def publish_pending(bucket: Bucket, journal: UploadJournal, host: str, now: float) -> int:
    """Upload the tombstones that wait in the journal; return their number.

    Call this after the objects of the forgotten files are deleted.

    Args:
        host: the directory of this host: `HOST/ID`.
        now: epoch seconds.
    """
    pending = [each for each in journal.pending_tombstones() if not each[0].startswith(ROWS)]
    for start in range(0, len(pending), _MOST_IN_ONE):
        some = pending[start : start + _MOST_IN_ONE]
        id_ = put_tombstones(bucket, [Tombstone.of(document) for _, document in some], host, now)
        # After a kill before the notes, they are published again, which changes nothing.
        journal.note_applied([id_])
        for each, _ in some:
            journal.tombstone_sent(each)
    return len(pending)


def put_tombstones(bucket: Bucket, tombstones: Sequence[Tombstone], host: str, now: float) -> str:
    """Upload tombstones as one object; return its id."""
    id_ = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}"
    document = {
        "version": VERSION,
        "host": host,
        "sent": now,
        "tombstones": [each.document() for each in tombstones],
    }
    bucket.put_new(f"{DIRECTORY}/{id_}{_ENDING}", orjson.dumps(document))
    return id_


# --- reading ---


def read_tombstones(
    bucket: Bucket, but: Collection[str] = ()
) -> Iterator[tuple[str, TombstoneObject | BsdError]]:
    """Yield the objects with tombstones by time, each with its id; an unusable one as an error.

    Args:
        bucket: the bucket.
        but: ids of objects that are not read.

    Raises:
        BucketUnreachable, BucketRefused, NoBucket: the list, or an object, cannot be read now.
    """
    listed = [each for each in bucket.list_keys(DIRECTORY) if _id_of(each.key) not in but]
    with ThreadPoolExecutor(min(_AT_ONCE, len(listed) or 1), "tombstones") as threads:
        for each, data in zip(
            listed, threads.map(lambda one: bucket.get(one.key), listed), strict=True
        ):
            yield _id_of(each.key), _parsed(each, data)


def _id_of(key: str) -> str:
    return key.removeprefix(f"{DIRECTORY}/").removesuffix(_ENDING)


def _parsed(listed: ListedObject, data: bytes) -> TombstoneObject | BsdError:
    try:
        document = orjson.loads(data)
        # The writer's clock may be wrong; the service's is the same for all.
        ahead = moment(document["sent"]) - listed.modified.timestamp()
        found = (Tombstone.of(each) for each in document["tombstones"])  # checks the version
        shifted = tuple(_shifted(each, ahead) for each in found)
        return TombstoneObject(_id_of(listed.key), text(document["host"]), shifted)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Conflict(f"{listed.key} in the bucket cannot be read: {error}", hint=_TOO_NEW)


def _shifted(tombstone: Tombstone, ahead: float) -> Tombstone:
    """Return a tombstone with its time by the clock of the service."""
    return replace(tombstone, at=max(0.0, tombstone.at - ahead))


# --- obeying ---


def obey(context: FleetContext, bucket: Bucket, journal: UploadJournal) -> Obeyed:
    """Forget here what the tombstones say that this host has not obeyed yet.

    An object counts as obeyed when all of its tombstones are. A session that is in use waits for
    the next call.

    Raises:
        BucketUnreachable, BucketRefused, NoBucket: the tombstones cannot be read now.
    """
    done = Obeyed()
    found = list(read_tombstones(bucket, journal.applied_tombstones()))
    if not found:
        return done
    stores = stores_by_hash(context.layout)
    forget = ObedientForget(
        context.layout,
        trash_keep=context.config.current.trash_retention,
        actor=context.actor,
        budget=context.budget,
    )
    for id_, read in found:
        if isinstance(read, BsdError):
            done.problems.append(read.message)
            continue
        complete = True
        for tombstone in read.tombstones:
            for name in stores.get(tombstone.store, ()):
                before = len(done.sessions)
                complete &= _obey_one(forget, name, tombstone, done)
                if len(done.sessions) > before:
                    add_rows(journal, name, tombstone.entry, tombstone.hashes)
        if complete:
            journal.note_applied([id_])
    if done.sessions:
        context.cleaned()
    return done


def _obey_one(
    forget: ObedientForget, name: SessionName, tombstone: Tombstone, done: Obeyed
) -> bool:
    """Obey one tombstone for one session; return False if that must be done again."""
    try:
        result = forget.obey(name, tombstone, tombstone.at + GRACE_SECONDS)
    except Busy as busy:
        _log.debug("Forgetting waits", session=str(name), why=busy.message)
        done.waiting.append(f"{name}: {busy.message}")
        return False
    except (BsdError, OSError) as error:
        problem = os_problem(error, f"forgetting {name}").message
        _log.warning("What another machine has forgotten stays here", problem=problem)
        done.problems.append(f"{name}: {problem}")
        return False
    if result is not None:
        done.sessions.add(name)
        done.kept_by.update(result.kept_by)
    return True


def refusing(tombstones: Iterable[Tombstone], store: str) -> list[Tombstone]:
    """Return the tombstones of the session with this store hash."""
    return [each for each in tombstones if each.store == store]
