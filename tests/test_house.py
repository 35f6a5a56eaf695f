"""Rules of the code base that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import bsd
from bsd.transcripts.agents.programs import KINDS

_TOP = Path(__file__).parents[1]
_PACKAGE = _TOP / "bsd"
_MODULES = sorted(_PACKAGE.rglob("*.py"))
_MOST_LINES = 600
_AT_THE_TOP = {
    *("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "requirements.lock"),
    *("bsd", "config", "contrib", "packaging", "tests"),
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def _tracked() -> list[str]:
    """Return the files under version control; in an unpacked archive, all files."""
    try:
        done = subprocess.run(
            ["git", "-c", f"safe.directory={_TOP}", "-C", str(_TOP), "ls-files", "-z"],
            check=True,
            capture_output=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return [str(path.relative_to(_TOP)) for path in _TOP.rglob("*") if path.is_file()]
    return [name for name in done.stdout.decode().split("\0") if name]


def _tests() -> list[Path]:
    """Return the modules below `tests/`, without installed programs' own modules."""
    found = [_TOP / name for name in _tracked() if re.fullmatch(r"tests/.*\.py", name)]
    return [path for path in found if "node_modules" not in path.parts and path.exists()]


def test_where_24_hours_are_told_the_archive_is_told_too() -> None:
    told = 0
    for name in ("README.md", "config/bsd.toml", "contrib/openclaw/agent-instructions.md"):
        for part in re.split(r"\n#?\n", (_TOP / name).read_text(encoding="utf-8")):
            if "24 hours" in part and re.search(r"retention|byte for byte", part):
                told += 1
                assert re.search(r"archive|compressed", part), (name, part)
    assert told >= 3


def test_no_module_is_too_long_to_read() -> None:
    long = {
        str(path.relative_to(_TOP)): lines
        for path in (*_MODULES, *_tests())
        if (lines := path.read_bytes().count(b"\n")) > _MOST_LINES
    }
    assert long == {}


def test_no_two_modules_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in _tests() if path.name.startswith("test_"))
    assert {name for name, times in names.items() if times > 1} == set()


def test_the_top_level_holds_only_what_it_should() -> None:
    names = {Path(name).parts[0] for name in _tracked()}
    assert {name for name in names if not name.startswith(".")} <= _AT_THE_TOP


def test_the_changelog_tells_of_this_version() -> None:
    assert f"\n## [{bsd.__version__}] - " in (_TOP / "CHANGELOG.md").read_text(encoding="utf-8")


def _writes_to_stdout(path: Path) -> list[str]:
    return [
        f"{path.relative_to(_TOP)}:{node.lineno}"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"print", "click.echo", "sys.stdout.write"}
    ]


def test_only_the_command_line_writes_to_stdout() -> None:
    doors = [p for p in _MODULES if "cli" in p.parts or p.name == "__main__.py"]
    others = [p for p in _MODULES if p not in doors]
    assert [place for path in others for place in _writes_to_stdout(path)] == []
    assert any(_writes_to_stdout(path) for path in doors), "the rule no longer sees anything"


def test_the_lock_file_names_versions_and_no_network() -> None:
    lines = (_TOP / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if pin.count("==") != 1 or "/" in pin or "-i" in pin.split()] == []


def test_values_are_bound_by_place_or_by_name() -> None:
    """`?1` with a sequence is deprecated since Python 3.12, and an error if warnings are errors."""
    statements = re.compile(r"\b(?:SELECT|WHERE|VALUES|AND|SET)\b[^#]*\?[1-9]")
    found = [str(path) for path in _MODULES if statements.search(path.read_text(encoding="utf-8"))]
    assert found == []


# Phrases that no text for users may contain: retention and the archive's settings do delete.
_TOO_MUCH = re.compile(
    r"without (ever )?losing a (single )?byte|never (lose|lost)|puts? every value back"
    r"|(nothing|no byte) (of \w+ )?(is|are) (ever )?(lost|thrown away)|any value comes back",
    re.IGNORECASE,
)
_FOR_USERS = (
    "README.md",
    "pyproject.toml",
    "config/",
    "contrib/",
    "packaging/",
    "bsd/cli/",
    "bsd/http/",
)


def test_no_text_for_users_promises_what_retention_does_not_keep() -> None:
    told = []
    for name in _tracked():
        if not name.startswith((*_FOR_USERS, "bsd/__init__.py")) or name.endswith(".png"):
            continue
        text = " ".join((_TOP / name).read_text(encoding="utf-8").split()).replace("\\-", "-")
        told += [f"{name}: {found[0]}" for found in _TOO_MUCH.finditer(text)]
    assert told == []


def test_who_is_told_of_exact_returns_is_told_for_how_long() -> None:
    for name in ("README.md", "contrib/man/bsd.1", "packaging/debian/control"):
        text = " ".join((_TOP / name).read_text(encoding="utf-8").split())
        promise = text.index("comes back")
        assert "24 hours" in text[promise : promise + 300], name
    help_page = (_PACKAGE / "cli" / "main.py").read_text(encoding="utf-8")
    assert "24 hours by default" in help_page


# One program's names for its files, keys and tools: only that program's own module knows them.
_THEIRS = re.compile(
    r"sessions\.json|\.lock$|rollout-|\.(?:reset|deleted|bak)[.-]|\.(?:checkpoint|trajectory)\b|-topic-"
    r"|\b(?:uuid|parentUuid|leafUuid|parentId|firstKeptEntryId|session_meta|forked_from_id)\b"
    r"|\b(?:parentSessionId|parentSession|sessionFile|sessionId|payload|rollout|stopReason)\b"
    r"|\b(?:toolCall|toolCallId|toolUseId|tool_use|tool_use_id|tool_call_id|function_call)\b"
    r"|\b(?:bashExecution|branchSummary|thinkingSignature|session_info|custom_message)\b"
    r"|^(?:claude[-_]code|codex|pi)$"
    r"|^(?:exec|bash|Bash|shell|exec_command|local_shell_call|apply_patch|write_file|create_file)$"
)
# The places that may use these words all the same, and the reason.
_MAY_SAY = {
    "bsd/sample.py": (r".*", "it writes sessions as OpenClaw does, to try bsd on"),
    "bsd/fleet/catalogue/": (r".*digest uuid.*", "a type of PostgreSQL"),
    "bsd/cli/": (r".*sessions\.json.*", "people know the file by that name"),
    "bsd/actions/": (r".*sessions\.json.*", "people know the file by that name"),
    "bsd/cli/main.py": (r"bash", "the shell whose tab key it serves"),
    "bsd/core/audit.py": (r"sessionId", "a member of bsd's own audit log"),
    "bsd/mcp/inband.py": (r"sessionId", "a member of bsd's own audit log"),
    "bsd/core/": (r".*\.lock", "bsd's own locks"),
}


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts and bytes in a module's code, without docstrings."""
    tree = _tree(path)
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in told:
            if isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.lineno, node.value


def _may_say(name: str, text: str) -> bool:
    allowed = (words for place, (words, _) in _MAY_SAY.items() if name.startswith(place))
    return any(re.fullmatch(words, text, re.DOTALL) for words in allowed)


def test_only_agents_know_what_their_programs_call_things() -> None:
    inside = [path for path in _MODULES if path.is_relative_to(_PACKAGE / "transcripts" / "agents")]
    said = [
        f"{name}:{line}: {text!r}"
        for path in _MODULES
        if path not in inside
        for name in [str(path.relative_to(_TOP))]
        for line, text in _texts(path)
        if _THEIRS.search(text) and not _may_say(name, text)
    ]
    assert said == []
    assert any(_THEIRS.search(text) for path in inside for _, text in _texts(path))


def test_nobody_but_agents_imports_one_of_them() -> None:
    """Other packages use `bsd.transcripts.agents.programs`, `program` and `format` instead."""
    for kind, module in KINDS.items():
        assert module.startswith(f"bsd.transcripts.agents.{kind.replace('-', '_')}")
    one = re.compile(
        r"\s*(?:from|import) bsd\.transcripts\.agents\.(?:openclaw|claude_code|codex|pi)\b"
    )
    importing = {
        str(path.relative_to(_TOP))
        for path in _MODULES
        if any(map(one.match, path.read_text(encoding="utf-8").splitlines()))
    }
    assert {Path(name).parts[1:3] for name in importing} == {("transcripts", "agents")}


def test_no_class_name_stands_in_two_modules() -> None:
    found = Counter(
        node.name
        for path in _MODULES
        for node in _tree(path).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, times in found.items() if times > 1} == set()


def test_imports_stand_at_the_top_but_for_few() -> None:
    """DESIGN §2: each inner import has its reason beside it, and their number must not grow."""
    inside = {
        (path, one.lineno)
        for path in _MODULES
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for one in ast.walk(function)
        if isinstance(one, ast.Import | ast.ImportFrom)
    }
    assert 0 < len(inside) < 45
