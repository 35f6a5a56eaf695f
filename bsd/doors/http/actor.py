"""Who asks, as log and audit know them."""

from __future__ import annotations

from starlette.requests import Request

NOBODY_KNOWN = "api"


def actor_of(request: Request) -> str:
    """The first digits of the key's hash, which `KeyGuard` has noted; `api` without a key.

    So whatever comes without one, over the socket or over an open TCP port, is `api`: that it came
    this way is all that is known for certain.
    """
    return str(getattr(request.state, "actor", NOBODY_KNOWN))
