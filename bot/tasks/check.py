"""How is one check run written? Made once, updated by its id, found again by our key after a lost answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bot.domain import marking
from bot.errors import GitHubRefused, RetryLater
from bot.store import pulls
from bot.tasks.making import making

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.domain.writes import Write
    from bot.github import Client
    from bot.query import PullState

Row = dict[str, Any]
NOT_FOUND = 404


async def write(context: Context, state: PullState, wanted: Write) -> None:
    """Make or update one check run and remember that it was done."""
    open_client = context.github.client if wanted.urgent else context.github.sparing
    client = open_client(state.repo, checks="write")
    check_run_id = wanted.check_run_id
    if check_run_id is not None and not await _update(client, check_run_id, wanted):
        async with context.store.transaction() as tx:  # GitHub has deleted it: an intent again
            await pulls.wrote_check(tx, wanted.check.external_id, check_run_id=None, digest="")
        check_run_id = None
    if check_run_id is None:
        check_run_id = await _make(context, client, state, wanted)
    async with context.store.transaction() as tx:
        await pulls.wrote_check(
            tx,
            wanted.check.external_id,
            check_run_id=check_run_id,
            status=wanted.check.status,
            conclusion=wanted.check.conclusion,
            digest=wanted.digest,
            basis=wanted.basis,
            label_ended=wanted.label_ended,
        )


async def _make(context: Context, client: Client, state: PullState, wanted: Write) -> int:
    """Make it; one that a process made that died, or got no answer, is found again instead."""
    check = wanted.check
    row = {
        "external_id": check.external_id,
        "upstream_repo": state.repo,
        "pr_number": state.number,
        "head_sha": check.head_sha,
        "name": check.name,
        "basis": wanted.basis,
    }
    first, *others = marking.lots(check.annotations)
    async with making(context, partial(pulls.intend_check, row=row)) as one:
        found = None if one.fresh else await _find(context, client, wanted)
        made = found or await one.make(partial(_create, client, wanted, first))
    if found is None:
        for lot in others:
            await client.patch(client.path(f"check-runs/{made}"), data=_body(wanted, lot))
    elif not await _update(client, made, wanted):
        raise RetryLater(f"check run {made} was deleted meanwhile", after=1.0)
    return made


async def _find(context: Context, client: Client, wanted: Write) -> int | None:
    """Return the check run an earlier attempt made, recognised by its external_id and our App."""
    url = client.path("commits/{sha}/check-runs{?check_name,filter,app_id,per_page}")
    about = {
        "sha": wanted.check.head_sha,
        "check_name": wanted.check.name,
        "filter": "all",
        "app_id": str(context.github.app_id),
        "per_page": "100",
    }
    async for run in client.getiter(url, about, iterable_key="check_runs"):
        if run["external_id"] == wanted.check.external_id and run["app"]["id"] == context.github.app_id:
            return int(run["id"])
    return None


async def _create(client: Client, wanted: Write, lot: Sequence[Row]) -> int:
    created = await client.post(client.path("check-runs"), data=_body(wanted, lot))
    return int(created["id"])


async def _update(client: Client, check_run_id: int, wanted: Write) -> bool:
    """Update a check run by id; returns False when GitHub has deleted it."""
    try:
        for lot in marking.lots(await _not_annotated(client, check_run_id, wanted)):
            await client.patch(client.path(f"check-runs/{check_run_id}"), data=_body(wanted, lot))
    except GitHubRefused as error:
        if error.status != NOT_FOUND:
            raise
        return False
    return True


async def _not_annotated(client: Client, check_run_id: int, wanted: Write) -> list[Row]:
    """Return the annotations still to be added: GitHub keeps those it has, and would show them twice."""
    if not wanted.check.annotations:
        return []
    url = client.path(f"check-runs/{check_run_id}/annotations{{?per_page}}")
    present = [one async for one in client.getiter(url, {"per_page": "100"})]
    return marking.missing(wanted.check.annotations, present)


def _body(wanted: Write, lot: Sequence[Row]) -> Row:
    body = wanted.check.body()
    return body | {"output": body["output"] | {"annotations": list(lot)}} if lot else body
