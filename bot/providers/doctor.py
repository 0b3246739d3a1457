"""Lines of `ootbot doctor` about other CIs: when they were last heard of, and what leads to nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp

from bot.core import json_fields
from bot.core.errors import StoreUnavailable, in_words
from bot.core.finding import Finding, ok, warning
from bot.core.json_fields import Unreadable
from bot.core.text import duration, plural
from bot.ingest import backlog
from bot.providers import rows
from bot.providers.sections import UNMAPPED_DAYS
from bot.providers.settings import providers_of
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.ops.doctor.target import Target
    from bot.providers.rows import UnmappedRow
    from bot.providers.settings import Provider

CHECK = "other CIs"
SILENT_DAYS = 7
SHOWN = 5  # projects
PATIENCE = 3.0  # seconds
SCOPES_PATH = "/v2/access-token"  # https://buildkite.com/docs/apis/rest-api/access-token
ANSWER_MOST = 64 * 1024  # bytes
REFUSED = re.compile(
    r'^ootbot_provider_refused_total\{provider="(\w+)",reason="invalid_signature"\} ([0-9.e+]+)$',
    re.MULTILINE,
)


async def check_providers(target: Target) -> list[Finding]:
    """Check every other CI of the settings."""
    kinds = sorted({one.kind for one in providers_of(target.settings)})
    if not kinds or not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            last = await rows.last_of_each(tx)
            unmapped = await rows.unmapped(tx, since=tx.now - UNMAPPED_DAYS * DAY, limit=SHOWN)
            pushed, now = await backlog.last_received(tx), tx.now
    except StoreUnavailable:
        return []  # another check says so
    found = [_heard(kind, last.get(kind), pushed, now) for kind in kinds]
    found += [_unmapped(one) for one in unmapped]
    found += [await _api_token(target, one) for one in providers_of(target.settings) if one.api_token]
    return found + await _refused(target)


def _heard(kind: str, at: int | None, pushed: int | None, now: int) -> Finding:
    """Say when a CI was last heard of; it is too long ago where GitHub was heard of since."""
    active = pushed is not None and now - pushed < SILENT_DAYS * DAY
    todo = "look at the webhook's own log there; `ootbot providers` says what its form should hold"
    if at is None:
        detail = f"no event of {kind} has ever arrived"
        return warning(CHECK, detail, todo)
    words = f"{kind} was last heard of {duration((now - at) / 1000)} ago"
    if active and now - at > SILENT_DAYS * DAY:
        return warning(CHECK, f"{words}, GitHub since", todo)
    return ok(CHECK, words)


def _unmapped(one: UnmappedRow) -> Finding:
    kind, _, project = one["repo"].partition(":")
    events = plural(one["events"], "event")
    detail = f"{events} of the {kind} project {project[:200]}, which is mapped to no repository"
    todo = "map it in PROVIDERS, then `ootbot providers --take-up`; or leave it out of the webhook"
    return warning(CHECK, detail, todo)


async def _api_token(target: Target, one: Provider) -> Finding:
    """Ask Buildkite what an API token may do: logs come by it."""
    scopes = " and ".join(one.api_scopes)
    todo = f"make one there with the scopes {scopes}, and put it into {one.api_variable}"
    headers, timeout = {"Authorization": f"Bearer {one.api_token}"}, aiohttp.ClientTimeout(total=PATIENCE)
    try:
        async with target.http.get(f"{one.api_url}{SCOPES_PATH}", headers=headers, timeout=timeout) as answer:
            status = answer.status
            body = json_fields.decode(await answer.content.read(ANSWER_MOST)) if status == 200 else {}
    except (aiohttp.ClientError, TimeoutError) as problem:
        return warning(CHECK, f"{one.api_url} cannot be asked: {in_words(problem)}", "look at the network")
    except Unreadable as problem:
        return warning(CHECK, f"{one.api_url} gave an odd answer: {problem}", "look at api_url")
    if status != 200:
        return warning(CHECK, f"Buildkite answered {status} to the API token in {one.api_variable}", todo)
    given = json_fields.read_member(body, ("scopes",), json_fields.Kind.TEXTS) or ()
    if lacking := set(one.api_scopes) - set(given):
        words = f"the API token in {one.api_variable} lacks {' and '.join(sorted(lacking))}"
        return warning(CHECK, words, todo)
    return ok(CHECK, f"the API token in {one.api_variable} has {scopes}")


async def _refused(target: Target) -> list[Finding]:
    """Ask the running bot how many signatures were wrong since it started; it may not be running."""
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with target.http.get(f"http://{target.settings.listening}/metrics", timeout=timeout) as answer:
            text = await answer.text() if answer.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
        return []
    found = [(kind, round(float(count))) for kind, count in REFUSED.findall(text) if float(count)]
    todo = "compare the secret there with the variable that PROVIDERS names, and the clock"
    return [
        warning(
            CHECK, f"{plural(count, 'request')} of {kind} had a wrong signature since the bot started", todo
        )
        for kind, count in found
    ]
