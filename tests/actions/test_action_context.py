"""An action is called in this process, or by the executor of its context."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from bsd.actions.context import ActionContext, Executor
from bsd.actions.history import list_history
from bsd.actions.restore import restore
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName

NAME = SessionName("main", "s1")


def _context(root: Path, executor: Executor | None = None) -> ActionContext:
    layout = Layout(root)
    config = ConfigService(layout.config_file, create=False)
    return ActionContext(layout=layout, config=config, executor=executor)


def _double(context: ActionContext, number: int, *, more: int = 0) -> tuple[ActionContext, int]:
    return context, 2 * number + more


def test_without_an_executor_an_action_is_called_with_this_context(tmp_path: Path) -> None:
    context = _context(tmp_path)
    assert context.run(_double, 3, more=1) == (context, 7)
    assert context.query(_double, 3) == (context, 6)


def test_an_executor_is_given_the_function_and_whether_it_may_change_sessions(
    tmp_path: Path,
) -> None:
    sent: list[tuple[Any, ...]] = []

    def executor(
        context: ActionContext,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> str:
        sent.append((action, args, dict(kwargs), changes))
        return "done"

    context = _context(tmp_path, cast("Executor", executor))
    assert str(context.run(restore, NAME, "e1", keys=["text"])) == "done"
    assert str(context.query(list_history, NAME)) == "done"
    assert sent == [
        (restore, (NAME, "e1"), {"keys": ["text"]}, True),
        (list_history, (NAME,), {}, False),
    ]
