"""Credentials and settings of AWS's own tools that obstore does not read: `~/.aws`.

obstore reads the variables of the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL …),
roles of containers and machines, and web identities. This module adds the files of `aws configure`:
keys, session token, region, endpoint and `credential_process` of one profile.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bsd.bucket.errors import BucketRefused, NoBucket

_FRESH = timedelta(minutes=15)  # then the files are read again: other tools renew tokens there
_PROCESS_SECONDS = 60.0
_ELSEWHERE = ("sso_session", "sso_start_url", "role_arn")
_EXPORT = 'eval "$(aws configure export-credentials --format env)"'


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """The members of a profile in `~/.aws/credentials` and `~/.aws/config`."""

    name: str
    members: Mapping[str, str] = field(repr=False)

    @property
    def region(self) -> str | None:
        """The region, if the profile names one."""
        return self.members.get("region")

    @property
    def endpoint(self) -> str | None:
        """The address of the service, if the profile names one."""
        return self.members.get("endpoint_url")

    @property
    def has_credentials(self) -> bool:
        """Whether the profile says where its credentials come from."""
        named = ("aws_access_key_id", "credential_process", *_ELSEWHERE)
        return any(name in self.members for name in named)


def read_profile(environ: Mapping[str, str] = os.environ) -> AwsProfile:
    """Return the profile that AWS_PROFILE names, or `default`; it may be empty.

    Raises:
        NoBucket: a file cannot be read, or the named profile is in neither.
    """
    name = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(environ.get("HOME") or Path.home()) / ".aws"
    config = _section(
        Path(environ.get("AWS_CONFIG_FILE") or home / "config"),
        name if name == "default" else f"profile {name}",
    )
    credentials = _section(
        Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name
    )
    if config is None and credentials is None and name != "default":
        raise NoBucket(
            f"there is no profile {name} in the files of AWS's tools",
            hint="correct AWS_PROFILE, or: aws configure --profile " + shlex.quote(name),
        )
    return AwsProfile(name, {**(config or {}), **(credentials or {})})


def _section(path: Path, name: str) -> dict[str, str] | None:
    parser = configparser.RawConfigParser(strict=False, default_section="\0")
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            parser.read_file(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise NoBucket(f"{path} cannot be read: {why}", hint=f"correct {path}") from None
    except configparser.Error as error:
        # The message of the parser would quote the line.
        where = getattr(error, "lineno", None)
        line = f", line {where}," if where else ""
        raise NoBucket(f"{path}{line} is not in the form of AWS", hint="aws configure") from None
    return dict(parser[name]) if parser.has_section(name) else None


def credential_provider(
    environ: Mapping[str, str] = os.environ,
) -> Callable[[], dict[str, Any]]:
    """Return a function that reads the profile's credentials anew, in the form of obstore."""

    def credentials() -> dict[str, Any]:
        return _credentials(read_profile(environ))

    return credentials


def _credentials(profile: AwsProfile) -> dict[str, Any]:
    """Return the credentials of a profile.

    Raises:
        BucketRefused: they are of a kind that only AWS's own tools can read, or their program
            failed.
    """
    members = profile.members
    if "aws_access_key_id" in members:
        return {
            "access_key_id": members["aws_access_key_id"],
            "secret_access_key": members.get("aws_secret_access_key", ""),
            "token": members.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _FRESH,
        }
    if "credential_process" in members:
        return _from_process(profile)
    kind = next((name for name in _ELSEWHERE if name in members), "another place")
    raise BucketRefused(
        f"the profile {profile.name} takes its credentials from {kind}, which bsd cannot read",
        hint=f"{_EXPORT}, or let `credential_process` of the profile call "
        f"`aws configure export-credentials`",
    )


def _from_process(profile: AwsProfile) -> dict[str, Any]:
    problem = f"credential_process of the profile {profile.name}"
    try:
        done = subprocess.run(
            shlex.split(profile.members["credential_process"]),
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PROCESS_SECONDS,
        )
        answer = json.loads(done.stdout)
        expires = answer.get("Expiration")
        return {
            "access_key_id": str(answer["AccessKeyId"]),
            "secret_access_key": str(answer["SecretAccessKey"]),
            "token": answer.get("SessionToken"),
            "expires_at": datetime.fromisoformat(expires)
            if expires
            else datetime.now(UTC) + _FRESH,
        }
    except (OSError, subprocess.SubprocessError) as error:
        why = "cannot be run" if isinstance(error, OSError) else "failed"
        raise BucketRefused(f"{problem} {why}", hint="run it by hand to see why") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BucketRefused(f"{problem} gave no credentials", hint="run it by hand") from None
