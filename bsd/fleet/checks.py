"""Checks of what this machine shares with others, for `bsd doctor`. Each takes ten seconds at most.

Objects of a few bytes are created in the bucket and deleted again; nothing else changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from bsd.bucket.aws_profile import read_profile
from bsd.bucket.objects import open_bucket
from bsd.bucket.sealing import sealing_of
from bsd.core.durations import spell_seconds
from bsd.core.errors import BsdError, NotFound
from bsd.core.extras import require_extra
from bsd.core.formatting import format_size
from bsd.fleet.catalogue.checks import TableRights, look_at_catalogue
from bsd.fleet.catalogue.migrating import newest
from bsd.fleet.context import FleetContext
from bsd.fleet.host import this_host, why_new_id
from bsd.fleet.hosts import list_hosts, shared_names
from bsd.fleet.time_limit import ANSWER_SECONDS, within
from bsd.maintenance.doctor import Check, Level
from bsd.store.uploads import UploadJournal

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_LEAST_BEHIND = 3600.0  # seconds; files that wait for a shorter time are no problem
_PUSHES_BEHIND = 3  # so many pushes may be missed, too
_MOST_SKEW = 60.0  # seconds

_Look = Callable[[FleetContext], Iterator[Check]]


def check_fleet(context: FleetContext) -> Iterator[Check]:
    """Yield the results of all checks; none if the settings share nothing."""
    settings = context.fleet
    looks: list[tuple[str, _Look]] = []
    if settings.parquet:
        looks.append(("parquet", _parquet))
    if settings.bucket is not None:
        looks += [("archive", _archive), ("encryption", _encryption), ("transport", _transport)]
        looks += [("bucket", _rights), ("versions", _versions), ("hosts", _hosts)]
        looks.append(("uploads", _uploads))
    if settings.database is not None:
        looks.append(("catalogue", _catalogue))
    unusable: set[str] = set()
    for name, look in looks:
        asked = _ASKED.get(name, name)
        if asked in unusable:  # its first check has told why
            continue
        try:
            yield from within(ANSWER_SECONDS, asked, partial(_listed, look, context))
        except BsdError as error:
            unusable.add(asked)
            yield Check(name, Level.FAIL, error.message, error.hint)


def _listed(look: _Look, context: FleetContext) -> list[Check]:
    return list(look(context))


_ASKED = {
    "bucket": "the bucket",
    "versions": "the bucket",
    "hosts": "the bucket",
    "catalogue": "the database",
}


def _parquet(_: FleetContext) -> Iterator[Check]:
    require_extra("duckdb", "the export of Parquet files")
    yield Check("parquet", Level.OK, "the daemon exports files for analysis once a day")


# --- the bucket ---


def _archive(context: FleetContext) -> Iterator[Check]:
    if not context.config.current.archive:
        message = "values that expire are deleted, not archived, so the bucket does not keep them"
        yield Check("archive", Level.WARN, message, "`bsd config set archive true`")


def _encryption(context: FleetContext) -> Iterator[Check]:
    settings = context.fleet
    if not settings.encrypt_to:
        return
    require_extra("pyrage", "encryption of the bucket")
    if settings.parquet:
        message = "no Parquet files are written, since everything in the bucket is encrypted"
        hint = "`bsd fleet export --to DIR`; set `parquet = false` of [fleet] in bsd.toml"
        yield Check("parquet", Level.WARN, message, hint)
    if settings.identity is None:
        message = "the bucket is encrypted, and this machine has no key: it can restore nothing"
        hint = (
            "name the file of age-keygen: `identity` of [fleet] in bsd.toml; or restore elsewhere"
        )
        yield Check("encryption", Level.WARN, message, hint)
    elif why := sealing_of(settings).problem():
        yield Check("encryption", Level.FAIL, why, "correct `identity` of [fleet] in bsd.toml")
    else:
        message = f"for {len(settings.encrypt_to)} public keys; {settings.identity} decrypts"
        yield Check("encryption", Level.OK, message)


def _transport(context: FleetContext) -> Iterator[Check]:
    """Warn about data that goes through a network without TLS."""
    if not (context.fleet.bucket or "").startswith("s3://"):
        return
    named = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    parts = urlsplit(named or read_profile().endpoint or "")
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        message = f"the bucket is reached at http://{parts.netloc}, without TLS"
        yield Check("transport", Level.WARN, message, "name its https:// address: AWS_ENDPOINT_URL")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _rights(context: FleetContext) -> Iterator[Check]:
    checked = open_bucket(context.fleet).check_rights()
    for right in checked:
        if right.problem is not None:
            message = f"the credentials do not allow to {right.operation}: {right.problem}"
            yield Check("bucket", Level.FAIL, message, right.hint)
    if all(right.problem is None for right in checked):
        can = ", ".join(right.operation for right in checked)
        yield Check("bucket", Level.OK, f"{context.fleet.bucket} allows to {can}")


def _versions(context: FleetContext) -> Iterator[Check]:
    keeps = open_bucket(context.fleet).keeps_versions()
    if keeps:
        message = (
            "the bucket keeps old versions of what is deleted: what `bsd archive forget` deletes "
            "stays there"
        )
        hint = "switch versions and object lock off, or let a lifecycle rule delete old versions"
        yield Check("versions", Level.WARN, message, hint)
    elif keeps is None:
        message = "it is not known whether the bucket keeps what is deleted for a while"
        yield Check(
            "versions", Level.OK, message, "see its settings: versions, soft deletion, locks"
        )


def _hosts(context: FleetContext) -> Iterator[Check]:
    if why := why_new_id(context.layout):
        hint = "nothing is wrong if this root was copied; else set another `host` of [fleet]"
        yield Check("hosts", Level.WARN, why, hint)
    own = this_host(context.layout, context.fleet)
    hosts = list_hosts(open_bucket(context.fleet), own)
    warnings = list(shared_names(hosts))
    for warning in warnings:
        yield Check("hosts", Level.WARN, warning)
    if not warnings:
        others = sum(not host.is_this for host in hosts)
        yield Check(
            "hosts", Level.OK, f"this machine is {own.host}; others in the bucket: {others}"
        )


def _uploads(context: FleetContext) -> Iterator[Check]:
    try:
        with UploadJournal(context.layout) as journal:
            figures = journal.figures()
    except NotFound:
        message = "this machine has uploaded nothing yet"
        yield Check("uploads", Level.WARN, message, "`bsd archive push`, or run the daemon")
        return
    since = figures.waiting_since
    behind = 0.0 if since is None else context.now() - since
    level = Level.OK
    message = f"{figures.files:,} files ({format_size(figures.bytes)}) are in the bucket"
    if figures.waiting_files:
        message += (
            f", {figures.waiting_files:,} ({format_size(figures.waiting_bytes)}) are not, the "
            f"oldest since {spell_seconds(max(behind, 0.0))}"
        )
    if behind > max(_LEAST_BEHIND, _PUSHES_BEHIND * context.fleet.push_seconds):
        level = Level.WARN
    if figures.last_error is not None:
        level = Level.WARN
        message += f"; the last error: {figures.last_error}"
    hint = "`bsd archive push` uploads now, and tells what prevents it"
    yield Check("uploads", level, message, None if level is Level.OK else hint)


# --- the catalogue ---


def _catalogue(context: FleetContext) -> Iterator[Check]:
    begun = context.now()
    found = look_at_catalogue(context.fleet)
    skew = found.time - (begun + context.now()) / 2
    if found.schema.number == 0:
        message = f"the database {found.where} has no catalogue yet"
        hint = "the daemon makes its tables, or `bsd fleet migrate`"
        yield Check("catalogue", Level.WARN, message, hint)
    elif found.schema.number > newest():
        message = (
            f"the catalogue at {found.where} has schema {found.schema.number}, and this bsd knows "
            f"{newest()}: this machine writes nothing there"
        )
        is_unreadable = found.schema.readable_from > newest()
        level = Level.FAIL if is_unreadable else Level.WARN
        yield Check("catalogue", level, message, "pip install -U brainsurgeond")
    elif found.schema.number < newest() and not found.may_migrate:
        message = (
            f"the catalogue at {found.where} has the old schema {found.schema.number}, and the "
            "role may not bring it up to date"
        )
        hint = "run `bsd fleet migrate` with a role that owns the schema bsd"
        yield Check("catalogue", Level.FAIL, message, hint)
    else:
        message = f"{found.where} is reached, with schema {found.schema.number}"
        yield Check("catalogue", Level.OK, message)
    if found.schema.number:
        yield from _role(found.rights, found.where)
    if abs(skew) > _MOST_SKEW:
        ahead = "ahead of" if skew > 0 else "behind"
        message = f"the clock of the database is {spell_seconds(abs(skew))} {ahead} this machine's"
        yield Check("catalogue", Level.WARN, message, "let both follow a time server (NTP)")


def _role(rights: TableRights, where: str) -> Iterator[Check]:
    if rights.not_read:
        message = f"the role may not read {', '.join(rights.not_read)} of {where}"
        hint = "`bsd fleet migrate --reader ROLE`, as a role that owns the schema bsd"
        yield Check("catalogue", Level.FAIL, message, hint)
    elif rights.not_written:
        message = (
            f"the role may not write {', '.join(rights.not_written)} of {where}: the sessions of "
            "this machine are not listed there"
        )
        hint = "no action needed if this machine only reads; else see contrib/docs/fleet.md"
        yield Check("catalogue", Level.WARN, message, hint)
