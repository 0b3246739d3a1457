"""A finding of a check: ok, a warning or an error, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check."""

    status: Status
    name: str  # of the check, a word or two; stable, for machines
    detail: str
    next: str = ""  # what to do; empty when all is well


def ok(name: str, detail: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(status="ok", name=name, detail=detail)


def warning(name: str, detail: str, todo: str) -> Finding:
    """Return a finding that needs attention though all works."""
    return Finding(status="warning", name=name, detail=detail, next=todo)


def error(name: str, detail: str, todo: str) -> Finding:
    """Return a finding that something does not work until it is fixed."""
    return Finding(status="error", name=name, detail=detail, next=todo)
