"""Which files calls name, by the arguments of the tools of each program; and ends of paths."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.transcripts.agents.claude_code.format import CLAUDE_CODE
from bsd.transcripts.agents.codex import CODEX
from bsd.transcripts.agents.touched import PathPattern, normalised, touched_by, touched_files

PATCH = (
    "*** Begin Patch\n*** Update File: src/auth.py\n*** Move to: src/login.py\n@@\n-a\n+b\n"
    "*** Add File: docs/new page.md\n+x\n*** Delete File: old.py\n*** End Patch"
)
PATCHED = {
    "src/auth.py": "changed",
    "src/login.py": "changed",
    "docs/new page.md": "changed",
    "old.py": "changed",
}
CALLS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("Read", {"file_path": "/p/src/auth.py", "offset": 3}, {"/p/src/auth.py": "read"}),
    ("read", {"path": "./src//auth.py"}, {"src/auth.py": "read"}),
    ("Edit", {"file_path": "/p/a.py", "old_string": "b.py"}, {"/p/a.py": "changed"}),
    ("write", {"path": "x/../a.py", "content": "open c.py"}, {"a.py": "changed"}),
    ("NotebookEdit", {"notebook_path": "/p/n.ipynb"}, {"/p/n.ipynb": "changed"}),
    (
        "mcp__files__read_many_files",
        {"paths": ["a.py", "b.py", 5]},
        {"a.py": "read", "b.py": "read"},
    ),
    ("str_replace_based_edit_tool", {"command": "view", "path": "/a.py"}, {"/a.py": "read"}),
    ("str_replace_based_edit_tool", {"command": "create", "path": "/a.py"}, {"/a.py": "changed"}),
    ("Grep", {"pattern": "x", "path": "/p/src/auth.py"}, {"/p/src/auth.py": "named"}),
    ("apply_patch", {"input": PATCH}, PATCHED),
    ("shell", {"command": ["apply_patch", PATCH]}, PATCHED),
    ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}, PATCHED),
    ("exec", {"input": f"await apply_patch(`{PATCH}`)"}, PATCHED),
    ("exec", {"input": '"*** Update File: a.py\\n@@\\n"'}, {"a.py": "changed"}),
    ("apply_patch", {"patch": "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n"}, {"a.py": "changed"}),
    (
        "bash",
        {"command": "cd /p && sed -n '1,20p' src/auth.py | head > 'app/(x)/[id]/page.tsx'"},
        {"src/auth.py": "named", "app/(x)/[id]/page.tsx": "named"},
    ),
    ("bash", {"command": r"cat app/\(x\)/page.tsx"}, {"app/(x)/page.tsx": "named"}),
    ("bash", {"command": "python - <<'E'\nimport json\njson.loads(x)\nE"}, {}),
    ("bash", {"command": "curl https://a.example/b.js -o --x.y; ls *.ts; make 3.11"}, {}),
    ("Bash", {"command": "cat a.py", "description": "reads b.py"}, {"a.py": "named"}),
    ("read", {"path": "a.py", "file": ["a.py"]}, {"a.py": "read"}),
    ("read", {"path": "a\x1b[31m.py"}, {}),
    ("read", {"path": "../.."}, {}),
    ("read", {"path": 5, "file": None}, {}),
]


@pytest.mark.parametrize(("tool", "arguments", "wanted"), CALLS)
def test_files_of_a_call(tool: str, arguments: dict[str, Any], wanted: dict[str, str]) -> None:
    assert dict(touched_files(tool, arguments)) == wanted


def test_arguments_that_are_a_text_are_read() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "shell"}
    entry: dict[str, Any] = {"type": "response_item", "payload": call}
    for arguments, wanted in (
        ('{"command":["cat","a.py"]}', [("a.py", "named")]),
        ('{"command":["cat","a.py"]', [("a.py", "named")]),  # cut off: as good as a command
        ("5", []),
    ):
        entry["payload"]["arguments"] = arguments
        [found] = CODEX.info(entry).calls
        assert touched_by(entry, found) == wanted


def test_the_original_is_asked_for_a_patch_that_is_out_of_its_entry() -> None:
    def entry(patch: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": "c", "name": "apply_patch", "input": {"patch": patch}}
        return {"type": "assistant", "message": {"role": "assistant", "content": [block]}}

    lean = entry("[[extracted-e1]]")
    [call] = CLAUDE_CODE.info(lean).calls
    assert touched_by(lean, call) == []
    assert dict(touched_by(lean, call, lambda: entry(PATCH))) == PATCHED
    whole = entry("nothing")
    assert touched_by(whole, call, lambda: entry(PATCH)) == [], "nothing is out of it"


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("auth.py", "auth.py", True),
        ("auth.py", "/p/src/auth.py", True),
        ("Src/AUTH.py", "/p/src/auth.py", True),
        ("auth.py", "/p/src/oauth.py", False),
        ("c/auth.py", "/p/src/auth.py", False),
        ("./src/auth.py", "src/auth.py", True),
        ("/src/auth.py", "/p/src/auth.py", False),
        ("/p/src/auth.py", "/p/src/auth.py", True),
        ("/w/src/auth.py", "src/auth.py", True),  # the session began in /w
        ("/p/src/auth.py", "src/auth.py", False),
        ("auth*", "/p/src/auth_test.py", True),
        ("src/auth*", "/p/src/auth.py", True),
        ("lib/auth*", "/p/src/auth.py", False),
        ("auth*", "auth/x.py", False),
        ("", "auth.py", False),
        ("..", "auth.py", False),
    ],
)
def test_the_end_of_a_path(pattern: str, path: str, fits: bool) -> None:
    assert PathPattern(pattern).matches(path, "/w") is fits


def test_endless_texts_take_no_time() -> None:
    """Each would take minutes if every character began a new look at it."""
    long = "a" * 200_000
    assert normalised(long) == ""
    for text in (long, "'" * 200_000, "*** Add File: " * 20_000, "\\(" * 100_000, "+++ " * 50_000):
        touched_files("apply_patch", {"patch": text})
        touched_files("bash", {"command": text})
