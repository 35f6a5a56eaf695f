"""What is wrong with an argument or option is said as it is everywhere else."""

from __future__ import annotations

import pytest

from bsd.doors.cli.main import run


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sessions", "--limit", "abc"], "--limit must be a whole number, 1 or more, not 'abc'"),
        (["sessions", "--limit", "0"], "--limit must be a whole number, 1 or more, not 0"),
        (["undo", "main/a", "x"], "OP must be a whole number, 1 or more, not 'x'"),
        (["extract", "--keep-recent", "x"], "--keep-recent must be a whole number, not 'x'"),
        (["memory", "store", "x", "--confidence", "y"], "--confidence must be a number, not 'y'"),
        (
            ["logs", "--level", "loud"],
            "--level must be trace, debug, info, warn or error, not 'loud'",
        ),
        (["workspace", "prune", "--max-count", "-1"], "--max-count must be a whole number, 0 or"),
    ],
)
def test_in_our_words(
    argv: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCLAW_ROOT", "/nowhere")
    assert run(argv) == 2
    told = capsys.readouterr().err
    assert f"Error: {message}" in told
    assert "Try:" in told
