"""POST /api/github/webhooks: is this GitHub, and is it stored? Answers 202 only after the commit."""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot import metrics
from bot.domain.headers import worth_keeping
from bot.domain.reading import as_int, as_text
from bot.errors import Rejected
from bot.store.inbox import Incoming
from bot.web.bodies import LARGE, decode_object, read_body, require_utf8
from bot.web.keys import CONTEXT
from bot.web.parameters import IDENTIFIER

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from bot.settings import Settings

LIMIT = 25 * 1024 * 1024  # bytes; GitHub sends nothing larger
EVENT = re.compile(r"[a-z_]{1,60}")


class Named(msgspec.Struct):
    """What a member of a body is identified by."""

    id: Any = None
    full_name: Any = None


class About(msgspec.Struct):
    """What the inbox wants to know of a body."""

    action: Any = None
    repository: Named | None = None
    installation: Named | None = None


_about = msgspec.json.Decoder(About)


async def receive(request: web.Request) -> web.Response:
    """Verify, store, acknowledge."""
    context = request.app[CONTEXT]
    body = await read_body(request, limit=LIMIT)
    if len(body) > LARGE:
        incoming = await asyncio.to_thread(admit, request.headers, body, context.settings)
    else:
        incoming = admit(request.headers, body, context.settings)

    new = await context.store.intake.put(incoming)
    (metrics.STORED if new else metrics.DUPLICATES).inc()
    return acknowledge(incoming.guid, new=new)


def admit(headers: CIMultiDictProxy[str], body: bytes, settings: Settings) -> Incoming:
    """Return what is to be stored of a genuine delivery; raises Rejected 401, 400 or 415."""
    target = headers.get("X-GitHub-Hook-Installation-Target-ID")
    verify(body, headers.get("X-Hub-Signature-256", ""), secrets_for(settings, target))
    return read_delivery(headers, body, settings)


def acknowledge(guid: str, *, new: bool) -> web.Response:
    """Return the 202 that says a delivery is safe."""
    answer: dict[str, Any] = {"ok": True, "delivery": guid}
    body = msgspec.json.encode(answer if new else answer | {"duplicate": True})
    return web.Response(body=body, status=202, content_type="application/json")


def verify(body: bytes, signature: str, secrets: tuple[str, ...]) -> None:
    """Check `sha256=<hex HMAC of the raw bytes>` against every secret in force; raises Rejected 401.

    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    given = signature.encode("utf-8", "replace")
    matches = [
        hmac.compare_digest(given, b"sha256=" + hmac.digest(secret.encode(), body, "sha256").hex().encode())
        for secret in secrets
    ]
    if not any(matches):
        what = "does not match" if signature else "is missing"
        raise Rejected(
            401,
            "invalid_signature",
            f"X-Hub-Signature-256 {what}: check the App's webhook secret (WEBHOOK_SECRET)",
        )


def secrets_for(settings: Settings, target: str | None) -> tuple[str, ...]:
    """Return the secrets a delivery to this App may be signed with."""
    if settings.relay_app_id is not None and target == str(settings.relay_app_id):
        return settings.relay_webhook_secret or settings.webhook_secret
    if target == str(settings.app_id):
        return settings.webhook_secret
    return settings.webhook_secret + settings.relay_webhook_secret


def read_delivery(headers: CIMultiDictProxy[str], body: bytes, settings: Settings) -> Incoming:
    """Read what the inbox wants to know; raises Rejected 400 or 415."""
    if headers.get("Content-Type", "").lower().startswith("application/x-www-form-urlencoded"):
        raise Rejected(415, "unsupported_media_type", "set the webhook's content type to application/json")
    guid, event = headers.get("X-GitHub-Delivery", ""), headers.get("X-GitHub-Event", "")
    for name, value, form in (("X-GitHub-Delivery", guid, IDENTIFIER), ("X-GitHub-Event", event, EVENT)):
        if not form.fullmatch(value):
            raise Rejected(400, "invalid_header", f"the header {name} is missing or malformed")
    about = peek(body)
    target = headers.get("X-GitHub-Hook-Installation-Target-ID")
    ours = {str(settings.app_id), str(settings.relay_app_id)}
    return Incoming(
        guid=guid,
        event=event,
        body=body,
        action=as_text(about.action),
        repo=as_text(about.repository.full_name) if about.repository else None,
        repository_id=as_int(about.repository.id) if about.repository else None,
        installation_id=as_int(about.installation.id) if about.installation else None,
        app_id=int(target) if target and target.isdecimal() and len(target) < 19 else None,
        headers=worth_keeping(headers),
        foreign=target is not None and target not in ours,
    )


def peek(body: bytes) -> About:
    """Read the few members the inbox names, skipping the rest; raises Rejected 400 unless it is a JSON object."""
    try:
        require_utf8(body)
        return _about.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(decode_object(body))


def _lenient(data: dict[str, Any]) -> About:
    """Read what can be read of a body whose members are not of the types GitHub documents."""
    about = About(action=data.get("action"))
    for name in ("repository", "installation"):
        if isinstance(inner := data.get(name), dict):
            setattr(about, name, Named(id=inner.get("id"), full_name=inner.get("full_name")))
    return about
