"""Generated Claude Code transcripts, with the same texts as the other generated samples.

The shares of the kinds of content follow real transcripts: results (stored twice, as tool_result
and as toolUseResult), progress lines, file snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bsd.sample import SampleTexts

_SESSION = b"8463c716-a2ea-4c14-9efa-87158ebd9f20"


def write_transcript(path: Path, size: int, seed: int = 1) -> None:
    """Write a session of about `size` bytes."""
    with path.open("wb", buffering=1 << 20) as file:
        written = 0
        writer = _Writer(seed)
        while written < size:
            for line in writer.turn():
                written += file.write(line)


class _Writer:
    def __init__(self, seed: int) -> None:
        self._texts = SampleTexts(seed)
        self._chance = self._texts.chance
        self._last = b"null"
        self._number = 0

    def turn(self) -> Iterator[bytes]:
        """Return a question, the work on it, and an answer."""
        yield self._snapshot()
        yield self._user(b'"%b"' % self._texts.text(160), b"")
        for _ in range(self._chance.randrange(1, 6)):
            yield from self._step()
        yield self._assistant(b'{"type":"text","text":"%b"}' % self._texts.text(900), b"end_turn")

    def _step(self) -> Iterator[bytes]:
        texts = self._texts
        if self._chance.random() < 0.6:
            thinking = b'{"type":"thinking","thinking":"%b","signature":"%b"}'
            body = thinking % (texts.text(texts.length(500, 6000)), texts.base64(4000))
            yield self._assistant(body, b"tool_use")
        tool = b"toolu_01%016x" % self._chance.getrandbits(64)
        path = b"/home/ada/projects/harbour/src/berth_%d.py" % self._chance.randrange(400)
        call = b'{"type":"tool_use","id":"%b","name":"Read","input":{"file_path":"%b"}}'
        yield self._assistant(call % (tool, path), b"tool_use")
        for _ in range(2):
            data = b'"data":{"type":"hook_progress","hookName":"PreToolUse","command":"%b"}'
            yield self._line(b"progress", b'%b,"toolUseID":"%b"' % (data % texts.text(200), tool))
        result = texts.text(texts.length(3500, 50_000))
        content = b'[{"tool_use_id":"%b","type":"tool_result","content":"%b"}]' % (tool, result)
        seen = b',"toolUseResult":{"type":"text","file":{"filePath":"%b","content":"%b"}}'
        yield self._user(content, seen % (path, result))

    def _snapshot(self) -> bytes:
        body = b'"messageId":"%b","snapshot":{"trackedFileBackups":{}},"isSnapshotUpdate":false}\n'
        return b'{"type":"file-history-snapshot",' + body % self._uuid()

    def _user(self, content: bytes, more: bytes) -> bytes:
        return self._line(b"user", b'"message":{"role":"user","content":%b}%b' % (content, more))

    def _assistant(self, block: bytes, stop: bytes) -> bytes:
        body = (
            b'"message":{"model":"claude-opus-4-6","id":"msg_%b","type":"message",'
            b'"role":"assistant","content":[%b],"stop_reason":"%b","usage":{"input_tokens":3,'
            b'"cache_creation_input_tokens":8052,"cache_read_input_tokens":17842,'
            b'"output_tokens":10}}'
        )
        return self._line(b"assistant", body % (self._uuid(), block, stop))

    def _line(self, kind: bytes, body: bytes) -> bytes:
        line = (
            b'{"parentUuid":%b,"isSidechain":false,"userType":"external",'
            b'"cwd":"/home/ada/projects/harbour","sessionId":"%b","version":"2.1.39",'
            b'"gitBranch":"main","type":"%b",%b,"uuid":"%b","timestamp":"%b"}\n'
        )
        identity = self._uuid()
        minute, second = divmod(self._number // 50, 60)
        time = b"2026-02-11T%02d:%02d:%02d.000Z" % (minute // 60 % 24, minute % 60, second)
        parent, self._last = self._last, b'"%b"' % identity
        return line % (parent, _SESSION, kind, body, identity, time)

    def _uuid(self) -> bytes:
        self._number += 1
        return b"%08x-0000-4000-8000-%012x" % (self._chance.getrandbits(32), self._number)
