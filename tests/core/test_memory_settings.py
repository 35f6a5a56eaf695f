"""The table `[memory]`: its valid keys and values, and the messages on invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.core.errors import ConfigError
from bsd.core.settings import MemorySettings
from tests.loading import load_settings


def load(tmp_path: Path, text: str) -> MemorySettings:
    file = tmp_path / "bsd.toml"
    file.write_text(text)
    return load_settings(file).memory


def test_left_out_it_means_the_seed(tmp_path: Path) -> None:
    assert load(tmp_path, "").model_dump() == {
        "enabled": None,
        "database": None,
        "vectors": None,
        "ttl": {},
        "refresh": ("stable", "active"),
        "languages": (),
        "words": {},
    }


def test_a_new_class_is_one_line(tmp_path: Path) -> None:
    assert load(tmp_path, '[memory.ttl]\nephemeral = "1h"\n').ttl == {"ephemeral": 3600}


def test_everything_can_be_set(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
[memory]
enabled = true
database = "~/facts.db"
vectors = "/vectors"
refresh = ["stable", "ephemeral"]
languages = ["de", "fr"]
[memory.ttl]
stable = "1d12h"
session = "Never"
ephemeral = "1m"
[memory.words.ephemeral]
keys = ["OTP"]
texts = ["One-Time code"]
entities = ["Clipboard"]
""",
    )
    assert found.enabled is True
    assert found.database == Path("~/facts.db").expanduser()
    assert found.vectors == Path("/vectors")
    assert found.refresh == ("stable", "ephemeral")
    assert found.languages == ("de", "fr")
    assert found.ttl == {"stable": 36 * 3600, "session": None, "ephemeral": 60}
    assert found.words["ephemeral"].model_dump() == {
        "keys": ("otp",),
        "texts": ("one-time code",),
        "entities": ("Clipboard",),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[memory]\nenbled = true", ", line 2: memory.enbled is not a known key; did you mean en"),
        ('[memory]\nenabled = "x"', ", line 2: memory.enabled: "),
        ('[memory]\ndatabase = "a/b"', ", line 2: memory.database: a path must be absolute"),
        ('[memory]\nrefresh = ["nope"]', ", line 2: memory.refresh: there is no class nope"),
        ('[memory]\nlanguages = ["xx"]', ", line 2: memory.languages: the languages beside"),
        ('[memory.ttl]\nstable = "5x"', ", line 2: memory.ttl.stable: Invalid duration '5x'"),
        ('[memory.ttl]\nstable = "0m"', ", line 2: memory.ttl.stable: "),
        ("[memory.ttl]\nstable = 5", ", line 2: memory.ttl.stable: a lifetime is a text"),
        ('[memory.ttl]\n"A b" = "5d"', ", line 2: memory.ttl.A b: "),
        ('[memory.words.nope]\nkeys = ["a"]', ": memory.words: there is no class nope"),
        (
            '[memory.words.active]\nkees = ["a"]',
            ", line 2: memory.words.active.kees is not a known key; did you mean keys?",
        ),
        ('[memory.words.active]\nkeys = [""]', ", line 2: memory.words.active.keys: "),
        ("memory = 3", ", line 1: memory: "),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path / 'bsd.toml'}{said}")
    assert caught.value.hint
