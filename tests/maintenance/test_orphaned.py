"""Late bytes without a place: a repair deletes repetitions, a person decides about the rest."""

from __future__ import annotations

import os

import pytest

from bsd.core.layout import Layout
from bsd.maintenance.session_check import Finding
from bsd.maintenance.verify import verify
from bsd.sessions.commit.late import Orphan, keep_orphan, list_orphans
from tests.session_files import NAME, Clock, conversation, make_caller, write

LINE = b'{"type":"message","id":"zz","parentId":null,"message":{"role":"user","content":"late"}}\n'


@pytest.fixture
def layout(layout: Layout) -> Layout:
    """A session with extracted values."""
    write(layout, conversation(8))
    (layout.root / "original").write_bytes(layout.session_file(NAME).read_bytes())
    make_caller(layout, Clock()).extract(NAME)
    return layout


def orphan(layout: Layout, content: bytes, name: str = "x", session: str = str(NAME)) -> Orphan:
    source = layout.root / "source"
    source.write_bytes(content)
    about = Orphan(source, session, str(layout.session_file(NAME)), "a test", len(content), 1)
    descriptor = os.open(source, os.O_RDONLY)
    try:
        return keep_orphan(layout, name, descriptor, 0, about)
    finally:
        os.close(descriptor)


def found(layout: Layout, *, repair: bool = False) -> list[Finding]:
    told = verify(layout, repair=repair).findings
    return [one for one in told if one.kind == "orphan_bytes"]


@pytest.mark.parametrize("what", ["before", "after", "spoilt", "begun", "zeros", "nothing"])
def test_what_says_nothing_new_goes_by_a_repair(layout: Layout, what: str) -> None:
    original = (layout.root / "original").read_bytes()
    present = layout.session_file(NAME).read_bytes()
    assert original != present
    content = {
        "before": original,
        "after": present,
        "spoilt": original[: len(original) // 2] + bytes(5000),
        "begun": present[: present.rindex(b"{") + 5],
        "zeros": bytes(3000),
        "nothing": b"",
    }[what]
    orphan(layout, content)
    (before,) = found(layout)
    assert before.is_open
    assert before.hint == "bsd verify --repair"
    (mended,) = found(layout, repair=True)
    assert mended.repaired
    assert (found(layout), list(layout.orphans.iterdir())) == ([], [])
    assert verify(layout).clean


@pytest.mark.parametrize(
    "content",
    [LINE, LINE[:40], bytes(100) + LINE, LINE.rstrip() + bytes(50), None],
    ids=["line", "begun", "behind zeros", "before zeros", "twice"],
)
def test_what_may_be_lost_stays_and_says_how_to_be_rid_of_it(
    layout: Layout, content: bytes | None
) -> None:
    if content is None:  # a line that occurs once in the session
        present = layout.session_file(NAME).read_bytes()
        content = present.splitlines(keepends=True)[-1] * 2
    kept = orphan(layout, content)
    (finding,) = found(layout, repair=True)
    assert finding.is_open
    assert f"rm {kept.file} {kept.file.with_suffix('.json')}" in str(finding.hint)
    assert kept.file.read_bytes() == content


def test_of_a_session_that_is_gone_all_stays(layout: Layout) -> None:
    orphan(layout, bytes(10), session="main/gone")
    assert found(layout, repair=True)[0].is_open


def test_what_is_stored_must_be_there(layout: Layout) -> None:
    orphan(layout, (layout.root / "original").read_bytes())
    for file in layout.store_dir(NAME).glob("0*.json"):
        file.unlink()
    assert found(layout, repair=True)[0].is_open
    assert list_orphans(layout)


def test_the_same_bytes_of_a_session_make_one_orphan(layout: Layout) -> None:
    for number in range(180):
        orphan(layout, LINE, f"x{number}")
    assert len(list_orphans(layout)) == 1
    orphan(layout, LINE + LINE, "y")
    orphan(layout, LINE, "z", session="main/other")
    assert len(list_orphans(layout)) == 3
    assert len(list(layout.orphans.iterdir())) == 6
