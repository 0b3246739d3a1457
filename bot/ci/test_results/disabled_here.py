"""Whether a test is disabled where it failed: by the issues of its repository, and for backends of upstream's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.ci.disabled import lists
from bot.ci.disabled import rows as disabled_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.disabled.lists import Tests
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.tables import EnvRow
    from bot.db.transaction import Transaction

_WORD = re.compile(r"[a-z]+|[0-9]+")
LISTED = re.compile(r"(?P<name>\S+) \((?P<suite>\S+)\)")
SYSTEMS = {"windows": "win", "macos": "mac"}  # as the lists call them, beside their own names
EVERYWHERE: frozenset[str] = frozenset()


class DisabledHere:
    """The disabled tests of a repository, with the platforms on which they are."""

    def __init__(self, tests: Tests) -> None:
        self._platforms = {
            (found["name"], found["suite"].rpartition(".")[2]): frozenset(platforms)
            for entry, (_, _, platforms) in tests.items()
            if (found := LISTED.fullmatch(entry))
        }

    def has(self, suite: str, name: str, platforms: Collection[str]) -> bool:
        """Whether a test is disabled on one of these platforms."""
        on = self._platforms.get((name, suite.rpartition(".")[2]))
        return on is not None and (on == EVERYWHERE or bool(on & set(platforms)))


def platforms_of(job: TestJobRow, env: EnvRow | None) -> set[str]:
    """Return what a job's platform may be called in a list."""
    found = set(_WORD.findall(f"{job['workflow']} {job['name']}".lower()))
    if env:
        found |= {env["os"], env["accelerator"], SYSTEMS.get(env["os"], "")}
    return found - {""}


async def disabled_in_repository(
    tx: Transaction, repository_id: int, upstream_id: int, device: str | None
) -> DisabledHere:
    """Return what is disabled in a repository: its own list; for a backend also upstream's, as far as it is meant."""
    own = lists.disabled_tests(await disabled_rows.disabling(tx, repository_id))
    if upstream_id in {0, repository_id}:
        return DisabledHere(own)
    upstream = lists.disabled_tests(await disabled_rows.disabling(tx, upstream_id))
    return DisabledHere(lists.for_backend(upstream, own, device))
