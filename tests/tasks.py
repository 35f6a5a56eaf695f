"""The usual tasks of bsd's users, and the largest number of steps of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def task(name: str, *, most: int) -> Iterator[Callable[[str], None]]:
    """Count the steps of a task, which must end within `most` steps.

    Yields `step`. The test calls it before each action of the user: a click, a shortcut, a text
    typed and sent, a command with its answers. Looking at the screen is no step.
    """
    steps: list[str] = []

    def step(action: str) -> None:
        steps.append(action)
        assert len(steps) <= most, f"{name}: more than {most} steps: {steps}"

    yield step
