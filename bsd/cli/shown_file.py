"""The output of `bsd show --file`: a file as the model of a session saw it."""

from __future__ import annotations

from collections.abc import Iterator

from bsd.actions.files_touched import FileTouch, ShownFile
from bsd.cli.output import counted, minute, say, say_wrapped
from bsd.core.formatting import document

_SHORT = 100  # characters; longer arguments get lines of their own


def tell_file(found: ShownFile) -> None:
    for touch in found.touches:
        _print_touch(touch)
    say(f"{counted(len(found.touches), 'call')} in {found.session}")


def _print_touch(touch: FileTouch) -> None:
    time = minute(touch.time) if touch.time else ""
    badge = "📎 extracted" if touch.extracted or touch.result_extracted else ""
    head = (f"#{touch.index}", touch.use.value, touch.tool, ", ".join(touch.paths), time, badge)
    say_wrapped("  ".join(filter(None, head)), style="1")
    for line in _arguments(touch):
        say(line)
    if touch.unavailable:
        say(f"  {touch.unavailable}")
    if touch.result_index is not None:
        say(f"→ #{touch.result_index}")
        say((touch.result_unavailable or touch.result or "(nothing)").removesuffix("\n"))
    say()


def _arguments(touch: FileTouch) -> Iterator[str]:
    """Yield the arguments except paths; long and multi-line ones are below their names."""
    for key, value in touch.arguments.items():
        text = value if isinstance(value, str) else document(value).decode("utf-8", "replace")
        if text in touch.paths:
            continue
        if "\n" in text or len(text) > _SHORT:
            yield f"  {key}:\n{text}"
        else:
            yield f"  {key}: {text}"
