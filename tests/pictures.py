"""Pictures as sessions hold them: base64 of bytes with the beginning of their file type."""

from __future__ import annotations

import base64


def encoded(beginning: bytes, size: int = 900) -> str:
    """Return base64 text of `size` bytes with the given beginning."""
    return base64.b64encode(beginning + b"A" * (size - len(beginning))).decode()


PNG = encoded(b"\x89PNG\r\n\x1a\n")
JPEG = encoded(b"\xff\xd8\xff\xe0")
GIF = encoded(b"GIF89a")
WEBP = encoded(b"RIFF\x00\x00\x00\x00WEBPVP8 ")
PDF = encoded(b"%PDF-1.7\n", 60_000)
SVG = encoded(b'<svg xmlns="http://www.w3.org/2000/svg">')
