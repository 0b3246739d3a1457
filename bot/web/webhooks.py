"""POST /api/github/webhooks: is this GitHub, and is it stored? Answers 202 only after the commit."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot import metrics
from bot.domain.reading import as_int, as_text
from bot.errors import Rejected
from bot.store import inbox
from bot.store.inbox import Incoming
from bot.web.bodies import decode_object, read_body
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from bot.settings import Settings
    from bot.store import Transaction

LIMIT = 25 * 1024 * 1024  # bytes; GitHub sends nothing larger
GUID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
EVENT = re.compile(r"[a-z_]{1,60}")


async def receive(request: web.Request) -> web.Response:
    """Verify, store, acknowledge."""
    context = request.app[CONTEXT]
    body = await read_body(request, limit=LIMIT)
    target = request.headers.get("X-GitHub-Hook-Installation-Target-ID")
    verify(body, request.headers.get("X-Hub-Signature-256", ""), secrets_for(context.settings, target))
    incoming = read_delivery(request.headers, body, context.settings)

    async def store(tx: Transaction) -> bool:
        return await inbox.put(tx, incoming)

    new = await context.store.write(store)
    metrics.DELIVERIES.labels("stored" if new else "duplicate").inc()
    answer: dict[str, Any] = {"ok": True, "delivery": incoming.guid}
    return web.json_response(answer if new else answer | {"duplicate": True}, status=202)


def verify(body: bytes, signature: str, secrets: tuple[str, ...]) -> None:
    """Check `sha256=<hex HMAC of the raw bytes>` against every secret in force; raises Rejected 401.

    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    given = signature.encode("utf-8", "replace")
    matches = [
        hmac.compare_digest(
            given, b"sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode()
        )
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
    for name, value, form in (("X-GitHub-Delivery", guid, GUID), ("X-GitHub-Event", event, EVENT)):
        if not form.fullmatch(value):
            raise Rejected(400, "invalid_header", f"the header {name} is missing or malformed")
    data = decode_object(body)
    target = headers.get("X-GitHub-Hook-Installation-Target-ID")
    ours = {str(settings.app_id), str(settings.relay_app_id)}
    return Incoming(
        guid=guid,
        event=event,
        body=body,
        action=as_text(data.get("action")),
        repo=as_text(_member(data, "repository", "full_name")),
        repository_id=as_int(_member(data, "repository", "id")),
        installation_id=as_int(_member(data, "installation", "id")),
        app_id=int(target) if target and target.isdecimal() and len(target) < 19 else None,
        foreign=target is not None and target not in ours,
    )


def _member(data: dict[str, Any], name: str, inner: str) -> Any:
    outer = data.get(name)
    return outer.get(inner) if isinstance(outer, dict) else None
