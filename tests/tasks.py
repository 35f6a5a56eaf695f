"""Tasks that users come to bsd with, and how many steps each may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def task(name: str, *, most: int) -> Iterator[Callable[[str], None]]:
    """A task that ends within `most` steps.

    Yields `step`, which is called before each step with the user's action: a click, a shortcut,
    a text that is typed and sent, a command with its answers. Looking is no step.
    """
    steps: list[str] = []

    def step(action: str) -> None:
        steps.append(action)
        assert len(steps) <= most, f"{name}: more than {most} steps: {steps}"

    yield step
