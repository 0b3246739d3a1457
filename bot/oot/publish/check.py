"""Writing of one check run: created once, updated by its id, found again by our key after a lost answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.publish import check_run_text, rows
from bot.oot.publish.create_once import creating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.publish.check_writes import Write
    from bot.oot.verdict.pull_state import PullState

NOT_FOUND = 404


async def write(context: Context, state: PullState, wanted: Write) -> None:
    """Create or update one check run and record it."""
    open_client = context.github.client if wanted.urgent else context.github.low_priority
    client = open_client(state.repo, checks="write")
    check_run_id = wanted.check_run_id
    if check_run_id is not None and not await _update(client, check_run_id, wanted):
        async with context.store.transaction() as tx:  # deleted at GitHub: an intent again
            await rows.record_check(tx, wanted.check.external_id, check_run_id=None, digest="")
        check_run_id = None
    if check_run_id is None:
        check_run_id = await _create_once(context, client, state, wanted)
    async with context.store.transaction() as tx:
        await rows.record_check(
            tx,
            wanted.check.external_id,
            check_run_id=check_run_id,
            status=wanted.check.status,
            conclusion=wanted.check.conclusion,
            digest=wanted.digest,
            basis=wanted.basis,
            label_ended=wanted.label_ended,
        )


async def _create_once(context: Context, client: Client, state: PullState, wanted: Write) -> int:
    """Create it, or find the one that an earlier attempt created before it died or lost the answer."""
    check = wanted.check
    row = {
        "external_id": check.external_id,
        "upstream_repo": state.repo,
        "pr_number": state.number,
        "head_sha": check.head_sha,
        "name": check.name,
        "basis": wanted.basis,
    }
    first, *others = check_run_text.batches(check.annotations)
    async with creating(context, partial(rows.intend_check, row=row)) as creation:
        found = None if creation.fresh else await _find(context, client, wanted)
        created = found or await creation.create(partial(_create, client, wanted, first))
    if found is None:
        for batch in others:
            await client.patch(client.path(f"check-runs/{created}"), data=_body(wanted, batch))
    elif not await _update(client, created, wanted):
        raise RetryLater(f"check run {created} was deleted meanwhile", after=1.0)
    return created


async def _find(context: Context, client: Client, wanted: Write) -> int | None:
    """Return the id of the check run an earlier attempt created, recognised by its external_id and our App."""
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


async def _create(client: Client, wanted: Write, batch: Sequence[dict[str, Any]]) -> int:
    created = await client.post(client.path("check-runs"), data=_body(wanted, batch))
    return int(created["id"])


async def _update(client: Client, check_run_id: int, wanted: Write) -> bool:
    """Update a check run by id; returns False when it was deleted at GitHub."""
    try:
        for batch in check_run_text.batches(await _not_annotated(client, check_run_id, wanted)):
            await client.patch(client.path(f"check-runs/{check_run_id}"), data=_body(wanted, batch))
    except GitHubRefused as error:
        if error.status != NOT_FOUND:
            raise
        return False
    return True


async def _not_annotated(client: Client, check_run_id: int, wanted: Write) -> list[dict[str, Any]]:
    """Return the annotations still to be added: GitHub keeps those it has and would show them twice."""
    if not wanted.check.annotations:
        return []
    url = client.path(f"check-runs/{check_run_id}/annotations{{?per_page}}")
    present = [one async for one in client.getiter(url, {"per_page": "100"})]
    return check_run_text.missing_annotations(wanted.check.annotations, present)


def _body(wanted: Write, batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
    body = wanted.check.body()
    return body | {"output": body["output"] | {"annotations": list(batch)}} if batch else body
