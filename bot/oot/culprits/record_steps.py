"""Recording steps: a backend is dispatched a push of the commit, made by us; upstream's own CI is asked by a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.links import web_url
from bot.ingest import delivery, inbox
from bot.oot.culprits import rows
from bot.oot.dispatch.rows import backend_columns, new_dispatch
from bot.oot.dispatch.send_dispatch import BISECT
from bot.oot.results.store import dispatches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.culprits.search import Step
    from bot.oot.culprits.situation import Situation
    from bot.oot.culprits.tables import BisectRow, StepRow
    from bot.oot.results.tables import DispatchEvent

OWN_RUNS = "bisect_run"  # kind of the task that has upstream's own CI run a commit


async def record_steps(
    tx: Transaction, settings: Settings, found: Situation, steps: Sequence[Step]
) -> list[StepRow]:
    """Record steps together with what sends them: whatever happens then, none is lost, and none made twice."""
    number = max((step["number"] for step in found.steps), default=0)
    commits = {row["sha"]: row for row in found.commits}
    made: list[StepRow] = []
    for at, step in enumerate(steps, number + 1):
        row = _new_step(tx, found, step, at)
        if found.entry is None:
            tx.enqueue(OWN_RUNS, f"{found.search['id']}/{at}")
        else:
            await _dispatch(tx, settings, found, found.entry, step=row, commit=commits[step.sha])
        made.append(row)
    await rows.add_steps(tx, made)
    return made


def _new_step(tx: Transaction, found: Situation, step: Step, number: int) -> StepRow:
    return {
        "bisect_id": found.search["id"],
        "number": number,
        "sha": step.sha,
        "purpose": step.purpose.value,
        "delivery_id": None,
        "dispatch_id": None,
        "run_id": None,
        "from_attempt": None,
        "tag": None,
        "outcome": None,
        "detail": None,
        "created_at": tx.now,
        "sent_at": None,
        "ended_at": None,
    }


async def _dispatch(
    tx: Transaction, settings: Settings, found: Situation, entry: Entry, *, step: StepRow, commit: CommitRow
) -> None:
    search = found.search
    guid = delivery.guid(f"bisect {search['id']} {step['number']}")
    body = push_body(settings, found.branch, search, step, commit)
    # its event has no handler: it was never pushed, and is no record
    await inbox.put(tx, delivery.as_incoming(guid, BISECT, body, source=BISECT))
    event: DispatchEvent = {
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": search["upstream_repo"],
        "event_type": "push",
        "action": None,
        "pr_number": None,
        "head_sha": commit["sha"],
        "base_sha": commit["parent"],
        "base_ref": None,
        "ref": f"refs/heads/{found.branch.name}",
        "labels": [],
    }
    row = new_dispatch(tx, event, backend_columns(entry, event["event_type"]), state="pending")
    await dispatches.add(tx, row)
    tx.enqueue("dispatch", row["id"])
    step["delivery_id"], step["dispatch_id"], step["sent_at"] = guid, row["id"], tx.now


def push_body(
    settings: Settings, branch: Branch, search: BisectRow, step: StepRow, commit: CommitRow
) -> dict[str, Any]:
    """Return the push of a commit to the branch, as GitHub would send it, and what it is for."""
    repository, github = branch.repository, web_url(settings.github_api_url)
    name = repository["full_name"]
    owner, _, short = name.partition("/")
    head = {"id": commit["sha"], "message": commit["title"]}
    about: dict[str, Any] = {"id": search["id"], "signal": search["job"], "purpose": step["purpose"]}
    if search["test"]:
        about["test"] = search["test"]
    return {
        "ref": f"refs/heads/{branch.name}",
        "before": commit["parent"] or "0" * 40,
        "after": commit["sha"],
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": f"{github}/{name}/commit/{commit['sha']}",
        "commits": [head],
        "head_commit": head,
        "pusher": {"name": commit["author"] or "ootbot"},
        "repository": {
            "id": repository["repository_id"],
            "name": short,
            "full_name": name,
            "html_url": f"{github}/{name}",
            "clone_url": f"{github}/{name}.git",
            "default_branch": repository["default_branch"],
            "owner": {"login": owner, "name": owner},
        },
        BISECT: about,
    }
