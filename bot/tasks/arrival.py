"""Has a dispatch reached its backend though the answer to it was lost? Reports say so, or a run that only it can be.

Rather sent twice than never: whatever could be somebody else's run is not taken for this dispatch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain.reading import show_time
from bot.errors import GitHubRefused
from bot.store import dispatches, jobs

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.allowlist import Entry

Row = dict[str, Any]
DELAY = 600_000  # milliseconds GitHub may take from a dispatch to its run


async def find(context: Context, dispatch: Row, entry: Entry) -> Row | None:
    """Return `run_id` (if that is known) when an attempt whose answer was lost has reached the backend."""
    since = dispatch["dispatched_at"]
    async with context.store.read() as tx:
        if await jobs.reported(tx, dispatch["id"]):
            return {"run_id": None}
        if await dispatches.others_since(tx, dispatch, since - DELAY):
            return None  # a run could be theirs
    client = context.relay.client(dispatch["backend"], actions="read")
    about = {"event": f"{entry.dispatch}_dispatch", "created": f">={show_time(since // 1000 * 1000)}"}
    try:
        us = await context.relay.as_app().getitem("/app")
        listed = await client.getitem(client.path("actions/runs{?event,created}"), about)
    except GitHubRefused:
        return None
    runs = [run for run in listed["workflow_runs"] if _could_be_ours(run, dispatch, entry, us["slug"])]
    async with context.store.read() as tx:
        taken = await dispatches.runs_held(tx, dispatch, [str(run["id"]) for run in runs])
    runs = [run for run in runs if str(run["id"]) not in taken]
    if entry.dispatch == "workflow":  # reports have to be about this very run, so it must be certain
        return {"run_id": str(runs[0]["id"])} if len(runs) == 1 else None
    return {"run_id": None} if runs else None


def _could_be_ours(run: Row, dispatch: Row, entry: Entry, slug: str) -> bool:
    """Whether our App started the run: of the workflow that is named, or titled as GitHub does of itself."""
    if (run.get("actor") or {}).get("login", "").casefold() != f"{slug}[bot]".casefold():
        return False
    if entry.dispatch == "repository":
        return bool(run["display_title"] == dispatch["event_type"])
    file: str = run["path"].partition("@")[0].rpartition("/")[2]
    return file == entry.workflow_file
