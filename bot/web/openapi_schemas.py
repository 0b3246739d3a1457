"""What do the bodies look like? JSON Schemas, made from what reads and what writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain import envelope, reading, wire
from bot.domain.allowlist_entry import (
    CALLBACK_TOKENS,
    CHECKS,
    CONCLUSIONS,
    DISPATCHES,
    EVENTS,
    POLICIES,
    STATIC_KEYS,
    Entry,
)
from bot.domain.reading import FULL_NAME, Kind
from bot.domain.records import TYPES
from bot.domain.stats import BackendStats
from bot.domain.view import History, State
from bot.store import operations, tables
from bot.web import admin, shown
from bot.web.openapi_parts import (
    FLAG,
    NUMBER,
    REF,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    listed,
    matching,
    maybe,
    members,
    one_of,
    ref,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.records import RecordType

KINDS: dict[Kind, Schema] = {
    Kind.INT: WHOLE,
    Kind.TEXT: TEXT,
    Kind.BOOL: FLAG,
    Kind.TIME: TIME,
    Kind.TEXTS: listed(TEXT),
    Kind.INTS: listed(WHOLE),
    Kind.JSON: {"type": ["array", "object", "string", "number", "boolean"]},
}
STORED: dict[type, Schema] = {str: TEXT, int: WHOLE, float: NUMBER, bool: FLAG}
FLAGS: Schema = {"type": "object", "description": "what is unusual about it", "additionalProperties": True}
ANYTHING: Schema = {"description": "any JSON"}
LEVEL: Schema = {"type": "integer", "minimum": 0, "maximum": 4}


def components() -> Schema:
    """Return every schema by name: what is sent to us, what we answer, and the records."""
    error = members({"ok": {"const": False}, "error": TEXT, "detail": TEXT})
    error["properties"]["error"] = TEXT | {"description": "a code for programs"}
    error["properties"]["detail"] = TEXT | {"description": "what is wrong and what to do, for people"}
    held = {f"record_{name}": record(kind) for name, kind in TYPES.items()}
    return {"Error": error, **_sent(), **_answered(), **held}


def record(kind: RecordType) -> Schema:
    """Return the schema of one row of a table of records."""
    columns = {column.name: maybe(KINDS[column.kind]) for column in kind.columns}
    keys = {name: TEXT if name == "guid" else WHOLE for name in kind.key}
    always = {"repository_id": WHOLE, "repo": TEXT, "received_at": TIME, "deleted_at": maybe(TIME)}
    return members(always | columns | keys) | {"description": f"merged by the rule {kind.rule}"}


def _sent() -> Schema:
    """Return what the doors take: the types of the structs that read it, and what is checked beyond them."""
    fields = msgspec.structs.fields(wire._Body)  # noqa: SLF001 - the one place that tells the world its form
    of_fields, parts = _made(field.type for field in fields)
    report = members(
        {field.encode_name: schema for field, schema in zip(fields, of_fields, strict=True)},
        optional={field.encode_name for field in fields if not field.required},
    )
    report["properties"]["payload"] = ANYTHING | {"description": "the dispatch's payload, sent back"}
    parts["Workflow"]["properties"] |= {
        "status": one_of(sorted(wire.STATUSES)),
        "conclusion": one_of([*sorted(wire.CONCLUSIONS), None]) | {"description": "with `completed`"},
        "run_attempt": {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 999_999_999},
                matching("0{0,3}[1-9][0-9]{0,5}"),
                {"type": "null"},
            ],
            "default": 1,
        },
    }
    _, around = _made([envelope._Envelope, envelope._Batch])  # noqa: SLF001 - as above
    around["Trusted"]["properties"] |= {
        "verified_repo": matching(FULL_NAME.pattern),
        "downstream_repo_level": one_of(envelope.LEVELS),
    }
    around["Untrusted"]["properties"]["callback_payload"] = ref("Report") | _with_payload()
    around["Batch"]["properties"]["reports"]["items"] = ref("Report")
    return {"Report": report} | parts | around


def _with_payload() -> Schema:
    """Return what a relay's report has to say besides: nobody else knows what it is about."""
    sha = matching(reading.COMMIT.pattern)
    pull = {
        "number": {"type": "integer", "minimum": 1, "maximum": envelope.MOST_NUMBER},
        "head": members({"sha": sha}),
    }
    payload = members(
        {
            "repository": members({"full_name": matching(FULL_NAME.pattern)}),
            "pull_request": members(pull),
            "after": sha,
        },
        optional=("pull_request", "after"),
    )
    payload["description"] = "as GitHub sent it: names upstream repository, pull request and commit"
    return {"properties": {"payload": payload}, "required": ["payload"]}


def _answered() -> Schema:
    """Return what the reads show."""
    entry = _plain(Entry) | {"level": LEVEL, "events": listed(one_of(EVENTS))}
    choices = {
        "policy": POLICIES,
        "checks": CHECKS,
        "conclusion": CONCLUSIONS,
        "callback_token": CALLBACK_TOKENS,
        "static_key": STATIC_KEYS,
        "dispatch": DISPATCHES,
    }
    entry |= {name: one_of(words) for name, words in choices.items()}
    del entry["line"]
    job = _Columns(tables.oot_workflow_job, times=shown.JOB_TIMES).of(shown.JOB_COLUMNS)
    job |= {
        "status": one_of(sorted(wire.STATUSES)),
        "conclusion": one_of([*sorted(wire.CONCLUSIONS), None]),
        "failed_tests_json": maybe(listed(ref("FailedTest"))),
        "environment": maybe({"type": "object", "additionalProperties": TEXT}),
        "flags": FLAGS,
        "source": one_of(("callback", "relay")),
    }
    task = _Columns(tables.task, times=admin.TIMES).of(admin.TASK_COLUMNS)
    deliveries = _Columns(tables.delivery, times=admin.TIMES)
    raw = {"size": WHOLE, "headers": maybe({"type": "object"}), "payload": ANYTHING}
    return {
        "Backend": _health(),
        "Job": members(job),
        "PullRequest": _pull(),
        "OnHead": _section(),
        "Unanswered": _unanswered(),
        "Entry": members(entry),
        "Task": members(task | {"state": one_of(operations.STATES)}),
        "Delivery": members(deliveries.of(admin.DELIVERY_COLUMNS) | raw),
        "ListedDelivery": members(deliveries.of(admin.LISTED_COLUMNS)),
    }


def _health() -> Schema:
    named = {"repo": TEXT, "level": LEVEL, "device": maybe(TEXT), "listed": FLAG}
    grade = {"grade": one_of(("green", "amber", "red", "none"))}
    going = {
        "last_at": maybe(TIME),
        "oncalls": listed(TEXT),
        "trend": listed(maybe(NUMBER))
        | {"description": "pass rates of the last 30 days and today, oldest first"},
        "turned": one_of(("red", "green", None)) | {"description": "in the last 24 hours"},
        "waiting": WHOLE | {"description": "open pull requests that wait for it"},
        "stale": FLAG | {"description": "silent for 36 hours"},
    }
    return members(named | grade | _plain(BackendStats) | going)


def _pull() -> Schema:
    texts = ("title", "state", "user_login", "author_association", "base_ref", "html_url")
    times = ("created_at", "updated_at", "closed_at", "merged_at")
    always = {"repo": TEXT, "number": WHOLE, "head_sha": maybe(TEXT), "page_url": TEXT}
    known = {name: maybe(TEXT) for name in texts} | {name: maybe(TIME) for name in times}
    return members(
        always
        | known
        | {"draft": maybe(FLAG), "merged": maybe(FLAG), "labels": maybe(listed(TEXT))}
    )  # fmt: skip


def _section() -> Schema:
    texts = ("device", "run_url", "ignored_by", "ignored_reason")
    failing = {
        "workflow_name": TEXT,
        "job_name": TEXT,
        "run_id": TEXT,
        "run_attempt": WHOLE,
        "history": one_of([*map(str, History), None]),
        "evidence_url": maybe(TEXT),
        "evidence_elsewhere": FLAG,
    }
    fields = {"repo": TEXT, "level": LEVEL, "state": one_of(map(str, State)), "reason": TEXT}
    fields |= {name: maybe(TEXT) for name in texts}
    fields |= {"finished": FLAG, "attempt": WHOLE, "dispatched_at": maybe(TIME), "finished_at": maybe(TIME)}
    fields |= {"page_url": TEXT, "oncalls": listed(TEXT), "failing": listed(members(failing))}
    return members(fields | {"source": one_of(("callback", "relay"))})


def _unanswered() -> Schema:
    told = _Columns(tables.oot_dispatch, times=frozenset({"created_at", "dispatched_at"}))
    names = (
        "delivery_id",
        "upstream_repo",
        "event_type",
        "pr_number",
        "head_sha",
        "created_at",
        "dispatched_at",
    )
    state = one_of(("never_started", "not_installed", "failed"))
    return members(told.of(names) | {"state": state, "reason": maybe(TEXT)})


@dataclass(frozen=True)
class _Columns:
    """The columns of a table of ours, as JSON shows them."""

    table: Any
    times: frozenset[str]

    def of(self, names: Iterable[str]) -> Schema:
        """Return a schema for each of these columns."""
        return {name: self._of(name) for name in names}

    def _of(self, name: str) -> Schema:
        column = self.table.c[name]
        schema = TIME if name in self.times else STORED.get(column.type.python_type, ANYTHING)
        return maybe(schema) if column.nullable else schema


def _plain(kind: type) -> Schema:
    """Return the fields of a dataclass that an answer always shows in full."""
    _, made = _made([kind])
    fields = made[kind.__name__]["properties"]
    return {
        name: {word: said for word, said in schema.items() if word not in {"default", "uniqueItems"}}
        for name, schema in fields.items()
    }


def _made(types: Iterable[Any]) -> tuple[list[Schema], Schema]:
    """Return the schemas of some types, and by name those they refer to."""
    schemas, parts = msgspec.json.schema_components(list(types), ref_template=REF)
    # names without underscore
    plain = msgspec.json.encode([schemas, parts]).replace(b"schemas/_", b"schemas/")
    schemas, parts = msgspec.json.decode(plain)
    for schema in parts.values():
        del schema["title"]
    return schemas, {name.lstrip("_"): schema for name, schema in parts.items()}
