"""Failures of backends that upstream's own jobs share: what features that know of tests say of failed jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.feature import sections

if TYPE_CHECKING:
    from bot.core.feature import Features
    from bot.db.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class FailedJob:
    """A failed job of a backend, with all tests that failed in it: suite and name."""

    key: str
    head_sha: str
    tests: frozenset[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class SharedFailuresSubject:
    """The subject of the section at `shared_failures`: failed jobs of a backend."""

    jobs: tuple[FailedJob, ...]
    devices: frozenset[str]  # further words for its device in the names of tests, in lower case


async def find_shared_failures(
    features: Features, tx: Transaction, subject: SharedFailuresSubject
) -> frozenset[str]:
    """Return the keys of jobs whose failures upstream's own jobs share, as the features know of it."""
    found: frozenset[str] = frozenset()
    for add in sections(features, "shared_failures") if subject.jobs else ():
        found |= await add(tx, subject)
    return found
