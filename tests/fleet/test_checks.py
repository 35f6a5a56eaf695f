"""The checks of `bsd doctor` of what this machine shares with others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.bucket.objects import RightCheck
from bsd.core.config_file import ConfigService
from bsd.core.errors import TemporaryFailure
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.fleet import checks
from bsd.fleet.catalogue.checks import CatalogueState, TableRights
from bsd.fleet.catalogue.migrating import SchemaState, newest
from bsd.fleet.checks import check_fleet
from bsd.maintenance.doctor import Level
from bsd.store import uploads
from bsd.store.uploads import UploadFigures, UploadJournal

KEY = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kudc0000000sm9u8"
Checked = Callable[..., dict[str, list[tuple[Level, str, str | None]]]]


class FakeBucket:
    """A bucket that refuses what a test names."""

    url = "s3://archive"

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.versions: bool | None = False
        self.directories: list[str] = []
        self.seconds = 0.0

    def check_rights(self) -> list[RightCheck]:
        time.sleep(self.seconds)
        return [
            RightCheck(name, self.problems.get(name), "allow it" if name in self.problems else None)
            for name in ("list", "create", "read", "delete")
        ]

    def keeps_versions(self) -> bool | None:
        return self.versions

    def list_directories(self, prefix: str) -> list[str]:
        under = {tuple(each.split("/")) for each in self.directories}
        return sorted({each[1] if prefix else each[0] for each in under if prefix in {"", each[0]}})

    def list_keys(self, _: str) -> Iterator[Any]:
        return iter(())


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBucket:
    fake = FakeBucket()
    monkeypatch.setattr(checks, "open_bucket", lambda _: fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    return fake


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    root = tmp_path / "root"
    root.mkdir()
    layout = Layout(root)
    return ActionContext(layout=layout, config=ConfigService(layout.config_file))


@pytest.fixture
def checked(context: ActionContext) -> Checked:
    def check(**members: Any) -> dict[str, list[tuple[Level, str, str | None]]]:
        settings = FleetSettings(host="ours", **members)
        found: dict[str, list[tuple[Level, str, str | None]]] = {}
        for each in check_fleet(replace(context, fleet=settings)):
            found.setdefault(each.name, []).append((each.level, each.message, each.hint))
        return found

    return check


def test_a_machine_that_shares_nothing(checked: Checked) -> None:
    assert checked() == {}


def test_a_directory_as_bucket(checked: Checked, context: ActionContext, tmp_path: Path) -> None:
    place = tmp_path / "bucket"
    found = checked(bucket=f"file://{place}")
    [(level, message, hint)] = found["bucket"]
    assert (level, "does not exist" in message, "mkdir" in str(hint)) == (Level.FAIL, True, True)
    assert "versions" not in found  # the same would be said twice
    place.mkdir()
    found = checked(bucket=f"file://{place}")
    [(level, message, _)] = found["bucket"]
    assert (level, message.endswith("allows to list, create, read, delete")) == (Level.OK, True)
    assert found["hosts"] == [(Level.OK, "this machine is ours; others in the bucket: 0", None)]
    assert found["uploads"][0][:2] == (Level.WARN, "this machine has uploaded nothing yet")
    assert not list(place.rglob("*.json"))
    assert "archive" not in found
    context.config.update({"archive": False})
    [(level, message, hint)] = checked(bucket=f"file://{place}")["archive"]
    assert (level, hint) == (Level.WARN, "`bsd config set archive true`")


def test_rights_and_old_versions(checked: Checked, bucket: FakeBucket) -> None:
    bucket.problems = {"delete": "AccessDenied"}
    bucket.versions = True
    found = checked(bucket="s3://archive")
    message = "the credentials do not allow to delete: AccessDenied"
    assert found["bucket"] == [(Level.FAIL, message, "allow it")]
    assert found["versions"][0][0] is Level.WARN
    bucket.versions = None
    assert checked(bucket="s3://archive")["versions"][0][0] is Level.OK


def test_a_bucket_that_does_not_answer(
    checked: Checked, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 0.05)
    bucket.seconds = 0.5
    found = checked(bucket="s3://archive")
    [(level, message, hint)] = found["bucket"]
    assert (level, "the bucket has not answered" in message) == (Level.FAIL, True)
    assert hint is not None
    assert "hosts" not in found
    assert "uploads" in found


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [
        ("http://10.1.2.3:9000", True),
        ("http://store.lan", True),
        ("http://127.0.0.1:9000", False),
        ("http://localhost:9000", False),
        ("https://store.lan", False),
    ],
)
def test_endpoints_without_tls(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, endpoint: str, warned: bool
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert ("transport" in checked(bucket="s3://archive")) is warned


@pytest.mark.usefixtures("bucket")
def test_encryption_without_a_key_here(checked: Checked, tmp_path: Path) -> None:
    [(level, message, hint)] = checked(bucket="s3://archive", encrypt_to=(KEY,))["encryption"]
    assert (level, "can restore nothing" in message) == (Level.WARN, True)
    assert "identity" in str(hint)
    missing = tmp_path / "age.key"
    sealed = checked(bucket="s3://archive", encrypt_to=(KEY,), identity=missing)
    assert sealed["encryption"][0][0] is Level.FAIL


def test_two_machines_of_one_name(checked: Checked, bucket: FakeBucket) -> None:
    bucket.directories = ["ours/00000009", "ours/0000000a", "build-3/00000003"]
    [(level, message, _)] = checked(bucket="s3://archive")["hosts"]
    assert (level, message.startswith("2 machines are called ours")) == (Level.WARN, True), message


@pytest.mark.usefixtures("bucket")
def test_uploads_behind(
    checked: Checked, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(UploadJournal(context.layout, create=True)):
        pass
    figures = UploadFigures(files=7, bytes=1 << 20)
    monkeypatch.setattr(uploads.UploadJournal, "figures", lambda _: figures)
    assert checked(bucket="s3://archive")["uploads"][0][0] is Level.OK
    figures = replace(figures, waiting_files=2, waiting_since=time.time() - 600)
    assert checked(bucket="s3://archive")["uploads"][0][0] is Level.OK
    figures = replace(figures, waiting_since=time.time() - 7300)
    [(level, message, hint)] = checked(bucket="s3://archive")["uploads"]
    assert (level, "2 h" in message) == (Level.WARN, True), message
    assert "`bsd archive push`" in str(hint)
    figures = UploadFigures(last_error="the bucket is full")
    assert "the bucket is full" in checked(bucket="s3://archive")["uploads"][0][1]


def test_the_catalogue(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    good = CatalogueState("db/bsd", 0.0, SchemaState(newest(), 1), True, TableRights())

    def told(ahead: float = 0.0, **members: Any) -> list[tuple[Level, str, str | None]]:
        def look(_: FleetSettings) -> CatalogueState:
            return good._replace(time=time.time() + ahead, **members)

        monkeypatch.setattr(checks, "look_at_catalogue", look)
        return checked(database="postgresql://db.invalid/bsd")["catalogue"]

    assert told() == [(Level.OK, f"db/bsd is reached, with schema {newest()}", None)]
    assert told(schema=SchemaState())[0][0] is Level.WARN
    assert told(schema=SchemaState(newest() + 1, 1))[0][0] is Level.WARN
    assert told(schema=SchemaState(newest() + 1, newest() + 1))[0][0] is Level.FAIL
    old = SchemaState(newest() - 1, 1) if newest() > 1 else SchemaState(-1, 0)
    assert told(schema=old, may_migrate=False)[0][0] is Level.FAIL
    assert told(schema=old)[0][0] is Level.OK
    assert told(rights=TableRights(not_written=("entries",)))[1][0] is Level.WARN
    assert told(rights=TableRights(("entries",), ("entries",)))[1][0] is Level.FAIL
    assert "3 min ahead" in told(ahead=180)[1][1]
    assert "3 min behind" in told(ahead=-180)[1][1]

    def down(_: FleetSettings) -> CatalogueState:
        raise TemporaryFailure("the catalogue at db/bsd: refused", hint="start it")

    monkeypatch.setattr(checks, "look_at_catalogue", down)
    refused = checked(database="postgresql://db.invalid/bsd")["catalogue"]
    assert refused == [(Level.FAIL, "the catalogue at db/bsd: refused", "start it")]
