"""What is an OpenAPI document made of? The words of its schemas, parameters and answers, each written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain.reading import FULL_NAME
from bot.domain.records import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Schema = dict[str, Any]
Refusal = tuple[int, str, str]  # status, code, when it is sent

MOST_ROWS = 500  # of a list, as `parameters.limit` has it
REF = "#/components/schemas/{name}"
COME_BACK = frozenset({429, 503})  # statuses that say after how many seconds
RETRY_AFTER = {
    "description": "seconds to wait before sending the same again",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OK: Schema = {"const": True}
TIME: Schema = {"type": "string", "format": "date-time", "examples": ["2026-01-31T12:00:00Z"]}

ANYBODY: list[Schema] = []
BACKEND: list[Schema] = [{"backend": []}]
RELAY: list[Schema] = [{"relay": []}]
GITHUB: list[Schema] = [{"signature": []}]
ADMIN: list[Schema] = [{"admin": []}]
READER: list[Schema] = [{}, {"admin": []}]  # what is private takes the token

UNAVAILABLE: Refusal = (503, "store_unavailable", "the database cannot be used right now; nothing was kept")
WRONG_PARAMETER: Refusal = (400, "invalid_parameter", "a parameter is wrong; `detail` says what it may be")
READING: tuple[Refusal, ...] = (
    (503, "busy", "others ask for too much at once: come back in a moment"),
    UNAVAILABLE,
)
SENDING: tuple[Refusal, ...] = (
    (408, "body_timeout", "the body took too long to arrive"),
    (413, "body_too_large", "the body is larger than this address takes"),
    (415, "unsupported_encoding", "the body has a `Content-Encoding`"),
    (503, "busy", "too much is being read or changed at once"),
    UNAVAILABLE,
)


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": REF.format(name=name)}


def maybe(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def one_of(values: Iterable[object]) -> Schema:
    """Return the schema of a choice."""
    return {"enum": list(values)}


def members(properties: Mapping[str, Schema], *, optional: Iterable[str] = ()) -> Schema:
    """Return the schema of an object; what is not optional is always there."""
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "properties": dict(properties), "required": required}


def matching(pattern: str, schema: Schema | None = None) -> Schema:
    """Return the schema of a text that is, as a whole, of this form."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"} | (schema or {})


def operation(
    name: str,
    summary: str,
    *,
    tag: str,
    who: list[Schema],
    answers: Mapping[int, Schema],
    refusals: Iterable[Refusal] = (),
    parameters: Iterable[Schema] = (),
    body: Schema | None = None,
    more: str = "",
) -> Schema:
    """Return what can be done at one address."""
    told = {str(status): answer for status, answer in (dict(answers) | _refused(refusals)).items()}
    made: Schema = {"operationId": name, "tags": [tag], "summary": summary, "security": who}
    made |= {"description": more} if more else {}
    made |= {"parameters": list(parameters)} if parameters else {}
    made |= {"requestBody": body} if body else {}
    return made | {"responses": dict(sorted(told.items()))}


def body(schema: Schema, example: object, description: str) -> Schema:
    """Return a JSON body that has to be sent."""
    content = {"application/json": {"schema": schema, "example": example}}
    return {"required": True, "description": description, "content": content}


def answer(description: str, schema: Schema) -> Schema:
    """Return an answer in JSON."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def in_path(name: str, schema: Schema, description: str) -> Schema:
    """Return a part of the address."""
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def in_query(name: str, schema: Schema, description: str) -> Schema:
    """Return a parameter that may be left out."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


def in_header(name: str, schema: Schema, description: str, *, required: bool = True) -> Schema:
    """Return a header."""
    return {"name": name, "in": "header", "required": required, "description": description, "schema": schema}


def repository(owner: str = "owner") -> tuple[Schema, Schema]:
    """Return the two parts of a repository's name in the address."""
    first, last = FULL_NAME.pattern.split("/")
    return (
        in_path(owner, matching(first), "owner of the repository"),
        in_path("repo", matching(last), "name of the repository"),
    )


def whole(name: str, most: int, description: str, *, default: int | None = None) -> Schema:
    """Return a parameter that is a whole number from 1."""
    schema = {"type": "integer", "minimum": 1, "maximum": most}
    return in_query(name, schema | ({} if default is None else {"default": default}), description)


def limit(default: int, *, most: int = MOST_ROWS) -> Schema:
    """Return the parameter that says how many rows are wanted."""
    return whole("limit", most, "how many rows at most", default=default)


def before(schema: Schema = TEXT) -> Schema:
    """Return the parameter that asks for what follows an earlier answer."""
    return in_query("before", schema, "`next` of the page before")


def table() -> Schema:
    """Return the name of a table of records in the address."""
    return in_path("table", one_of(TYPES), "which kind of record")


def _refused(refusals: Iterable[Refusal]) -> dict[int, Schema]:
    by_status: dict[int, dict[str, str]] = {}
    for status, code, when in refusals:
        by_status.setdefault(status, {})[code] = when
    return {status: _refusal(status, codes) for status, codes in by_status.items()}


def _refusal(status: int, codes: dict[str, str]) -> Schema:
    """Return an answer of the one shape all refusals have."""
    description = "; ".join(f"`{code}`: {when}" for code, when in codes.items())
    made = answer(description, ref("Error") | {"properties": {"error": one_of(codes)}})
    return made | ({"headers": {"Retry-After": RETRY_AFTER}} if status in COME_BACK else {})
