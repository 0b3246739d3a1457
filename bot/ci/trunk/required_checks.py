"""The checks that GitHub requires on a branch: what its rulesets say, asked for once an hour.

The last answer stays while GitHub does not give another one. Rules of classic branch protection are not among them:
reading those takes the right to administer the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.ci.collect import budget, job_names
from bot.ci.trunk.store import branches
from bot.core.errors import GitHubRefused, OverBudget
from bot.core.json_fields import Kind, read_member

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.ci.trunk.tables import BranchRuleRow
    from bot.context import Context
    from bot.db.transaction import Transaction

log = structlog.get_logger("bot.ci.trunk.required_checks")

EVERY = 3_600_000  # milliseconds
PAGE, PAGES_MOST = 100, 5  # rules of one call
CONTEXTS_MOST, CONTEXT_MOST = 500, 255


async def ask_for_checks(context: Context, repo: str, repository_id: int, branch: str) -> None:
    """Ask GitHub for the checks that a branch requires, unless it was asked a short while ago."""
    async with context.store.read() as tx:
        known = await branches.rule_of_branch(tx, repository_id, branch)
    now = context.clock.now()
    if known and now - known["asked_at"] < EVERY:
        return
    contexts = known["contexts"] if known else None
    try:
        contexts = await _read_rules(context, repo, branch)
    except OverBudget:
        return  # with the branch's next list: listing it once more now would use up what others wait for
    except GitHubRefused as error:
        log.info("the rules of a branch cannot be read", repo=repo, branch=branch, reason=str(error))
    row: BranchRuleRow = {
        "repository_id": repository_id,
        "branch": branch,
        "contexts": contexts,
        "asked_at": now,
    }
    async with context.store.transaction() as tx:
        await branches.store_rule(tx, row)


async def required_names(tx: Transaction, repository_id: int, branch: str) -> frozenset[str]:
    """Return the names of the checks that a branch requires; none while GitHub has not said."""
    found = await branches.rule_of_branch(tx, repository_id, branch)
    return frozenset((found["contexts"] or ()) if found else ())


def names_of_jobs(contexts: Collection[str]) -> frozenset[str]:
    """Return the names of required checks, those of jobs without shard and runner as well: what a column has."""
    parsed = [job_names.parse_name("", one) for one in contexts]
    return frozenset(contexts) | {one.job for one in parsed} | {one.numbered for one in parsed}


async def _read_rules(context: Context, repo: str, branch: str) -> list[str]:
    client = context.app_for(repo).caching(repo, metadata="read")
    url = client.path("rules/branches/{branch}{?per_page,page}")
    found: set[str] = set()
    for page in range(1, PAGES_MOST + 1):
        await budget.spend_call(context, repo)
        rules = await client.getitem(url, {"branch": branch, "per_page": str(PAGE), "page": str(page)})
        found.update(_contexts(rules))
        if len(rules) < PAGE:
            break
    return sorted(found)[:CONTEXTS_MOST]


def _contexts(rules: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the checks that rules require; what GitHub sent is read field by field."""
    for rule in rules:
        if read_member(rule, ("type",), Kind.TEXT) != "required_status_checks":
            continue
        for name in (
            read_member(rule, ("parameters", "required_status_checks[]", "context"), Kind.TEXTS) or ()
        ):
            yield name[:CONTEXT_MOST]
