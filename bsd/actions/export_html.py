"""One HTML file of sessions: no script, no request to the network, every text escaped.

The content security policy of the file forbids scripts and requests, so a mistake in this module
still cannot run code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from markdown_it import MarkdownIt

from bsd import __version__
from bsd.actions.export_entries import Block, BlockKind, ExportedEntry, ExportedPart, counted
from bsd.core.formatting import format_size

_LONGEST_MARKDOWN = 200_000  # characters: a longer text is shown as plain text
_LONG_RESULT = 400  # characters: a longer result is folded
_SUMMARY = 90  # characters
_SHOWN_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_STYLE = """
:root{color-scheme:light dark;--line:#d8dce2;--soft:#f4f6f8;--faint:#5c6673;--user:#e8f1fd;
--accent:#1d5fb8}
@media(prefers-color-scheme:dark){:root{--line:#343b45;--soft:#1b2027;--faint:#9aa5b3;
--user:#16273d;--accent:#7db3f5}body{background:#12161b;color:#e4e8ed}}
body{font:16px/1.55 system-ui,sans-serif;max-width:56rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:.2em 0}h2{font-size:1.2rem}
h2.agent{margin:3rem 0 .5rem;border-top:2px solid var(--line);padding-top:1rem}
a{color:var(--accent)}.about,time,.at{color:var(--faint);font-size:.85rem}
article{border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;margin:.8rem 0;
overflow-wrap:anywhere}
article.user{background:var(--user)}article:target{outline:2px solid var(--accent)}
article>header{display:flex;flex-wrap:wrap;gap:0 .7rem;align-items:baseline;overflow-wrap:normal}
article>div>:first-child{margin-top:.4rem}article>div>:last-child{margin-bottom:.3rem}
.at{margin-left:auto;
text-decoration:none}
pre,code{font:.86rem/1.45 ui-monospace,monospace}pre{background:var(--soft);padding:.6rem;
border-radius:6px;overflow-x:auto;white-space:pre-wrap;margin:.5rem 0}
code{background:var(--soft);padding:.1em .25em;border-radius:4px}pre code{padding:0}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--faint)}summary b{color:inherit}
img{max-width:100%;height:auto}table{border-collapse:collapse}td,th{border:1px solid var(--line);
padding:.2rem .5rem}blockquote{border-left:3px solid var(--line);margin-left:0;padding-left:1rem}
.plain{white-space:pre-wrap}@media print{details{display:block}}
"""


def html_pieces(parts: Iterable[ExportedPart], *, redacted: int) -> Iterator[str]:
    """Yield the file piece by piece; `redacted` is the number of secrets replaced in it."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    for number, part in enumerate(parts):
        title = escape(part.title)
        if number == 0:
            yield (
                '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                '<meta name="referrer" content="no-referrer">\n'
                f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
                f"<header>\n<h1>{title}</h1>\n"
            )
            note = f", {counted(redacted, 'secret')} replaced" if redacted else ""
            yield (
                f'<p class="about">Session {escape(part.session)}, '
                f"written by bsd {escape(__version__)}{note}</p>\n</header>\n<main>\n"
            )
        else:
            yield f'<h2 class="agent">Sub-agent: {title}</h2>\n'
            yield f'<p class="about">{escape(part.session)}</p>\n'
        left_out = 0
        for entry in part.entries:
            blocks = entry.blocks()
            left_out += not blocks
            if blocks:
                yield _article(entry, blocks, f"{number}-{entry.index}", markdown)
        if left_out:
            many = counted(left_out, "entry", "entries")
            yield f'<p class="about">{many} of bookkeeping left out.</p>\n'
    yield "</main>\n</body>\n</html>\n"


def _article(entry: ExportedEntry, blocks: list[Block], id: str, markdown: MarkdownIt) -> str:
    who = escape(entry.who)
    kind = "user" if who == "User" else "other"
    moment = f"{entry.time[:16].replace('T', ' ')} UTC"
    time = f'<time datetime="{escape(entry.time)}">{escape(moment)}</time>'
    head = (
        f'<article class="{kind}" id="e{id}"><header><b>{who}</b> {time if entry.time else ""}'
        f'<a class="at" href="#e{id}">#{entry.index}</a></header>\n'
    )
    return head + "".join(_block(block, markdown) for block in blocks) + "</article>\n"


def _block(block: Block, markdown: MarkdownIt) -> str:
    match block.kind:
        case BlockKind.TEXT if len(block.text) <= _LONGEST_MARKDOWN:
            return f"<div>{markdown.render(block.text)}</div>\n"
        case BlockKind.TEXT:
            return f'<div class="plain">{escape(block.text)}</div>\n'
        case BlockKind.THINKING:
            return _folded("Thinking", block)
        case BlockKind.CALL:
            return _folded(block.title or "Call", block)
        case BlockKind.PICTURE:
            return _picture(block)
    return _folded(block.title or "Result", block, is_open=_is_short(block.text))


def _is_short(text: str) -> bool:
    return len(text) <= _LONG_RESULT


def _folded(title: str, block: Block, *, is_open: bool = False) -> str:
    """Return a text folded under its first words."""
    text, summary = block.text, " ".join((block.summary or block.text)[: 4 * _SUMMARY].split())
    if len(summary) > _SUMMARY:
        summary = summary[: _SUMMARY - 1] + "…"
    size = format_size(len(text.encode("utf-8", "replace"))).replace(" ", "\N{NO-BREAK SPACE}")
    return (
        f"<details{' open' if is_open else ''}><summary><b>{escape(title)}</b> "
        f"{'' if is_open else escape(summary)}{'' if _is_short(text) else ' · ' + size}</summary>\n"
        f"<pre>{escape(text)}</pre></details>\n"
    )


def _picture(block: Block) -> str:
    media = block.media
    if media is None or media.media_type not in _SHOWN_TYPES or media.why_not_shown():
        kind = escape(media.media_type if media else "")
        return f'<p class="about">[{kind}, {format_size(media.size if media else 0)}]</p>\n'
    return f'<p><img alt="Picture" src="data:{media.media_type};base64,{escape(media.data)}"></p>\n'
