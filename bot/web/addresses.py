"""Parts of addresses, read and checked; refusals name the allowed range."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from aiohttp import web

from bot.core import escaping
from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DAYS = 30
REPORTED = ("pull_request", "push", "nightly", "periodic")  # what results are about
WINDOWS = (1, 7, 30, 90)  # days offered for choice
MOST_DAYS = 400
EPOCH = date(1970, 1, 1)
MOST_WORDS = 200  # characters of a search
IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,100}")
DATE = re.compile(r"(?:19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}")  # since EPOCH, if it is a day
SHA = re.compile(r"[0-9a-f]{7,64}")
_PART = re.compile(r"\{(\w+)\}")
_REPOSITORY = re.compile(r"\{(?:owner|org)\}/\{repo\}")
NAME, OFF = "refresh", "off"
FASTEST, SLOWEST = 15, 3_600  # seconds
SUGGESTED = 60  # seconds, where a reader turns it on
FAILED = 30  # seconds until a failed page is tried again


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """How one page refreshes."""

    seconds: int  # 0: never
    chosen: str  # what its address says: seconds, `off`, or nothing
    toggle: str  # a link to the same page with refreshing turned on or off

    @property
    def rest(self) -> str:
        """The suffix of queries in links to the same page, so that they keep the choice."""
        return f"&{NAME}={self.chosen}" if self.chosen else ""


def is_storable(*texts: str) -> bool:
    """Whether both databases can store these texts, and look them up: no NUL, no halves of characters.

    The one check of all text that a request brings, but for its body, which is cleaned as it is read (`json_fields`).
    """
    return all(clean(text) == text for text in texts)


def require_storable_address(request: web.Request) -> None:
    """Check path and query, before anything reads them; raises Rejected 400."""
    query = [text for pair in request.query.items() for text in pair] if request.query_string else []
    if not is_storable(request.path, *query):
        detail = "the address has characters that are no text: NUL, or bytes that are not UTF-8"
        raise Rejected(400, "invalid_parameter", detail)


def given(request: web.Request, name: str) -> str:
    """Return a parameter as it was given, "" without it; raises Rejected 400.

    Programs are told when it is empty or repeated, as neither is what they mean; the forms of pages send both.
    """
    values = request.query.getall(name, [])
    if request.path.startswith("/api/") and (len(values) > 1 or "" in map(str.strip, values)):
        wrong = "be given once" if len(values) > 1 else "have a value, or be left out"
        raise Rejected(400, "invalid_parameter", f"{name} must {wrong}")
    return values[0].strip() if values else ""


def query(chosen: Mapping[str, object]) -> str:
    """Return the query of a link to the API, without the parameters that have no value."""
    return urlencode({name: value for name, value in chosen.items() if value != ""}, errors="replace")


def address(request: web.Request, path: str, parts: Mapping[str, object]) -> str:
    """Return the address of a route: these parts of its path, the others as in the request, the rest as its query.

    `repo` is a full name.
    """
    text, rest = canonical(path), dict(parts)
    if "repo" in rest:
        text = _REPOSITORY.sub(str(rest.pop("repo")), text)
    for name in _PART.findall(text):
        part = rest.pop(name) if name in rest else request.match_info[name]
        text = text.replace(f"{{{name}}}", quote(str(part)))
    asked = query(rest)
    return f"{text}?{asked}" if asked else text


@functools.cache
def canonical(path: str) -> str:
    """Return the path of a route with the names of its parts, without their patterns."""
    return web.DynamicResource(path).canonical


def needed(request: web.Request, name: str) -> str:
    """Return a parameter that may not be left out; raises Rejected 400."""
    text = given(request, name)
    if not text:
        raise Rejected(400, "invalid_parameter", f"{name} is missing")
    return text


def days(request: web.Request) -> int:
    """Return the window in days."""
    return whole(request, "days", default=DAYS, most=MOST_DAYS)


def day(name: str, text: str) -> int:
    """Return a day, written as 2026-11-25, as its number since 1970; raises Rejected 400."""
    try:
        parsed = date.fromisoformat(text) if DATE.fullmatch(text) else None
    except ValueError:
        parsed = None
    if parsed is None:
        raise Rejected(400, "invalid_parameter", f"{name} must be a day since 1970, as in 2026-11-25")
    return (parsed - EPOCH).days


def level(request: web.Request) -> int | None:
    """Return the level asked for, None for all."""
    return whole(request, "level", default=0, most=4) or None


def words(request: web.Request) -> str:
    """Return the search words, which the page repeats: on one line, short, without invisible characters."""
    return escaping.one_line(given(request, "q")[:MOST_WORDS])


def windows(days: int) -> list[int]:
    """Return the windows offered for choice, with the one chosen."""
    return sorted({*WINDOWS, days})


def choice(request: web.Request, name: str, choices: Iterable[str]) -> str:
    """Return one of some words, the first when it is absent; raises Rejected 400."""
    known = list(choices)
    text = given(request, name) or known[0]
    if text not in known:
        allowed = ", ".join(word for word in known if word)
        raise Rejected(400, "invalid_parameter", f"{name} must be one of {allowed}, or left out")
    return text


def limit(request: web.Request, *, default: int, most: int = 500) -> int:
    """Return how many rows are asked for."""
    return whole(request, "limit", default=default, most=most)


def whole(request: web.Request, name: str, *, default: int, most: int) -> int:
    """Return a whole number from 1 to `most`, the default when it is absent or empty; raises Rejected 400."""
    text = given(request, name)
    if not text:
        return default
    wanted = number(text)
    if not 1 <= wanted <= most:
        raise Rejected(400, "invalid_parameter", f"{name} must be a whole number from 1 to {most:,}")
    return wanted


def events(request: web.Request) -> frozenset[str] | None:
    """Return the events asked for, None for all; raises Rejected 400."""
    names = frozenset(name.strip() for name in given(request, "event").split(",") if name.strip())
    if names - set(REPORTED):
        detail = f"event must be one of {', '.join(REPORTED)}, or several of them with commas between"
        raise Rejected(400, "invalid_parameter", detail)
    return names or None


def sha(request: web.Request) -> str | None:
    """Return the commit asked for, or its beginning; None for the current one."""
    text = given(request, "sha")
    return commit(text) if text else None


def commit(text: str) -> str:
    """Return a commit's SHA, or the beginning of one; raises Rejected 400."""
    if not SHA.fullmatch(text.lower()):
        raise Rejected(400, "invalid_parameter", "a commit is written as 7 to 64 hexadecimal digits")
    return text.lower()


def repo(request: web.Request, owner: str = "owner") -> str:
    """Return owner/name of the repository in the path; raises Rejected 404 for an impossible name."""
    name = f"{request.match_info[owner]}/{request.match_info['repo']}"
    if not FULL_NAME.fullmatch(name):
        raise Rejected(404, "not_found", "a repository is written as owner/name")
    return name


def guid(request: web.Request) -> str:
    """Return the GUID of the delivery in the path; raises Rejected 404 for an impossible one."""
    text = request.match_info["guid"]
    if not IDENTIFIER.fullmatch(text):
        raise no_delivery(text)
    return text


def no_delivery(guid: str) -> Rejected:
    """Return the refusal for a delivery that is not held."""
    return Rejected(404, "not_found", f"no delivery {guid[:100]} is held here")


def before(request: web.Request, texts: Sequence[bool]) -> tuple[str | int, ...] | None:
    """Return the position to continue from, the `next` of an earlier answer; None at the beginning.

    `texts` says for each of its parts whether it is text or a number. Raises Rejected 400.
    """
    text = given(request, "before")
    if not text:
        return None
    parts = text.split(".", len(texts) - 1)
    values = tuple(part if is_text else number(part) for part, is_text in zip(parts, texts, strict=False))
    if len(values) != len(texts) or not all(values) or not IDENTIFIER.fullmatch(text):
        raise Rejected(400, "invalid_parameter", "before must be the `next` of an earlier answer")
    return values


def before_id(request: web.Request) -> int | None:
    """Return the id to continue from, the `next` of an earlier answer; None at the beginning; raises Rejected 400."""
    return whole(request, "before", default=0, most=10**18 - 1) or None


def following(values: Iterable[object]) -> str:
    """Return the `before` of the page that follows a row with these values."""
    return ".".join(map(str, values))


def number(text: str) -> int:
    """Return an id or number of the path; 0, which GitHub never uses, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def read_refresh(request: web.Request, *, default: int = 0) -> Refresh:
    """Return what the address says, else every `default` seconds, 0 for never; raises Rejected 400."""
    chosen = request.query.get(NAME, "").strip()
    seconds = number(chosen)
    if chosen not in {"", OFF} and not FASTEST <= seconds <= SLOWEST:
        detail = f"{NAME} must be {OFF} or a whole number of seconds from {FASTEST} to {SLOWEST:,}"
        raise Rejected(400, "invalid_parameter", detail)
    return _made(request, chosen=chosen, seconds=seconds if chosen else default, default=default)


def refresh_after_failure(request: web.Request) -> Refresh:
    """Return when a failed page is tried again, for screens on walls."""
    off = request.query.get(NAME) == OFF
    return _made(request, chosen=OFF if off else "", seconds=0 if off else FAILED, default=FAILED)


def _made(request: web.Request, *, chosen: str, seconds: int, default: int) -> Refresh:
    """Return the setting and the link that toggles it, with the shortest query."""
    wanted = (OFF if default else "") if seconds else ("" if default else str(SUGGESTED))
    kept = [(name, value) for name, value in request.query.items() if name != NAME]
    query = urlencode([*kept, *([(NAME, wanted)] if wanted else [])], errors="replace")
    return Refresh(seconds=seconds, chosen=chosen, toggle=f"?{query}")
