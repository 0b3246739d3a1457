"""What GitHub Enterprise Server lacks of github.com, by its versions, and which features are off there for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEADER = "x-github-enterprise-version"  # of every answer
DESCRIBED = (
    "3.17",
    "3.18",
    "3.19",
    "3.20",
    "3.21",
    "3.22",
)  # versions whose description by GitHub was looked at
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Something of github.com that a server does not have."""

    name: str
    off: str  # what the bot does without it
    since: str = ""  # the first version that has it; empty: none that is described


RUN_DETAILS = Lack(
    name="return_run_details",
    off="the run of a `dispatch: workflow` is known once it reports, not from the dispatch on",
)
MERGE_GROUP = Lack(name="merge_group", off="there are no merge queues, so no gate on their commits")
CHECK_RUN_CLAIM = Lack(name="check_run_id", off="a token of Actions does not say which job reports")
LACKS = (RUN_DETAILS, MERGE_GROUP, CHECK_RUN_CLAIM)


def lacks(version: str, lack: Lack) -> bool:
    """Whether a version lacks something; the empty version is github.com, which has all.

    A version that is not described is taken for the newest one that is.
    """
    if not version:
        return False
    return not lack.since or _numbers(version) < _numbers(lack.since)


def lacking(version: str) -> list[Lack]:
    """Return what a version lacks."""
    return [lack for lack in LACKS if lacks(version, lack)]


def _numbers(version: str) -> tuple[int, int]:
    found = _VERSION.match(version) or _VERSION.match(DESCRIBED[-1])
    assert found is not None
    return int(found[1]), int(found[2])
