"""A verb that bsd does not have reaches all doors by its module, and its line in `verb_names`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
# Its line stands in the table, and its module in the room, before anything else is loaded.
_PROGRAM = """
import json, sys
import bsd.actions
from bsd.core import verb_names as names
bsd.actions.__path__.append(sys.argv[1])
names.NAMES["star"] = names.Name("star", command="star", after="undo", help="Mark an entry.",
                                 locks=True, module="star", tools=("star_entry",))
names.TOOLS = (*names.TOOLS, "star_entry")
from tests.actions.made_up.reached import all_doors
print(json.dumps(all_doors(sys.argv[2])))
"""


def test_a_line_and_a_module_are_all_that_a_verb_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(_HERE / "made_up"), str(tmp_path / "root")],
        check=True,
        stdout=subprocess.PIPE,
        cwd=_HERE.parents[1],
    )
    told = json.loads(done.stdout)
    assert told["codes"] == [0, 200]
    assert len(told["asked"]) == 4
    assert told["marked"] == told["asked"]
    assert all(one["starred"] for one in told["answers"].values())
    assert told["described"] is True
    assert told["known"] == [True, "star_entry"]
