"""The gate a commit should have, and what has to be written for it: desired against present.

A commit has one gate, whichever pull request it is written for. A concluded gate is never reopened: when it becomes
undecided again, a new one of the same name takes its place, numbered in our key.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from bot.oot.publish.check_run_text import gate_check
from bot.oot.publish.check_writes import Plan, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.oot.publish.check_run_text import CheckRun
    from bot.oot.publish.check_writes import Terms
    from bot.oot.publish.rows import CheckRow
    from bot.oot.results.rows import DispatchRow
    from bot.oot.verdict.view import Backend, Pull


def gate(
    pull: Pull,
    dispatches: Mapping[str, DispatchRow],
    present: Sequence[CheckRow],
    terms: Terms,
    *,
    due: bool,
    undispatched: Sequence[Backend] = (),
) -> Plan:
    """Return what has to be written of the gate; `present` holds this commit's gates, oldest first.

    There is a gate where a backend blocks. Where none does there is one if the repository has ever had a gate and the
    commit is `due` for one, so that "no blocking backend" is never written on a commit that was not dispatched.

    `undispatched` backends block, but the commit was overtaken or closed before it was dispatched to them for its last
    base branch. The gate does not wait for them there, but does not turn green without them either: the commit may
    become the head again.
    """
    blocking = {backend.repo.casefold(): backend for backend in pull.backends if backend.blocks}
    row = present[-1] if present else None
    wanted = bool(blocking) or (terms.gate and due)
    if not wanted or (row is None and not terms.current):
        return Plan()
    check = _check(pull, terms)
    if undispatched and check.conclusion == "success" and not (row and row["conclusion"] == "success"):
        missing = {one.repo.casefold() for one in undispatched}
        others = [one for one in pull.backends if one.repo.casefold() not in missing]
        check = _check(replace(pull, backends=(*others, *undispatched)), terms)
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    check = replace(check, external_id=_external_id(pull, number))
    # before any dispatch the gate is not urgent: that can be many pull requests at once
    early = bool(blocking) and not any(key in dispatches for key in blocking)
    # neither is new wording of an undecided gate: the backends' own check runs go first
    urgent = not early if row is None else not row["digest"]
    return Plan.of([needed(check, _basis(blocking, dispatches), row, terms, urgent=urgent)])


def rank(pull: Pull, terms: Terms) -> int:
    """Return how good a head's gate is: 0 failed, 1 undecided, 2 passed."""
    conclusion = _check(pull, terms).conclusion
    return 2 if conclusion == "success" else 0 if conclusion else 1


def _check(pull: Pull, terms: Terms) -> CheckRun:
    """Return the gate as it should be, without our key."""
    return gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id="",
        page_url=pull.page_url,
        unknown=pull.gate_unknown,
    )


def _basis(blocking: Mapping[str, Backend], dispatches: Mapping[str, DispatchRow]) -> str:
    """Return what the gate is about: each blocking backend's dispatch, if any, and attempt."""
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for key, backend in blocking.items()
    )
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]


def _external_id(pull: Pull, number: int) -> str:
    """Return our key of one of a commit's gates, counted from 1."""
    repository = hashlib.sha256(pull.repo.casefold().encode()).hexdigest()[:8]
    return f"gate/{repository}/{pull.head_sha}/{number}"
