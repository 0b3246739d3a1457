"""The repository whose lists a request is about: that of the path, or a backend's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled import rows as disabled_rows
from bot.ci.trunk import reading
from bot.oot.allowlist import rows as allowlists
from bot.web import view_parameters as declare
from bot.web.refusals import NOT_FOUND, UNKNOWN_BACKEND, UNKNOWN_REPOSITORY, Refused, unknown_backend
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.trunk.store.rows import RepositoryRow
    from bot.core.errors import Rejected
    from bot.web.asked import Asked

BACKEND = declare.another_repository("backend", "the times of a backend instead, owner/repo")
NO_LIST = Refused(404, "no_list", "no times are known yet")
REFUSALS = (NOT_FOUND, UNKNOWN_REPOSITORY, NO_LIST, UNKNOWN_BACKEND)


async def find_repository(asked: Asked) -> RepositoryRow:
    """Return the repository; raises Rejected 404."""
    repository = (await reading.find_branch(asked.tx, asked.hidden, asked[REPO], "")).repository
    backend = asked[BACKEND]
    if not backend:
        return repository
    listed = await allowlists.in_force(asked.tx)
    entry = listed.find(backend) if listed else None
    if entry is None or entry.level < disabled_rows.LEAST_LEVEL or asked.hidden.has(entry.repo):
        raise unknown_backend(backend)
    return (await reading.find_branch(asked.tx, asked.hidden, entry.repo, "")).repository


def no_list(repository: RepositoryRow) -> Rejected:
    """Return the refusal where no times of tests are known."""
    return NO_LIST.because(f"no times of tests are known of {repository['full_name']} yet")
