"""How do Apps hear of an event? Signed deliveries, a log of them, no second try by itself."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp

from bot.demo.github import payloads
from bot.demo.github.records import Delivery, Event
from bot.demo.github.subscriptions import hears

if TYPE_CHECKING:
    from bot.demo.github.accounts import App
    from bot.demo.github.faults import Fault, Faults
    from bot.demo.github.world import World

DEADLINE = 10.0  # seconds an App has to answer


class Hooks:
    """The delivery service of all Apps."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Start delivering; needs a running loop."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE))

    async def close(self) -> None:
        """Hang up."""
        if self._session:
            await self._session.close()
            self._session = None

    async def emit(self, event: Event) -> list[Delivery]:
        """Tell every App that should hear of it, under one GUID; return when all have answered."""
        guid = str(uuid.uuid4())
        bodies = [
            (each.app, payloads.envelope(self._world, event, each))
            for each in self._world.installed_on(event.repo)
            if hears(each, event)
        ]
        sent = [await self.send(app, event.name, body, guid=guid) for app, body in bodies]
        return [each for each in sent if each]

    async def send(
        self,
        app: App,
        event: str,
        payload: dict[str, Any],
        *,
        guid: str,
        raw: bytes | None = None,
        redelivery: bool = False,
    ) -> Delivery | None:
        """Deliver one body and log it. None when the App has no hook, or the event got lost."""
        action = payload.get("action")
        fault = self._faults.take("HOOK", f"{event}.{action}" if action else event)
        if app.webhook_url is None or (fault and fault.drop and fault.when == "before"):
            return None
        body = json.dumps(payload).encode() if raw is None else raw
        headers = self._headers(app, event, guid, body)
        started = self._world.now()
        status_code, status, answer = await self._attempt(app, body, headers, fault)
        ended = self._world.now()
        delivery = Delivery(
            id=self._world.new_id(),
            guid=guid,
            app=app,
            event=event,
            action=action if isinstance(action, str) else None,
            payload=payload,
            raw=body,
            headers=headers,
            status=status,
            status_code=status_code,
            delivered_at=started,
            duration=(ended - started) / 1000,
            redelivery=redelivery,
            repository_id=_id_in(payload, "repository"),
            installation_id=_id_in(payload, "installation"),
            answer=answer,
        )
        self._world.deliveries.append(delivery)
        return delivery

    async def again(self, delivery: Delivery) -> Delivery | None:
        """Send a logged body once more under its GUID, signed with the secret of today."""
        return await self.send(
            delivery.app,
            delivery.event,
            delivery.payload,
            guid=delivery.guid,
            raw=delivery.raw,
            redelivery=True,
        )

    async def _attempt(
        self, app: App, body: bytes, headers: dict[str, str], fault: Fault | None
    ) -> tuple[int, str, str]:
        """Return status code, status and answer of one attempt, as the log shows them."""
        if fault and fault.delay:
            await self._world.clock.sleep(fault.delay)
        if fault and fault.replaces and fault.when == "before":
            return fault.status or 502, "failed to connect to host", ""
        try:
            status, text = await self._post(str(app.webhook_url), body, headers)
        except TimeoutError:
            return 504, "timed out", ""
        except aiohttp.ClientError:
            return 502, "failed to connect to host", ""
        if fault and fault.replaces:
            return fault.status or 504, "timed out", ""
        return status, "OK" if 200 <= status < 300 else f"Invalid HTTP Response: {status}", text

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        if self._session is None:
            raise RuntimeError("start() the simulated GitHub before anything happens on it")
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            return response.status, await response.text(errors="replace")

    def _headers(self, app: App, event: str, guid: str, body: bytes) -> dict[str, str]:
        headers = {
            "Accept": "*/*",
            "Content-Type": "application/json",
            "User-Agent": f"GitHub-Hookshot/{app.app_id:07x}",
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": event,
            "X-GitHub-Hook-ID": str(app.app_id * 10),
            "X-GitHub-Hook-Installation-Target-ID": str(app.app_id),
            "X-GitHub-Hook-Installation-Target-Type": "integration",
        }
        if app.webhook_secret:
            headers["X-Hub-Signature"] = f"sha1={_sign(app, body, 'sha1')}"
            headers["X-Hub-Signature-256"] = f"sha256={_sign(app, body, 'sha256')}"
        return headers


def _sign(app: App, body: bytes, algorithm: str) -> str:
    return hmac.new(app.webhook_secret.encode(), body, getattr(hashlib, algorithm)).hexdigest()


def _id_in(payload: dict[str, Any], name: str) -> int | None:
    value = payload.get(name)
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None
