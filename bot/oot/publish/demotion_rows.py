"""Temporary demotion: an open pull request on `crcr-demotion/<owner>/<name>` of upstream's own repository.

While it is open its L3 backend begins no check runs, as if it were at L2 already. All else goes on: it is dispatched,
its reports count in statistics, and check runs that have begun are finished. At L4 it does nothing: a gate is lifted by
the allowlist alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.oot.publish.tables import DEMOTES, PULL

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

BRANCH = "crcr-demotion/"


async def demoting_pulls(tx: Transaction, upstream: str) -> dict[str, int]:
    """Return the number of the pull request that demotes each backend (case folded).

    Whoever may push to upstream may demote: the branch of a fork, which anyone can have, is of another repository.
    """
    query = sa.select(PULL.head_ref, PULL.number).where(
        DEMOTES, sa.func.lower(PULL.repo) == upstream.lower(), PULL.head_repo_id == PULL.repository_id
    )
    found = await tx.run(query.order_by(PULL.number.desc()))
    return {ref.removeprefix(BRANCH).casefold(): number for ref, number in found}
