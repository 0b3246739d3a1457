"""What was found? One line: ok, a warning or an error, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    status: Status
    name: str  # what was looked at, in a word or two; stable, for machines
    detail: str
    next: str = ""  # what to do; empty when all is well


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(status="ok", name=name, detail=detail)


def warning(name: str, detail: str, todo: str) -> Finding:
    """It works, and wants attention."""
    return Finding(status="warning", name=name, detail=detail, next=todo)


def error(name: str, detail: str, todo: str) -> Finding:
    """It does not work until something is done."""
    return Finding(status="error", name=name, detail=detail, next=todo)
