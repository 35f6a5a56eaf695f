"""The settings of workspaces, as `bsd.foundation.settings` checks them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bsd.foundation.errors import Invalid
from bsd.foundation.setting import check_cron
from bsd.foundation.spelling import MINUTE, NEVER, lifetime_seconds

HOURLY = "0 * * * *"
_MOST = 1 << 50


def _age(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text, minimum=MINUTE) is None else text.strip()
    except Invalid as problem:
        raise ValueError(problem.message) from None


def no_boolean(value: object) -> object:
    """Refuse what Python would take for 0 or 1."""
    if isinstance(value, bool):
        raise ValueError("a boolean is no number")  # noqa: TRY004 - pydantic reports ValueError only
    return value


_Whole = Annotated[int, BeforeValidator(no_boolean), Field(ge=0, le=_MOST)]
WorkspaceCron = Annotated[str, AfterValidator(check_cron)]
WorkspaceAge = Annotated[str, AfterValidator(_age)]
WorkspaceMost = _Whole


class WorkspaceLimits(BaseModel):
    """The table `[workspace_limits]`: what a program that is run in a workspace may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: Annotated[float, BeforeValidator(no_boolean)] = Field(
        60.0, ge=0, le=604_800, allow_inf_nan=False, description="a number between 0 and 604800"
    )
    cpu_seconds: _Whole = Field(60, description="a whole number, 0 for no limit")
    memory_bytes: _Whole = Field(4 << 30, description="a whole number, 0 for no limit")
    processes: _Whole = Field(512, description="a whole number, 0 for no limit")
    file_bytes: _Whole = Field(256 << 20, description="a whole number, 0 for no limit")
    disk_bytes: _Whole = Field(8 << 30, description="a whole number, 0 for no limit")
    output_bytes: _Whole = Field(1 << 20, description="a whole number")
