"""POST /api/github/webhooks: which deliveries are GitHub's, and what is stored of them."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.errors import Rejected
from bot.core.json_fields import as_int, as_text, clean
from bot.ingest.inbox import Incoming
from bot.ingest.senders import Sender
from bot.web.bodies import decode_object, require_utf8
from bot.web.parameters import IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.context import Context
    from bot.core.settings import Settings

LIMIT = 25 * 1024 * 1024  # bytes; GitHub sends nothing larger
EVENT = re.compile(r"[a-z0-9_]{1,60}")
TARGET = "x-github-hook-installation-target-id"
KEPT_HEADERS = {
    name.lower(): name
    for name in (
        "X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID",
        "X-GitHub-Hook-Installation-Target-Type", "X-GitHub-Enterprise-Host", "X-GitHub-Enterprise-Version",
        "User-Agent",
    )
}  # fmt: skip
MOST_HEADER = 200  # characters of a kept header's value


class Reference(msgspec.Struct):
    """What identifies a member of a body."""

    id: Any = None
    full_name: Any = None


class Summary(msgspec.Struct):
    """The members of a body that the inbox stores."""

    action: Any = None
    repository: Reference | None = None
    installation: Reference | None = None


_decoder = msgspec.json.Decoder(Summary)


def admit(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Verify a delivery and return what is stored of it; raises Rejected 401, 400 or 415.

    Names of headers are in lower case here and below, or those of a mapping that ignores their case.
    """
    settings = context.settings
    verify(body, headers.get("x-hub-signature-256", ""), secrets_for(settings, headers.get(TARGET)))
    return read_delivery(headers, body, settings)


def verify(body: bytes, signature: str, secrets: tuple[str, ...]) -> None:
    """Check `sha256=<hex HMAC of the raw bytes>` against every secret in force; raises Rejected 401.

    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    received = signature.encode("utf-8", "replace")
    matches = [
        hmac.compare_digest(
            received, b"sha256=" + hmac.digest(secret.encode(), body, "sha256").hex().encode()
        )
        for secret in secrets
    ]
    if not any(matches):
        problem = "does not match" if signature else "is missing"
        raise Rejected(
            401,
            "invalid_signature",
            f"X-Hub-Signature-256 {problem}: check the App's webhook secret (WEBHOOK_SECRET)",
        )


def secrets_for(settings: Settings, target: str | None) -> tuple[str, ...]:
    """Return the secrets a delivery to this App may be signed with."""
    if settings.relay_app_id is not None and target == str(settings.relay_app_id):
        return settings.relay_webhook_secret or settings.webhook_secret
    if target == str(settings.app_id):
        return settings.webhook_secret
    return settings.webhook_secret + settings.relay_webhook_secret


def read_delivery(headers: Mapping[str, str], body: bytes, settings: Settings) -> Incoming:
    """Read what the inbox stores; raises Rejected 400 or 415."""
    if headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        raise Rejected(415, "unsupported_media_type", "set the webhook's content type to application/json")
    guid, event = headers.get("x-github-delivery", ""), headers.get("x-github-event", "")
    for name, value, pattern in (("X-GitHub-Delivery", guid, IDENTIFIER), ("X-GitHub-Event", event, EVENT)):
        if not pattern.fullmatch(value):
            raise Rejected(400, "invalid_header", f"the header {name} is missing or malformed")
    summary = peek(body)
    target = headers.get(TARGET)
    ours = {str(settings.app_id), str(settings.relay_app_id)}
    return Incoming(
        guid=guid,
        event=event,
        body=body,
        action=as_text(summary.action),
        repo=as_text(summary.repository.full_name) if summary.repository else None,
        repository_id=as_int(summary.repository.id) if summary.repository else None,
        installation_id=as_int(summary.installation.id) if summary.installation else None,
        app_id=int(target) if target and target.isdecimal() and len(target) < 19 else None,
        headers=kept_headers(headers),
        foreign=target is not None and target not in ours,
    )


def peek(body: bytes) -> Summary:
    """Read the few members that the inbox stores, skipping the rest; raises Rejected 400 unless it is a JSON object."""
    try:
        require_utf8(body)
        return _decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(decode_object(body))


def _lenient(data: dict[str, Any]) -> Summary:
    """Read what is readable of a body whose members do not have the types GitHub documents."""
    summary = Summary(action=data.get("action"))
    for name in ("repository", "installation"):
        if isinstance(inner := data.get(name), dict):
            setattr(summary, name, Reference(id=inner.get("id"), full_name=inner.get("full_name")))
    return summary


def kept_headers(headers: Mapping[str, str]) -> str | None:
    """Return the headers worth storing as JSON, cut and cleaned for any database; never a signature or a token."""
    kept = {
        name: clean(value[:MOST_HEADER]) for key, name in KEPT_HEADERS.items() if (value := headers.get(key))
    }
    return msgspec.json.encode(kept).decode() if kept else None


GITHUB = Sender(path="/api/github/webhooks", limit=LIMIT, admit=admit)
SENDERS = (GITHUB,)
