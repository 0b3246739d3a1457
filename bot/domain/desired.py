"""Which check runs should a head carry, and what has to be done so that it does? Desired against present.

A check run is updated by its stored id and never reopened by a late report; what begins a new one is a new basis: a
re-run, a new dispatch, or for the gate anything that makes a concluded one unfinished again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain.checkrun import CheckRun, backend_check, gate_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.view import Backend, Pull

Row = dict[str, Any]
LABEL_GONE = "the label was removed: this backend is not shown here any more"


@dataclass(frozen=True, kw_only=True)
class Write:
    """One check run to be made (`check_run_id` None) or updated."""

    check: CheckRun
    basis: str
    label_ended: bool  # concluded only because the pull request lost the label
    check_run_id: int | None
    digest: str
    not_before: int  # epoch milliseconds: updates of one check run keep a distance, verdicts excepted


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What settings and the pull request say about check runs."""

    prefix: str
    label_prefixes: tuple[str, ...]
    labels: frozenset[str]  # the pull request's
    gate: bool  # a gate was published on this repository before
    interval: int  # milliseconds between two updates of one check run


def writes(
    pull: Pull,
    dispatches: Mapping[str, Row],
    entries: Mapping[str, Entry],
    present: Sequence[Row],
    terms: Terms,
) -> list[Write]:
    """Return what has to be written, the gate and verdicts first.

    `dispatches` and `entries` are keyed by the backend's case folded name; `present` holds the oot_check rows of
    this head, oldest first.
    """
    by_name: dict[str, Row] = {row["name"]: row for row in present}
    found = []
    for backend in pull.backends:
        key = backend.repo.casefold()
        if key in dispatches and backend.level >= 3:
            basis = f"{dispatches[key]['id']}/{backend.attempt}"
            found.append(
                _backend(backend, pull, basis=basis, by_name=by_name, entry=entries.get(key), terms=terms)
            )
    if terms.gate or any(backend.level >= 4 for backend in pull.backends):
        found.append(_gate(pull, dispatches, by_name, terms))
    wanted = [write for write in found if write is not None]
    return sorted(wanted, key=lambda write: (write.check.name != f"{terms.prefix} / gate", write.not_before))


def digest(check: CheckRun) -> str:
    """Return what identifies a check run's content."""
    return hashlib.sha256(msgspec.json.encode(check.body(), order="sorted")).hexdigest()


def _backend(
    backend: Backend,
    pull: Pull,
    *,
    basis: str,
    by_name: Mapping[str, Row],
    entry: Entry | None,
    terms: Terms,
) -> Write | None:
    check = backend_check(
        backend,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id=basis,
        failure_conclusion=entry.conclusion if entry else "neutral",
    )
    row = by_name.get(check.name)
    if backend.level == 3 and not _labelled(backend, terms):
        if row is None or row["status"] == "completed":
            return None
        check = replace(
            check,
            status="completed",
            conclusion="neutral",
            title=LABEL_GONE,
            external_id=row["external_id"],
        )
        return _write(check, row["basis"], row, terms, label_ended=True)
    if row is not None and row["basis"] == basis:
        check = replace(check, external_id=row["external_id"])
        reopening = row["status"] == "completed" and check.status != "completed"
        if reopening and not _taken_back(row):
            return None
        return _write(check, basis, row, terms)
    return _write(check, basis, None, terms)


def _gate(
    pull: Pull, dispatches: Mapping[str, Row], by_name: Mapping[str, Row], terms: Terms
) -> Write | None:
    blocking = [backend for backend in pull.backends if backend.level >= 4]
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for backend in blocking
        for key in (backend.repo.casefold(),)
    )
    basis = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]
    row = by_name.get(f"{terms.prefix} / gate")
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    check = gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id="",
        page_url=pull.page_url,
    )
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    repository = hashlib.sha256(pull.repo.casefold().encode()).hexdigest()[:8]
    return _write(
        replace(check, external_id=f"gate/{repository}/{pull.head_sha}/{number}"), basis, row, terms
    )


def _write(
    check: CheckRun, basis: str, row: Row | None, terms: Terms, *, label_ended: bool = False
) -> Write | None:
    now_is = digest(check)
    if row is not None and row["digest"] == now_is and row["check_run_id"] is not None:
        return None
    verdict = check.status == "completed"
    return Write(
        check=check,
        basis=basis,
        label_ended=label_ended,
        check_run_id=row["check_run_id"] if row else None,
        digest=now_is,
        not_before=0 if verdict or row is None else row["written_at"] + terms.interval,
    )


def _labelled(backend: Backend, terms: Terms) -> bool:
    return any(prefix + (backend.device or "") in terms.labels for prefix in terms.label_prefixes)


def _taken_back(row: Row) -> bool:
    """Whether a check run ended only because its label went away; the label back, it goes on."""
    return bool(row["conclusion"] == "neutral" and row["label_ended"])
