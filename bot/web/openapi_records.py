"""What can be read of records? Described."""

from __future__ import annotations

from bot.domain.records import TYPES
from bot.web import parameters, record_api
from bot.web.openapi_parts import (
    OK,
    READER,
    READING,
    TEXT,
    WRONG_PARAMETER,
    Schema,
    answer,
    before,
    in_path,
    limit,
    listed,
    matching,
    maybe,
    members,
    operation,
    ref,
    repository,
    table,
    whole,
)


def paths() -> Schema:
    """Return the reads by address and method."""
    return {
        "/api/records/{table}/{owner}/{repo}": {"get": _records()},
        "/api/records/{table}/{owner}/{repo}/{id}": {"get": _record()},
    }


def _records() -> Schema:
    shown = members({"ok": OK, "rows": listed(_any_record()), "next": maybe(TEXT)})
    return operation(
        "records",
        "What is held of a repository?",
        tag="Records",
        who=READER,
        more="The repository `-/-` stands for none, as with installations.",
        parameters=[
            table(),
            *repository(),
            limit(record_api.ROWS),
            before(),
        ],
        answers={
            200: answer(
                "Newest first, fewer where texts are long; `next` is the `before` of the page after, null at the end",
                shown,
            )
        },
        refusals=[WRONG_PARAMETER, (404, "not_found", "no such table, or nothing held"), *READING],
    )


def _record() -> Schema:
    which = "the number of an issue or pull request, the delivery's GUID of an event, otherwise GitHub's id"
    return operation(
        "record",
        "What is held of one issue, pull request, run ...?",
        tag="Records",
        who=READER,
        parameters=[
            table(),
            *repository(),
            in_path("id", matching(parameters.IDENTIFIER.pattern), which),
            whole("attempt", 1_000_000, "of a workflow run; the newest when left out"),
        ],
        answers={200: answer("One flat object with GitHub's names", _any_record())},
        refusals=[WRONG_PARAMETER, (404, "not_found", "no such table or record"), *READING],
    )


def _any_record() -> Schema:
    return {"anyOf": [ref(f"record_{name}") for name in TYPES]}
