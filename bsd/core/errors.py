"""The hierarchy of errors; each class has an exit code and an HTTP status, each error a hint."""

from __future__ import annotations

import errno
from typing import Any, ClassVar, NamedTuple


class FieldError(NamedTuple):  # importing dataclasses would take a sixth of `bsd status`'s time
    """The problem with a field of an input; `field` is spelled as the user wrote it."""

    field: str
    message: str


class BsdError(Exception):
    """An error that a user can understand and act on: what happened, where, and a hint.

    `exit_code` is the exit code of the process (SPEC §9), `status` the HTTP status (SPEC §8).
    """

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(
        self, message: str, *, hint: str | None = None, errors: tuple[FieldError, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.errors = errors

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error for another process, whatever arguments its class's `__init__` takes."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[BsdError], args: tuple[object, ...], members: dict[str, object]
) -> BsdError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


class Invalid(BsdError):
    """The input is wrong; bsd has changed no data."""

    exit_code = 2
    status = 400


class NotFound(BsdError):
    """The named session, entry or key does not exist."""

    status = 404


class Conflict(BsdError):
    """The state of a session or file does not allow the operation."""

    status = 409


# The hint about files in a form that bsd does not know.
UPDATE_BSD = "update bsd (pip install -U brainsurgeond); until then nothing in it is changed"


class LeftAlone(Conflict):
    """The transcript must not be edited by bsd; the message gives the reason."""


class UnknownForm(LeftAlone):
    """A program that bsd knows has written the transcript in a form that bsd does not know."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or UPDATE_BSD)


class NotRecognised(LeftAlone):
    """No line of the transcript is a message in a form that bsd knows."""


class Busy(Conflict):
    """A session is in use; the call may succeed later, after `again_in` seconds if known."""

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str | None = None, again_in: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.again_in = again_in


class Paused(Busy):
    """The user has paused the session; bsd does not edit it until the pause ends."""


class Unavailable(BsdError):
    """A resource that bsd needs is not available (disk full, unsupported file system)."""

    exit_code = 69
    status = 503


class TemporaryFailure(BsdError):
    """The operation failed for a temporary reason and changed no data."""

    exit_code = 75
    status = 503


class Forbidden(BsdError):
    """The operating system or bsd's own check of paths refuses access."""

    exit_code = 77
    status = 403


class ConfigError(BsdError):
    """Settings or config.json cannot be used."""

    exit_code = 78
    status = 400


def os_problem(error: OSError | BsdError, doing: str) -> BsdError:
    """Convert an OSError to an error that a user can act on; a BsdError is returned unchanged.

    Args:
        doing: the failed operation, such as "writing /a/b".
    """
    return error if isinstance(error, BsdError) else _of_the_system(error, doing)


def _of_the_system(error: OSError, doing: str) -> BsdError:
    text = f"{doing}: {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return Unavailable(text, hint="free some space on this disk and run it again")
        case errno.EROFS:
            return Forbidden(text, hint="remount the file system writable")
        case errno.EACCES | errno.EPERM:
            usual = (
                "run as the owner of these files, or correct their permissions; "
                "`bsd doctor` lists those that belong to other users"
            )
            return Forbidden(text, hint=getattr(error, "hint", usual))
        case errno.EISDIR:
            return Conflict(text, hint="a file is required here, not a directory")
        case errno.ELOOP | errno.ENXIO:
            return Forbidden(text, hint="a plain file is required here; move the other one away")
        case errno.EFBIG:
            return Unavailable(text, hint="the file is too large for its kind; move it away")
        case errno.EMFILE | errno.ENFILE:
            return Unavailable(text, hint="raise the limit of open files (ulimit -n)")
        case errno.EIO:
            return Unavailable(
                text,
                hint="the disk has an error there: see the system log; if the error persists, "
                "restore the file from a backup",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return NotFound(text, hint="it may have just been moved or deleted; run it again")
        case _:
            return Unavailable(text, hint="see the system log for what is wrong with this disk")
