"""The Unix socket: its owner, the files that it replaces, and the files that it leaves alone."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bsd.core.errors import BsdError, ConfigError, Forbidden, TemporaryFailure
from bsd.core.locations import LONGEST_SOCKET_PATH, find_socket, peer_uid
from bsd.http.sockets import open_local_socket
from tests.logs import capture_logs


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    return short_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own" / "bsd.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def abandoned(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    """The socket that a killed bsd leaves."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX, kind) as dead:
        dead.bind(str(path))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_it_is_for_its_owner_only(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        opened = open_local_socket(path)
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert answers(path)
    assert os.listdir(path.parent) == ["bsd.sock"]
    opened.remove()
    assert os.listdir(path.parent) == []
    opened.close()


def test_a_stale_one_is_replaced(path: Path) -> None:
    abandoned(path)
    with capture_logs() as lines:
        opened = open_local_socket(path)
    assert answers(path)
    assert "A stale socket is replaced" in [line["event"] for line in lines]
    opened.remove()
    opened.close()


def test_a_live_one_is_refused_and_goes_on(path: Path) -> None:
    first = open_local_socket(path)
    with pytest.raises(TemporaryFailure, match="another bsd is listening") as refused:
        open_local_socket(path)
    assert str(path) in refused.value.message
    assert refused.value.hint
    assert answers(path)
    assert os.listdir(path.parent) == ["bsd.sock"]
    first.remove()
    first.close()


def test_a_live_one_that_has_no_time_to_answer_is_refused_too(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = []
        for _ in range(3):  # fill its queue
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            waiting.append(client)
            try:
                client.connect(str(path))
            except BlockingIOError:
                break
        with pytest.raises(TemporaryFailure):
            open_local_socket(path)
        for client in waiting:
            client.close()


def test_a_socket_of_another_kind_is_somebodys(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(TemporaryFailure):
            open_local_socket(path)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link", "link", "fifo"])
def test_what_is_no_socket_stays(path: Path, kind: str) -> None:
    path.parent.mkdir(mode=0o700)
    target = path.with_name("target")
    match kind:
        case "file":
            path.write_text("precious")
        case "directory":
            path.mkdir()
        case "dangling link":
            path.symlink_to(target)
        case "link":
            abandoned(target)
            path.symlink_to(target)
        case "fifo":
            os.mkfifo(path)
    before = path.lstat()
    with pytest.raises(ConfigError, match="not a socket"):
        open_local_socket(path)
    after = path.lstat()  # reading may change its time of access
    assert (after.st_ino, after.st_mode, after.st_ctime_ns) == (
        *(before.st_ino, before.st_mode),
        before.st_ctime_ns,
    )


def test_a_path_too_long_for_the_system_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("d" * LONGEST_SOCKET_PATH) / "bsd.sock"
    with pytest.raises(ConfigError, match=f"longer than {LONGEST_SOCKET_PATH} bytes"):
        open_local_socket(path)
    assert not path.parent.exists()


def test_the_longest_path_works(tmp_path: Path) -> None:
    room = LONGEST_SOCKET_PATH - len(os.fsencode(tmp_path)) - len("//s")
    path = tmp_path / ("d" * room) / "s"
    assert len(os.fsencode(path)) == LONGEST_SOCKET_PATH
    opened = open_local_socket(path)
    assert answers(path)
    opened.remove()
    opened.close()


def test_a_root_with_a_long_name_gets_a_short_socket(tmp_path: Path) -> None:
    root = tmp_path / ("r" * 120)
    with TemporaryDirectory(prefix="bsd-") as runtime:  # tmp_path's own name may be too long
        path = find_socket(root, {"XDG_RUNTIME_DIR": runtime})
        assert path.parent == Path(runtime, "bsd")
        opened = open_local_socket(path)
        assert (mode(path), mode(path.parent)) == (0o600, 0o700)
        opened.remove()
        opened.close()


def test_a_directory_that_others_may_enter_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o755)
    with pytest.raises(Forbidden, match="mode 0755") as refused:
        open_local_socket(path)
    assert refused.value.hint is not None
    assert f"chmod 700 {path.parent}" in refused.value.hint
    assert mode(path.parent) == 0o755


def test_our_own_directory_is_closed_to_others(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    opened = open_local_socket(path, tighten=True)
    assert mode(path.parent) == 0o700
    opened.remove()
    opened.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a directory of another user")
def test_a_directory_of_another_user_is_refused(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    os.chown(path.parent, 65534, 65534)
    with pytest.raises(Forbidden, match="another user"):
        open_local_socket(path, tighten=True)


def test_only_our_own_is_taken_away(path: Path) -> None:
    first = open_local_socket(path)
    path.unlink()
    second = open_local_socket(path)
    first.remove()
    first.close()
    assert answers(path)
    second.remove()
    second.remove()
    assert not path.exists()
    second.close()


def test_taking_away_what_is_gone_is_no_error(path: Path) -> None:
    opened = open_local_socket(path)
    path.unlink()
    path.parent.rmdir()
    opened.remove()
    opened.close()


def test_the_kernel_tells_who_calls() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()


def test_errors_of_the_system_are_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BsdError):
        open_local_socket(tmp_path / "file" / "bsd.sock")
