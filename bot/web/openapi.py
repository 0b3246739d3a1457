"""Operations and refusals: how a part of the bot describes its addresses for the OpenAPI document."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.web.addresses import IDENTIFIER
from bot.web.answers import matching

if TYPE_CHECKING:
    from collections.abc import Sequence

Schema = dict[str, Any]
Refusal = tuple[int, str, str]  # status, code, when it is sent

MOST_ROWS = 500  # of a list, as `parameters.limit` has it
Number = Annotated[int, Meta(ge=1)]
# something else than spaces, which are left out at both ends: those of Unicode, and four of ASCII's separators
Text = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": r"[^\s\x00\x1c-\x1f\x85\ufeff]"})]
Position = Annotated[str, matching(IDENTIFIER)]
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


@dataclass(frozen=True)
class Topic:
    """A group of operations in the document."""

    name: str
    description: str


@dataclass(frozen=True)
class Caller:
    """A kind of caller, and the header that authenticates it."""

    name: str
    description: str
    header: str = "Authorization"  # with a bearer token


@dataclass(frozen=True, eq=False)
class Content:
    """A body: its type, and a description where the type's docstring does not serve."""

    type: Any  # as msgspec knows it
    description: str = ""
    example: Any = None
    media_type: str = "application/json"


@dataclass(frozen=True)
class Operation:
    """A method of one address."""

    address: str  # method and path: GET /api/...
    name: str  # unique
    summary: str
    answer: Any  # a type, a Content, or a dict of those by status
    _: KW_ONLY
    topic: Topic
    callers: Sequence[Caller | None] = (None,)  # any of these; None: without authentication
    status: int = 200
    refusals: Sequence[Refusal] = ()
    parameters: Sequence[Schema] = ()
    body: Content | None = None
    named: Sequence[type] = ()  # structs that the types refer to by name only
    description: str = ""

    @cached_property
    def answers(self) -> dict[int, Content]:
        """The answers by status, refusals left out."""
        declared = self.answer if isinstance(self.answer, dict) else {self.status: self.answer}
        return {
            code: content if isinstance(content, Content) else Content(content)
            for code, content in declared.items()
        }


RECEIVING = Topic("Receiving", "Where webhooks and reports come in.")
RUNNING = Topic("Operation", "Does it run?")
CI = Topic("CI", "The repositories' own CI, as the App collects it.")
ADMIN = Caller("admin", "the setting ADMIN_TOKEN; reads want it for what is private only")
READER = (None, ADMIN)  # what is private takes the token


class DeclaredRefusal(NamedTuple):
    """A refusal as an operation declares it."""

    status: int
    code: str
    when: str

    def because(self, detail: str) -> Rejected:
        """Return the error to raise; `detail` says what is wrong with this request."""
        return Rejected(self.status, self.code, detail)


NOT_FOUND = DeclaredRefusal(404, "not_found", "not the name of a repository, or of nothing here")
UNKNOWN_REPOSITORY = DeclaredRefusal(404, "unknown_repository", "nothing of that name may be shown")
UNKNOWN_BRANCH = DeclaredRefusal(404, "unknown_branch", "the repository has no branch of that name here")
UNKNOWN_COMMIT = DeclaredRefusal(404, "unknown_commit", "`before` is not on the branch")
UNKNOWN_BACKEND = DeclaredRefusal(404, "unknown_backend", "`backend` is not listed")
INVALID_PARAMETER = DeclaredRefusal(
    400, "invalid_parameter", "a parameter is wrong; `detail` says what it may be"
)


def in_path(name: str, kind: Any, description: str) -> Schema:
    """Return a part of the address, of a type that msgspec knows."""
    return _parameter(name, kind, description, place="path", required=True)


def in_query(name: str, kind: Any, description: str, **default: Any) -> Schema:
    """Return a parameter that may be left out."""
    made = _parameter(name, kind, description, place="query", required=False)
    return made | {"schema": made["schema"] | default}


def needed(name: str, kind: Any, description: str) -> Schema:
    """Return a parameter that may not be left out."""
    return _parameter(name, kind, description, place="query", required=True)


def in_header(name: str, kind: Any, description: str, *, required: bool = True) -> Schema:
    """Return a header."""
    return _parameter(name, kind, description, place="header", required=required)


def repository(owner: str = "owner") -> tuple[Schema, Schema]:
    """Return the two parts of a repository's name in the address."""
    first, last = FULL_NAME.pattern.split("/")
    return (
        in_path(owner, Annotated[str, matching(first)], "owner of the repository"),
        in_path("repo", Annotated[str, matching(last)], "name of the repository"),
    )


def whole(name: str, most: int, description: str, **default: int) -> Schema:
    """Return a parameter that is a whole number from 1."""
    return in_query(name, Annotated[int, Meta(ge=1, le=most)], description, **default)


def limit(default: int, *, most: int = MOST_ROWS) -> Schema:
    """Return the parameter that says how many rows are wanted."""
    return whole("limit", most, "how many rows at most", default=default)


def before(kind: Any = Position) -> Schema:
    """Return the parameter that asks for what follows an earlier answer."""
    return in_query("before", kind, "`next` of the page before")


def unknown_backend(name: str) -> Rejected:
    """Return the refusal of a backend that is not listed, or hidden."""
    return UNKNOWN_BACKEND.because(f"no backend {name[:200]} is listed here")


def _parameter(name: str, kind: Any, description: str, *, place: str, required: bool) -> Schema:
    schema = msgspec.json.schema(kind)
    return {"name": name, "in": place, "required": required, "description": description, "schema": schema}
