"""One tree of errors; each knows its exit code, its HTTP status and a hint."""

from __future__ import annotations

import errno
from typing import Any, ClassVar, NamedTuple


class FieldError(NamedTuple):  # a dataclass would cost `bsd status` a sixth of its time
    """The problem with one field of an input, named as the user wrote it."""

    field: str
    message: str


class BsdError(Exception):
    """An error that a user can understand and act on: the event, the place, and a hint.

    `exit_code` is the process's (SPEC §9), `status` the HTTP answer's (SPEC §8).
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
        """Between our processes the error stays the same, whatever arguments its class takes."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[BsdError], args: tuple[object, ...], members: dict[str, object]
) -> BsdError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


class Invalid(BsdError):
    """The input itself is wrong; nothing was done."""

    exit_code = 2
    status = 400


class NotFound(BsdError):
    """The named session, entry or key does not exist."""

    status = 404


class Conflict(BsdError):
    """The thing is not in a state in which this can be done."""

    status = 409


class LeftAlone(Conflict):
    """A transcript that is not ours to edit; the message says why."""


class Busy(Conflict):
    """A session is in use; the same call may succeed later, in `again_in` seconds if known."""

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str | None = None, again_in: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.again_in = again_in


class Paused(Busy):
    """A user has paused the session: it is not edited until the pause ends."""


class Unavailable(BsdError):
    """Something bsd needs is not there now (disk full, unsupported file system)."""

    exit_code = 69
    status = 503


class TemporaryFailure(BsdError):
    """It failed for a passing reason and left everything as it was."""

    exit_code = 75
    status = 503


class Forbidden(BsdError):
    """The operating system or our own path safety refuses access."""

    exit_code = 77
    status = 403


class ConfigError(BsdError):
    """Settings or config.json cannot be used."""

    exit_code = 78
    status = 400


def os_problem(error: OSError | BsdError, doing: str) -> BsdError:
    """Turn an OSError into an error a user can act on; `doing` reads like "writing /a/b".

    One that is such an error already stays as it is.
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
                "run as the owner of these files, or mend their permissions; "
                "`bsd doctor` names those that belong to somebody else"
            )
            return Forbidden(text, hint=getattr(error, "hint", usual))
        case errno.EISDIR:
            return Conflict(text, hint="a file is wanted here, not a directory")
        case errno.ELOOP | errno.ENXIO:
            return Forbidden(text, hint="a plain file is wanted here; move away what there is")
        case errno.EFBIG:
            return Unavailable(text, hint="nothing of this kind is so large; move it away")
        case errno.EMFILE | errno.ENFILE:
            return Unavailable(text, hint="raise the limit of open files (ulimit -n)")
        case errno.EIO:
            return Unavailable(
                text,
                hint="the disk fails there: see the system log, and bring the file back "
                "from a backup if it stays so",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return NotFound(text, hint="it may have been moved or deleted meanwhile; run it again")
        case _:
            return Unavailable(text, hint="see the system log for what is wrong with this disk")
