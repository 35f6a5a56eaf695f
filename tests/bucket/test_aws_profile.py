"""The files of AWS's own tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bsd.bucket.aws_profile import credential_provider, read_profile
from bsd.bucket.errors import BucketRefused, NoBucket


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = AKIDEFAULT\naws_secret_access_key = a%secret\n\n"
        "[work]\naws_access_key_id=AKIWORK\naws_secret_access_key=s\naws_session_token = token==\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-central-1\ns3 =\n    max_concurrent_requests = 20\n"
        "[profile work]\nregion = eu-west-1\nendpoint_url = https://storage.example\n"
        "[profile sso]\nsso_session = company\n"
        f"[profile process]\ncredential_process = {sys.executable} {tmp_path}/keys.py\n"
        "[profile failing]\ncredential_process = false\n"
        "[profile empty]\ncredential_process = true\n"
        "[profile missing]\ncredential_process = /no/such/program\n"
    )
    keys = {"Version": 1, "AccessKeyId": "AKIP", "SecretAccessKey": "s", "SessionToken": "t"}
    text = json.dumps(keys | {"Expiration": "2099-01-01T00:00:00Z"})
    (tmp_path / "keys.py").write_text(f"print({text!r})")
    return {"HOME": str(tmp_path)}


def test_a_profile_has_the_members_of_both_files(environ: dict[str, str]) -> None:
    profile = read_profile(environ)
    assert (profile.name, profile.region, profile.endpoint) == ("default", "eu-central-1", None)
    assert profile.has_credentials
    keys = credential_provider(environ)()
    assert (keys["access_key_id"], keys["secret_access_key"]) == ("AKIDEFAULT", "a%secret")
    assert keys["token"] is None
    environ["AWS_PROFILE"] = "work"
    assert read_profile(environ).endpoint == "https://storage.example"
    keys = credential_provider(environ)()
    assert (keys["access_key_id"], keys["token"]) == ("AKIWORK", "token==")
    assert "AKIWORK" not in repr(read_profile(environ))


def test_the_files_may_lie_elsewhere(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".aws").rename(tmp_path / "elsewhere")
    assert not read_profile(environ).has_credentials
    environ["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / "elsewhere" / "credentials")
    environ["AWS_CONFIG_FILE"] = str(tmp_path / "elsewhere" / "config")
    profile = read_profile(environ)
    assert profile.has_credentials
    assert profile.region == "eu-central-1"


def test_a_program_may_give_the_credentials(environ: dict[str, str]) -> None:
    environ["AWS_PROFILE"] = "process"
    keys = credential_provider(environ)()
    assert (keys["access_key_id"], keys["token"]) == ("AKIP", "t")
    assert keys["expires_at"].year == 2099


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sso", "sso_session, which bsd cannot read"),
        ("failing", "credential_process of the profile failing failed"),
        ("empty", "gave no credentials"),
        ("missing", "cannot be run"),
    ],
)
def test_credentials_that_cannot_be_had_are_told(
    environ: dict[str, str], name: str, why: str
) -> None:
    environ["AWS_PROFILE"] = name
    with pytest.raises(BucketRefused, match=why):
        credential_provider(environ)()


def test_files_that_cannot_be_read_are_named_and_not_quoted(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["AWS_PROFILE"] = "none"
    with pytest.raises(NoBucket, match="there is no profile none"):
        read_profile(environ)
    (tmp_path / ".aws" / "credentials").write_text("[default]\nASECRET\n")
    with pytest.raises(NoBucket) as caught:
        read_profile(environ)
    assert "ASECRET" not in str(caught.value)
    assert "credentials, line" in str(caught.value) or "credentials is" in str(caught.value)
    (tmp_path / ".aws" / "credentials").write_bytes(b"\xff\xfe")
    with pytest.raises(NoBucket, match="it is not text"):
        read_profile(environ)
