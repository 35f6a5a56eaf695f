"""A bucket that is a directory (`file://`), such as a mounted share of other machines.

Objects are files with mode 0600 in directories with mode 0700, durable when a call returns. A new
object appears under its key at once and whole, by a hard link to a finished file. On a file system
without links it is renamed there instead; then two machines that create the same key in the same
moment may replace each other's object.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bsd.bucket.errors import (
    BucketRefused,
    BucketUnreachable,
    NoBucket,
    NoObject,
    ObjectDamaged,
    OtherContent,
)
from bsd.bucket.objects import LARGEST_OBJECT, Bandwidth, Bucket, ListedObject, RightCheck
from bsd.core.errors import BsdError
from bsd.core.files import (
    create_private,
    make_private_dir,
    open_plain,
    read_plain,
    sync_dir,
    write_all,
)

# Files that are being written. A crash leaves them; they go when they are a day old.
_UNFINISHED = ".unfinished"
_OLD_SECONDS = 86_400
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}
_FULL = {errno.ENOSPC, errno.EDQUOT}


class DirectoryBucket(Bucket):
    """Objects in the files of a directory, which must exist."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bandwidth = Bandwidth()
        self._top = Path(unquote(urlsplit(url).path))
        self._is_swept = False

    def put_new(self, key: str, data: bytes | bytearray) -> bool:
        try:
            return self._write(key, data, replace=False)
        except FileExistsError:
            pass
        if self.get(key, max(LARGEST_OBJECT, len(data))) == data:
            return False
        raise OtherContent(f"creating {self.url}/{key}: it is there with another content")

    def put(self, key: str, data: bytes | bytearray) -> None:
        self._write(key, data, replace=True)

    def _write(self, key: str, data: bytes | bytearray, *, replace: bool) -> bool:
        path = self._path(key)
        doing = f"creating {self.url}/{key}"
        try:
            self._require_top()
            make_private_dir(path.parent)
            unfinished = make_private_dir(self._top / _UNFINISHED)
            self._sweep(unfinished)
            temporary = unfinished / os.urandom(12).hex()
            try:
                file = create_private(temporary)
                try:
                    os.fchmod(file, 0o600)
                    write_all(file, data)
                    os.fsync(file)
                finally:
                    os.close(file)
                _name(temporary, path, replace=replace)
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
            sync_dir(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._problem(error, doing) from None
        return True

    def _sweep(self, directory: Path) -> None:
        """Remove the temporary files that crashes have left."""
        if self._is_swept:
            return
        self._is_swept = True
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_SECONDS:
                    os.unlink(entry.path)

    def get(self, key: str, most: int = LARGEST_OBJECT) -> bytes:
        doing = f"reading {self.url}/{key}"
        try:
            return read_plain(self._path(key), most)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise ObjectDamaged(f"{doing}: it is larger than {most} bytes") from None
            raise self._problem(error, doing) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        doing = f"reading {self.url}/{key}"
        try:
            file = open_plain(self._path(key))
            try:
                data = os.pread(file, length, start)
                while len(data) < length and (piece := os.pread(file, length, start + len(data))):
                    data += piece
            finally:
                os.close(file)
        except OSError as error:
            raise self._problem(error, doing) from None
        if len(data) < length:
            raise ObjectDamaged(f"{doing}: it is shorter than it was")
        return data[:length]

    def list_keys(self, prefix: str) -> Iterator[ListedObject]:
        top = self._path(prefix) if prefix else self._top
        try:
            self._require_top()
            yield from self._walk(top, f"{prefix}/" if prefix else "")
        except OSError as error:
            raise self._problem(error, f"listing {self.url}/{prefix}") from None

    def _walk(self, directory: Path, prefix: str) -> Iterator[ListedObject]:
        try:
            with os.scandir(directory) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != _UNFINISHED:
                    yield from self._walk(directory / entry.name, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    modified = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield ListedObject(f"{prefix}{entry.name}", status.st_size, modified)

    def list_directories(self, prefix: str) -> list[str]:
        try:
            self._require_top()
            with os.scandir(self._path(prefix) if prefix else self._top) as found:
                names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._problem(error, f"listing {self.url}/{prefix}") from None
        return sorted(name for name in names if name != _UNFINISHED)

    def delete(self, keys: Iterable[str]) -> None:
        directories: set[Path] = set()
        for key in keys:
            path = self._path(key)
            try:
                self._require_top()
                path.unlink()
                directories.add(path.parent)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._problem(error, f"deleting {self.url}/{key}") from None
        for directory in directories:
            with suppress(OSError):
                sync_dir(directory)
                directory.rmdir()  # the last object has gone

    def keeps_versions(self) -> bool | None:
        return False

    def check_rights(self) -> list[RightCheck]:
        return check_each(self)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in {"", ".", "..", _UNFINISHED} or "\0" in part for part in parts):
            raise NoObject(f"{self.url}/{key} is not a key of an object")
        return self._top.joinpath(*parts)

    def _require_top(self) -> None:
        if not self._top.is_dir():
            raise NoBucket(
                f"the directory {self._top} of the bucket does not exist",
                hint=f"mount it, or make it: mkdir -m 700 {self._top}",
            )

    def _problem(self, error: OSError, doing: str) -> BsdError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            try:
                self._require_top()
            except NoBucket as problem:
                return problem
            return NoObject(f"{doing}: it is not there")
        text = f"{doing}: {error.strerror or error}"
        if error.errno in _FULL:
            return BucketUnreachable(text, hint="make room there")
        if error.errno in _REFUSED:
            return BucketRefused(text, hint=f"let bsd's user write to {self._top}")
        return BucketUnreachable(text, hint="see the system log for what is wrong with this disk")


def _name(temporary: Path, path: Path, *, replace: bool) -> None:
    """Give a finished file its name; raises FileExistsError if it is taken and not replaced."""
    if replace:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "it exists", str(path)) from None
        os.rename(temporary, path)


def check_each(bucket: Bucket) -> list[RightCheck]:
    """Try each operation on an object of a few bytes; see `Bucket.check_rights`."""
    key, data = f"bsd-check-{os.urandom(8).hex()}", b"bsd checks what it may do here\n"
    checks: list[RightCheck] = []

    def check(operation: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except (BucketUnreachable, NoBucket):
            raise
        except BsdError as error:
            checks.append(RightCheck(operation, error.message, error.hint))
        else:
            checks.append(RightCheck(operation))

    check("list", lambda: next(bucket.list_keys("tombstones"), None))
    check("create", lambda: bucket.put_new(key, data))
    if checks[-1].problem is None:
        check("read", lambda: bucket.get_range(key, 0, len(data)))
        check("delete", lambda: bucket.delete([key]))
    return checks
