"""Which gate should a commit carry, and what has to be written so that it does? Desired against present.

A commit has one gate, whichever pull request asks for it. One that was concluded is never opened again: where it is
unfinished once more, a new one of the same name takes its place, numbered in our key.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain.checkrun import gate_check
from bot.domain.writes import Plan, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.domain.checkrun import CheckRun
    from bot.domain.view import Backend, Pull
    from bot.domain.writes import Terms

Row = dict[str, Any]


def gate(
    pull: Pull,
    dispatches: Mapping[str, Row],
    present: Sequence[Row],
    terms: Terms,
    *,
    due: bool,
    untold: Sequence[Backend] = (),
) -> Plan:
    """Return what has to be written of the gate; `present` holds the gates made on this commit, oldest first.

    There is one where a backend blocks, and once the repository has ever had one also where none does: but there only
    on a commit on which it is `due`, so that "no blocking backend" is never said of one nobody was asked about.

    `untold` block but were not told of this commit, for its last base branch, before it was overtaken or closed. Nobody
    waits for them there; but it does not turn green without them, as it may become the head again.
    """
    blocking = {backend.repo.casefold(): backend for backend in pull.backends if backend.blocks}
    row = present[-1] if present else None
    wanted = bool(blocking) or (terms.gate and due)
    if not wanted or (row is None and not terms.current):
        return Plan()
    check = _check(pull, terms)
    if untold and check.conclusion == "success" and not (row and row["conclusion"] == "success"):
        missing = {one.repo.casefold() for one in untold}
        told = [one for one in pull.backends if one.repo.casefold() not in missing]
        check = _check(replace(pull, backends=(*told, *untold)), terms)
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    check = replace(check, external_id=_external_id(pull, number))
    # where nobody was told anything there is nothing to wait for yet: that can be many pull requests at once
    early = bool(blocking) and not any(key in dispatches for key in blocking)
    # more words to an undecided gate wait: first it is said of the backends themselves
    urgent = not early if row is None else not row["digest"]
    return Plan.of([needed(check, _basis(blocking, dispatches), row, terms, urgent=urgent)])


def hope(pull: Pull, terms: Terms) -> int:
    """Return how far a head is from a failure of the gate: 0 failed, 1 undecided, 2 passed."""
    conclusion = _check(pull, terms).conclusion
    return 2 if conclusion == "success" else 0 if conclusion else 1


def _check(pull: Pull, terms: Terms) -> CheckRun:
    """Return the gate as it should be, but for our key."""
    return gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id="",
        page_url=pull.page_url,
        unknown=pull.gate_unknown,
    )


def _basis(blocking: Mapping[str, Backend], dispatches: Mapping[str, Row]) -> str:
    """Return what the gate is about: which attempt of which dispatch, or that a backend was not told yet."""
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for key, backend in blocking.items()
    )
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]


def _external_id(pull: Pull, number: int) -> str:
    """Return our key of one of a commit's gates, counted from 1."""
    repository = hashlib.sha256(pull.repo.casefold().encode()).hexdigest()[:8]
    return f"gate/{repository}/{pull.head_sha}/{number}"
