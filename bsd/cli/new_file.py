"""Writes an answer of a command to a new file that the user names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bsd.core.errors import Conflict, os_problem
from bsd.core.files import write_all


@contextmanager
def new_file(path: str) -> Iterator[Callable[[bytes], object]]:
    """Create a file and yield the function that appends to it; an error removes the file.

    Raises Conflict if the file exists, and BsdError if it cannot be written.
    """
    try:
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} already exists", hint="name a new file") from None
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error
    try:
        yield partial(write_all, target)
        os.fsync(target)
    except BaseException as error:  # do not leave half a copy
        os.unlink(path)
        if isinstance(error, OSError):
            raise os_problem(error, f"writing {path}") from error
        raise
    finally:
        os.close(target)
