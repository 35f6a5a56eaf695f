"""Root on another user's root works as that user: the owner can use every file that root has
made.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from bsd.cli.call import BsdCommand, Call
from bsd.cli.commands import COMMANDS
from bsd.cli.main import bsd as all_commands
from bsd.maintenance.file_owners import wrongly_owned
from tests.cli.conftest import open_up
from tests.commands import Ended
from tests.needs import NOBODY, python_for_all
from tests.waiting import DEADLINE_SECONDS

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
_NAMELESS = 54321


_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@dataclass(frozen=True)
class Program:
    """`bsd --root ROOT …` by a Python that every user may read; as root, unless prefixed."""

    root: Path | None
    prefix: tuple[str, ...] = ()

    def __call__(self, *arguments: str, **env: str) -> Ended:
        python, path = python_for_all()
        root = () if self.root is None else ("--root", str(self.root))
        path = os.pathsep.join(filter(None, (env.pop("PYTHONPATH", ""), path)))
        done = subprocess.run(
            [*self.prefix, python, "-m", "bsd", *root, *arguments],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=DEADLINE_SECONDS,
            cwd="/",
            env=os.environ | {"PYTHONPATH": path} | env,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)


def _own(path: Path, uid: int) -> None:
    """Give all files there to a user and a group."""
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)


def _owners(path: Path) -> set[int]:
    return {each.lstat().st_uid for each in (path, *path.rglob("*"))}


@pytest.fixture
def theirs(root: Path) -> Path:
    """A root that belongs to another user, in a directory closed to others."""
    open_up(root)
    _own(root, NOBODY)
    return root


def _as_nobody(theirs: Path, *arguments: str) -> Ended:
    home = {"HOME": str(theirs), "XDG_CONFIG_HOME": str(theirs / "none")}
    return Program(theirs, _AS_NOBODY)(*arguments, **home)


@needs_root
def test_what_root_does_there_its_owner_can_go_on_with(theirs: Path) -> None:
    Program(theirs)("config", "set", "min_value_length", "100")
    extracted = Program(theirs)("extract")
    assert extracted.code == 0, extracted.err
    assert f"(running as nobody, who owns {theirs})" in extracted.err
    assert Program(theirs)("delete", "main/beta", "--yes").code == 0
    assert Program(theirs)("memory", "store", "We use tabs").code == 0
    assert Program(theirs)("search", "the").code == 0
    assert Program(theirs)("doctor", "--json").code == 0
    assert {path.name for path in theirs.iterdir()} >= {
        *(".brainsurgeon", "extracted", "logs", "memory", "trash"),
    }
    assert _owners(theirs) == {NOBODY}
    for arguments in (
        ["verify"],
        ["config", "set", "min_value_length", "200"],
        ["trash", "list"],
        ["memory", "recall", "tabs"],
        ["restore-all", "--yes"],
    ):
        ended = _as_nobody(theirs, *arguments)
        assert ended.code == 0, ended.err
        assert "running as" not in ended.err


@needs_root
def test_an_owner_without_a_name(theirs: Path) -> None:
    _own(theirs, _NAMELESS)
    ended = Program(theirs)("extract", "main/alpha")
    assert ended.code == 0, ended.err
    assert f"as user {_NAMELESS}, " in ended.err
    assert _owners(theirs) == {_NAMELESS}


@needs_root
def test_roots_own_root_is_worked_on_by_root(root: Path) -> None:
    ended = Program(root)("extract", "main/alpha")
    assert (ended.code, ended.err) == (0, "")
    assert _owners(root) == {0}


@needs_root
def test_the_option_counts_wherever_it_stands(theirs: Path, tmp_path: Path) -> None:
    elsewhere = Program(tmp_path)
    ended = elsewhere("config", "set", "keep_recent", "4", "--root", str(theirs))
    assert ended.code == 0, ended.err
    assert _owners(theirs) == {NOBODY}


@needs_root
def test_nothing_of_roots_rights_is_left(theirs: Path, tmp_path: Path) -> None:
    """An editor is started with the rights of the call."""
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ncat /proc/self/status > {theirs}/rights\nexit 1\n")
    editor.chmod(0o755)
    entry = Program(theirs)("--json", "show", "main/alpha").document["entries"][5]["id"]
    Program(theirs)("edit", "main/alpha", entry, EDITOR=str(editor), VISUAL=str(editor))
    said = dict(re.findall(r"^(\w+):\t(.*)$", (theirs / "rights").read_text(), re.MULTILINE))
    assert set(said["Uid"].split()) == set(said["Gid"].split()) == {str(NOBODY)}
    assert {int(said[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert "0" not in said["Groups"].split()


@needs_root
def test_a_root_that_is_to_be_made_is_its_owners(theirs: Path, tmp_path: Path) -> None:
    home = theirs / "home"
    (home / "projects").mkdir(parents=True)
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home}/projects"\n')
    _own(home, NOBODY)
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
    env = {"HOME": str(home), **dict.fromkeys(names, "")}
    ended = Program(None)("extract", **env)
    assert ended.code == 0, ended.err
    assert _owners(home / ".local") == {NOBODY}


@needs_root
def test_a_link_of_somebody_elses_leads_root_nowhere(theirs: Path, tmp_path: Path) -> None:
    """A user who can plant a link where root is called would choose the directory that root
    changes.
    """
    link = theirs / "link"
    (tmp_path / "roots").mkdir()
    for target in (tmp_path / "roots", theirs):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        os.chown(link, _NAMELESS, _NAMELESS, follow_symlinks=False)
        ended = Program(link)("config", "set", "keep_recent", "4")
        assert ended.code == 77
        assert f"link of user {_NAMELESS}" in ended.err
        assert list((tmp_path / "roots").iterdir()) == []
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert Program(link)("config", "set", "keep_recent", "4").code == 0


@needs_root
def test_a_program_that_the_owner_may_not_read(theirs: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "sitecustomize.py").touch()
    ended = Program(theirs)("extract", PYTHONPATH=str(private))
    assert ended.code == 77
    assert f"may not read the program itself: {private}" in ended.err
    assert "Try: install bsd where every user may read it" in ended.err
    assert not (theirs / ".brainsurgeon").exists()


@needs_root
def test_root_that_cannot_become_anybody_does_nothing(theirs: Path) -> None:
    """As in a container without the capability; the message names an alternative."""
    prefix = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all")
    ended = Program(theirs, prefix)("extract")
    assert ended.code == 77, ended.err
    assert "root cannot become that user" in ended.err
    assert "Try: `sudo -u nobody bsd …`; in a container: --user" in ended.err
    assert _owners(theirs) == {NOBODY}
    assert not (theirs / ".brainsurgeon").exists()


@needs_root
def test_settings_of_roots_are_not_silently_left_out(theirs: Path, tmp_path: Path) -> None:
    settings = tmp_path / "config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("quiet_seconds = 3\n")
    ended = Program(theirs)("extract", XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert ended.code == 77
    assert f"{settings} are root's settings" in ended.err
    assert "--config" in ended.err


# --- files of an older version ---


@pytest.fixture
def locked_out(theirs: Path, tmp_path: Path) -> Path:
    """Files that root made as root: all of bsd's, and a secret that does not belong to bsd."""
    Program(theirs)("extract")
    for made in (".brainsurgeon", "extracted", "logs"):
        _own(theirs / made, 0)
    secret = theirs / "openclaw.json"
    secret.write_text("{}")
    outside = tmp_path / "outside"
    outside.write_text("root's")
    os.link(outside, theirs / "extracted" / "0000_linked.json")
    (theirs / "extracted" / "link").symlink_to(outside)
    (theirs / ".brainsurgeon" / "deep").symlink_to(tmp_path)
    return theirs


@needs_root
def test_doctor_names_what_root_has_made_and_gives_it_back(
    locked_out: Path, tmp_path: Path
) -> None:
    before = _as_nobody(locked_out, "doctor")
    assert before.code == 1
    assert f"{locked_out}/extracted (uid 0)" in before.out
    assert f"`sudo bsd --root {locked_out} doctor --repair`" in before.out
    refused = _as_nobody(locked_out, "doctor", "--repair")
    assert refused.code == 77
    assert "Try: `sudo bsd" in refused.err
    done = Program(locked_out)("doctor", "--repair")
    assert re.search(r"\(\d+ files and directories now belong to nobody\)", done.err)
    left = {path.name for path in locked_out.rglob("*") if path.lstat().st_uid == 0}
    assert left == {"openclaw.json", "0000_linked.json", "link", "deep"}
    assert (tmp_path / "outside").stat().st_uid == tmp_path.stat().st_uid == 0
    for odd in ("extracted/0000_linked.json", "extracted/link", ".brainsurgeon/deep"):
        (locked_out / odd).unlink()
    after = _as_nobody(locked_out, "doctor")
    assert after.code == 0, after.out
    assert _as_nobody(locked_out, "verify").code == 0


@needs_root
def test_agents_may_have_users_of_their_own(theirs: Path) -> None:
    for path in ("agents/main", "agents/main/sessions", "agents/main/sessions/sessions.json"):
        os.chown(theirs / path, _NAMELESS, _NAMELESS)
    assert wrongly_owned(theirs, {"HOME": str(theirs)}) == []
    os.chown(theirs / "agents" / "main", 0, 0)
    assert wrongly_owned(theirs, {"HOME": str(theirs)}) == [(theirs / "agents" / "main", 0)]


@needs_root
def test_claims_are_given_back_too(theirs: Path) -> None:
    home = theirs / "home"
    notes = home / ".local" / "state" / "bsd" / "sources"
    notes.mkdir(parents=True)
    (notes / "0.json").write_text("{}")
    (home / ".local" / "share").mkdir()
    os.chown(home, NOBODY, NOBODY)
    env = {"HOME": str(home), "XDG_STATE_HOME": ""}
    assert Program(theirs)("doctor", "--repair", **env).code == 0
    given = {path.name for path in home.rglob("*") if path.lstat().st_uid == NOBODY}
    assert given == {".local", "state", "bsd", "sources", "0.json"}


def test_every_command_goes_this_way() -> None:
    def leaves(command: click.Command) -> list[click.Command]:
        if isinstance(command, click.Group):
            context = click.Context(command, obj=Call())
            below = (command.get_command(context, name) for name in command.list_commands(context))
            return [leaf for each in below if each is not None for leaf in leaves(each)]
        return [command]

    found = leaves(all_commands)
    assert len(found) > len(COMMANDS)
    assert [command.name for command in found if not isinstance(command, BsdCommand)] == []
