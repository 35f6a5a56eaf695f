"""A limit on the time that a caller waits for a bucket or a database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from bsd.core.errors import TemporaryFailure

_T = TypeVar("_T")

ANSWER_SECONDS = 10.0


def within(seconds: float, what: str, call: Callable[[], _T]) -> _T:
    """Return the answer of `call`, which another thread makes.

    A call that takes longer continues without its caller; it does not keep the process from ending.

    Args:
        seconds: how long the caller waits.
        what: what is asked, for the error: "the database".

    Raises:
        TemporaryFailure: there is no answer in time.
    """
    answers: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=work, name="bsd-fleet-ask", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TemporaryFailure(
            f"{what} has not answered within {seconds:.0f} s",
            hint="check that it runs, and that this machine reaches it; then run this again",
        )
    return answers[0]
