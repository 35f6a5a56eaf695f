"""Made-up OpenClaw sessions, for `bsd demo`, tests and benchmarks.

The same arguments give the same bytes. Texts are built from ready-made pieces of encoded JSON, so
that a gigabyte takes only seconds.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

MODEL = "claude-opus-4-5"  # the signatures of its thinking do not cover earlier entries

_BEGIN = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
_PROJECT = b"/home/ada/projects/harbour"
_PIECES = 256
_SIGNATURE_CHARACTERS = 4000
_TURNS_PER_COMPACTION = 24
_WORDS = (
    "session tide berth vessel manifest crane dock pilot ledger quay cargo beacon harbour anchor"
    " buoy signal queue retry parse offset buffer index token result error warning timeout socket"
    " café naïve Ærø → … “quoted” 港 ⚓"
).split()
_LINES = (
    "def {a}_{b}(self, {c}: str) -> dict[str, int]:",
    '    """Return the {a} of a {b}, or an empty {c}."""',
    '    if not {a}.{b}("{c}\\n"):',
    "        raise ValueError(f'{a} {b}: {{{c}!r}}')",
    "    {a} = [{b} for {b} in {c}.items() if {b} > {n}]",
    "\treturn {a}[{n}] + {b}[{n}]  # {c}",
    "{n}: {a} {b} {c} ({n} ms)",
    "src/{a}/{b}_{c}.py:{n}: error: Argument {n} has an incompatible type",
    "drwxr-xr-x {n} ada staff {n} Jan  5 08:{n} {a}-{b}",
    "",
)


def session_lines(
    *, turns: int | None = None, size: int | None = None, seed: int = 1, longest_line: int = 0
) -> Iterator[bytes]:
    """Yield the lines of one session, header first, until it has `turns` turns or `size` bytes.

    The session ends with a closed turn.

    Args:
        longest_line: bytes; the first turn that begins after the middle gets a tool result of at
            least this length. 0: no such result.

    Raises:
        ValueError: both `turns` and `size` are given, or neither.
    """
    if (turns is None) == (size is None):
        raise ValueError("a sample session has either a number of turns or a size")
    author = _Author(seed)
    goal = turns if turns is not None else size or 0
    made = 0
    for line in author.opening():
        made += len(line) if turns is None else 0
        yield line
    while made < goal:
        huge = longest_line if made * 2 >= goal else 0
        longest_line -= huge
        made += 1 if turns is not None else 0
        for line in author.turn(huge):
            made += len(line) if turns is None else 0
            yield line


class SampleTexts:
    """Prose, code and base64 of any length, as the inside of a JSON string."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self._pieces = [self._piece() for _ in range(_PIECES)]
        self._base64 = b64encode(self.chance.randbytes(192 * 1024))

    def text(self, size: int) -> bytes:
        """Return at least `size` bytes (of JSON) that differ from call to call."""
        start = self.chance.randrange(_PIECES)
        pieces = [b"%d " % self.chance.getrandbits(32)]
        length = 0
        while length < size:
            pieces.append(self._pieces[start % _PIECES])
            length += len(pieces[-1])
            start += 1
        return b"".join(pieces)

    def base64(self, size: int) -> bytes:
        """Return `size` characters (rounded down to fours) of base64, as in an image."""
        size -= size % 4
        start = 4 * self.chance.randrange((len(self._base64) - size) // 4)
        return self._base64[start : start + size]

    def length(self, median: int, most: int) -> int:
        """Return a realistic random length: often near the median, rarely very long.

        Args:
            most: the upper limit.
        """
        return min(most, int(median * self.chance.lognormvariate(0, 1.2)))

    def _piece(self) -> bytes:
        pick = self.chance.choice
        lines = [
            pick(_LINES).format(
                a=pick(_WORDS), b=pick(_WORDS), c=pick(_WORDS), n=self.chance.randrange(10, 1000)
            )
            for _ in range(self.chance.randrange(3, 12))
        ]
        return json.dumps("\n".join([*lines, ""]), ensure_ascii=False).encode()[1:-1]


class _Author:
    """Writes one session, entry by entry."""

    def __init__(self, seed: int) -> None:
        self._texts = SampleTexts(seed)
        self._chance = self._texts.chance
        self._mask = self._chance.getrandbits(32)
        self._number = 0
        self._turns = 0
        self._last = b"null"
        self._now = _BEGIN

    def opening(self) -> Iterator[bytes]:
        header = b'{"type":"session","version":3,"id":"%b","timestamp":"%b","cwd":"%b"}\n'
        yield header % (b"5e551011-0000-4000-8000-%012x" % self._mask, self._time(), _PROJECT)
        model = b'"provider":"anthropic","modelId":"%b"' % MODEL.encode()
        yield self._entry(b"model_change", model)
        yield self._entry(b"thinking_level_change", b'"thinkingLevel":"medium"')

    def turn(self, huge: int = 0) -> Iterator[bytes]:
        """Yield one request, the work on it, and the final answer."""
        self._turns += 1
        yield self._user()
        kept = self._last
        if self._turns % 7 == 0:
            yield self._bash()
        for _ in range(self._chance.randrange(1, 6)):
            yield from self._step(0)
        if huge:
            yield from self._step(huge)
        yield self._assistant([self._thinking(), self._text(900)], b"stop")
        if self._turns % _TURNS_PER_COMPACTION == 0:
            body = b'"summary":"%b","firstKeptEntryId":%b,"tokensBefore":%d'
            tokens = self._chance.randrange(120_000, 180_000)
            yield self._entry(b"compaction", body % (self._texts.text(5000), kept, tokens))

    def _step(self, huge: int) -> Iterator[bytes]:
        """Yield an assistant message with one or two tool calls, and their results."""
        calls = [self._call(huge) for _ in range(1 if huge or self._chance.random() < 0.8 else 2)]
        blocks = [call for call, _ in calls]
        if self._chance.random() < 0.4:
            blocks.insert(0, self._text(120))
        if self._chance.random() < 0.6:
            blocks.insert(0, self._thinking())
        yield self._assistant(blocks, b"toolUse")
        for _, result in calls:
            yield self._message(result)

    def _call(self, huge: int) -> tuple[bytes, bytes]:
        """Return a tool call's block and the message with its result."""
        name, arguments, content, details = self._work(huge)
        identity = b"toolu_01%016x%06x" % (self._chance.getrandbits(64), self._mask & 0xFFFFFF)
        call = b'{"type":"toolCall","id":"%b","name":"%b","arguments":{%b}}'
        result = (
            b'"role":"toolResult","toolCallId":"%b","toolName":"%b","content":[%b]%b,"isError":%b'
        )
        failed = b"true" if self._chance.random() < 0.03 else b"false"
        return (
            call % (identity, name, arguments),
            result % (identity, name, content, details, failed),
        )

    def _work(self, huge: int) -> tuple[bytes, bytes, bytes, bytes]:
        """Return a tool's name, arguments, content and details."""
        texts = self._texts
        path = b'"path":"src/berth_%d.py"' % self._chance.randrange(400)
        luck = 0.0 if huge else self._chance.random()
        if luck < 0.45:
            return b"read", path, self._text(huge or texts.length(3500, 50_000)), b""
        if luck < 0.75:
            command = b'"command":"rg -n tide src | head -%d"' % self._chance.randrange(10, 400)
            return b"bash", command, self._text(texts.length(900, 30_000)), b""
        if luck < 0.87:
            old, new = texts.text(texts.length(300, 4000)), texts.text(texts.length(400, 6000))
            arguments = b'%b,"oldText":"%b","newText":"%b"' % (path, old, new)
            details = b',"details":{"diff":"-%b\\n+%b"}' % (old, new)
            return b"edit", arguments, self._text(20), details
        if luck < 0.97:
            arguments = b'%b,"content":"%b"' % (path, texts.text(texts.length(2500, 20_000)))
            return b"write", arguments, self._text(20), b""
        picture = texts.base64(texts.length(30_000, 150_000))
        block = b'{"type":"image","data":"%b","mimeType":"image/png"}' % picture
        return b"screenshot", b'"display":1', block, b""

    def _user(self) -> bytes:
        content = [self._text(self._texts.length(160, 3000))]
        return self._message(b'"role":"user","content":[%b]' % b",".join(content))

    def _bash(self) -> bytes:
        body = (
            b'"role":"bashExecution","command":"make test","output":"%b","exitCode":0,'
            b'"cancelled":false,"truncated":false'
        )
        return self._message(body % self._texts.text(self._texts.length(1500, 20_000)))

    def _assistant(self, blocks: list[bytes], stop: bytes) -> bytes:
        body = (
            b'"role":"assistant","content":[%b],"api":"anthropic-messages","provider":"anthropic",'
            b'"model":"%b","usage":{"input":%d,"output":%d,"cacheRead":%d,"cacheWrite":%d,'
            b'"totalTokens":%d,"cost":{"input":0.00005,"output":0.0034,"cacheRead":0.0219,'
            b'"cacheWrite":0.0086,"total":0.03395}},"stopReason":"%b"'
        )
        out, read, write = (self._chance.randrange(most) for most in (2000, 90_000, 4000))
        usage = (10, out, read, write, 10 + out + read + write)
        return self._message(body % (b",".join(blocks), MODEL.encode(), *usage, stop))

    def _thinking(self) -> bytes:
        body = b'{"type":"thinking","thinking":"%b","thinkingSignature":"%b"}'
        signature = self._texts.base64(_SIGNATURE_CHARACTERS + self._chance.randrange(-800, 800))
        return body % (self._texts.text(self._texts.length(500, 6000)), signature)

    def _text(self, size: int) -> bytes:
        return b'{"type":"text","text":"%b"}' % self._texts.text(size)

    def _message(self, body: bytes) -> bytes:
        milliseconds = int(self._now.timestamp() * 1000)
        return self._entry(b"message", b'"message":{%b,"timestamp":%d}' % (body, milliseconds))

    def _entry(self, kind: bytes, body: bytes) -> bytes:
        self._number += 1
        # An odd factor permutes the 32-bit numbers: ids look random and never repeat.
        identity = b'"%08x"' % ((self._number * 2_654_435_761 ^ self._mask) & 0xFFFFFFFF)
        line = b'{"type":"%b","id":%b,"parentId":%b,"timestamp":"%b",%b}\n'
        parent, self._last = self._last, identity
        return line % (kind, identity, parent, self._time(), body)

    def _time(self) -> bytes:
        self._now += timedelta(milliseconds=self._chance.randrange(300, 20_000))
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
