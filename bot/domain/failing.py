"""Which tests fail most? Failed tests of a backend's jobs, counted over a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
Name = tuple[str | None, str]


@dataclass(kw_only=True)
class Failing:
    """One test: how often it failed, on how many commits, since when, and where last."""

    classname: str | None
    name: str
    runs: int = 0
    commits: set[str]
    first_at: int
    last_at: int
    last: Row


def most_failing(rows: Iterable[Row], *, limit: int) -> list[Failing]:
    """Return the tests that failed in most runs; `rows` are failed jobs, newest first."""
    found: dict[Name, Failing] = {}
    for row in rows:
        for name in {(test.get("classname"), test["name"]) for test in row["failed_tests_json"] or ()}:
            one = found.get(name)
            if one is None:
                classname, plain = name
                at = row["received_at"]
                one = found[name] = Failing(
                    classname=classname, name=plain, commits=set(), first_at=at, last_at=at, last=row
                )
            one.runs += 1
            one.commits.add(row["head_sha"] or row["run_id"])
            one.first_at = row["received_at"]
    order = sorted(found.values(), key=lambda one: (-one.runs, -one.last_at, one.classname or "", one.name))
    return order[:limit]
