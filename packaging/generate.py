"""Writes files that are made from others.

They are the man page, the completions, config.json, the skill, the hook script, and the pages of
the documents that describe settings, commands and routes.

python packaging/generate.py           writes them into contrib/ and config/
python packaging/generate.py --check   lists those that are out of date; exit code 1
"""

from __future__ import annotations

import sys
from pathlib import Path

from api_page import api_page, objects_page, openapi_document
from click.shell_completion import get_completion_class
from command_page import command_page
from man_page import man_page
from settings_page import settings_page

from bsd.cli.main import COMPLETE, bsd
from bsd.core.config_file import default_text

_TOP = Path(__file__).parents[1]
_CONTRIB = _TOP / "contrib"
_DOCS = _CONTRIB / "docs"
_PACKAGE = _TOP / "bsd"
_HOOK = _PACKAGE / "setup" / "claude_hook.py"
_COMPLETIONS = {"bash": "bsd.bash", "zsh": "_bsd", "fish": "bsd.fish"}


def generated() -> dict[Path, str]:
    """Return the path and the content of each file."""
    files = {
        _CONTRIB / "man" / "bsd.1": man_page(),
        _TOP / "config" / "config.json": default_text(),
        _CONTRIB / "claude-code" / "hooks" / _HOOK.name: _HOOK.read_text(encoding="utf-8"),
    }
    document = openapi_document()
    files |= {
        _DOCS / "settings.md": settings_page(),
        _DOCS / "command-line.md": command_page(),
        _DOCS / "http-api.md": api_page(document),
        _DOCS / "http-api-objects.md": objects_page(document),
    }
    for path in (_PACKAGE / "setup" / "skills" / "openclaw").iterdir():
        skill = _CONTRIB / "openclaw" / "skills" / "brainsurgeon" / path.name
        files[skill] = path.read_text(encoding="utf-8")
    for shell, name in _COMPLETIONS.items():
        files[_CONTRIB / "completions" / name] = _completion(shell)
    return files


def _completion(shell: str) -> str:
    """Return a shell's completion script; it calls bsd, so it changes only with click."""
    made_by = get_completion_class(shell)
    assert made_by is not None, shell
    completion = made_by(bsd, {}, "bsd", COMPLETE)
    # Not `source()`: for bash it first checks the version of this machine's bash.
    source = completion.source_template % completion.source_vars()
    return "\n".join(line.rstrip() for line in source.strip("\n").split("\n")) + "\n"


def main() -> int:
    files = generated()
    stale = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path} is not up to date; run `make generated`")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
