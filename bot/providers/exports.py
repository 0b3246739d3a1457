"""What sinks may have copies of: jobs, builds and agents of other CIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.db.exports import COPIED, Export, Shape, StoredItem, StoredObject, json_line, object_key, repo_key
from bot.ingest.exports import source_payload
from bot.providers.tables import provider_agent, provider_job, provider_run

if TYPE_CHECKING:
    from bot.db.exports import ExportedRow

OURS = frozenset({"merge_state", "source", "deleted_at"})
ITEMS = {"provider_job": "vllm-buildkite-job-events", "provider_run": "vllm-buildkite-build-events"}
ID = {"provider_job": "job_id", "provider_run": "run_id"}
JOBS = tuple(
    Export(
        name=name,
        group="providers",
        table=table,
        day="received_at",
        deleted="deleted_at",
        shapes={
            "upstream": Shape(make="bot.providers.exports:copy_row", most=500),
            "clickhouse.ootbot": COPIED,
            "dynamodb": Shape(
                make="bot.providers.exports:copy_item",
                read="bot.ingest.exports:read_with_source",
                most=200,
            ),
        },
    )
    for name, table in (("provider_job", provider_job), ("provider_run", provider_run))
)
EXPORTS = (
    *JOBS,
    Export(
        name="provider_agent",
        group="providers",
        table=provider_agent,
        day="at",
        repositories=(),
        internal=True,  # a machine of an organization: nothing says whether its name may be public
        shapes={
            "upstream": Shape(make="bot.providers.exports:copy_agent", most=500),
            "clickhouse.ootbot": COPIED,
            "dynamodb": Shape(make="bot.providers.exports:copy_agent_item", most=500),
        },
    ),
)


def copy_row(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a job or build as an object."""
    place = object_key(row["provider"], row["project"], row[ID[export.name]])
    members = {name: value for name, value in row.items() if name not in OURS}
    return [
        StoredObject(
            key="/".join((export.name, repo_key(row["repo"]), place)), content=lambda: (json_line(members),)
        )
    ]


def copy_item(export: Export, row: ExportedRow) -> list[StoredItem]:
    """Return the item of a job or build of Buildkite: what it sent; others have no table in PyTorch's pipeline."""
    if row["provider"] != "buildkite":
        return []
    sent: dict[str, Any] = source_payload(row) or {}
    known = {name: value for name, value in row.items() if name not in OURS}
    key = f"{row['repo']}/{row[ID[export.name]]}"
    return [
        StoredItem(
            table=ITEMS[export.name],
            key=key,
            attributes=known | {"event": sent.get("event"), **_parts(sent)},
        )
    ]


def copy_agent(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return an agent as an object below its organization."""
    key = object_key(export.name, row["organization"], row["agent_id"])
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def copy_agent_item(_export: Export, row: ExportedRow) -> list[StoredItem]:
    """Return the item of an agent, as it was last heard of."""
    known = {name: value for name, value in row.items() if name != "repo"}  # it has none
    return [StoredItem(table="vllm-buildkite-agent-events", key=row["agent_id"], attributes=known)]


def _parts(sent: dict[str, Any]) -> dict[str, Any]:
    return {name: sent[name] for name in ("build", "job", "pipeline", "agent") if name in sent}
