"""Webhook deliveries to Apps: signed and logged, never retried automatically."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from bot.demo.github import payloads
from bot.demo.github.models import Delivery, receives

if TYPE_CHECKING:
    from bot.demo.github.accounts import App
    from bot.demo.github.faults import Fault, Faults
    from bot.demo.github.models import Event
    from bot.demo.github.state import GitHubState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence


ACCEPTED = 202
TIMEOUT = 10.0  # seconds within which an App must answer


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a delivery as the log shows it."""

    status_code: int
    status: str
    answer: str = ""


class Webhooks:
    """Delivery of events to all Apps."""

    def __init__(self, state: GitHubState, faults: Faults) -> None:
        self._world = state
        self._faults = faults
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Open the HTTP session; needs a running event loop."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session:
            await self._session.close()
            self._session = None

    async def emit(self, event: Event) -> list[Delivery]:
        """Send an event to every App that receives it, with one GUID; return when all have answered."""
        guid = str(uuid.uuid4())
        bodies = [
            (each.app, payloads.envelope(self._world, event, each))
            for each in self._world.installed_on(event.repo)
            if receives(each, event)
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
        """Deliver a body and log it; None when the App has no webhook or a fault dropped the event."""
        action = payload.get("action")
        fault = self._faults.take("HOOK", f"{event}.{action}" if action else event)
        if app.webhook_url is None or (fault and fault.drop and fault.when == "before"):
            return None
        body = json.dumps(payload).encode() if raw is None else raw
        headers = self._headers(app, event, guid, body)
        started = self._world.now()
        outcome = await self._deliver(app, body, headers, fault)
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
            status=outcome.status,
            status_code=outcome.status_code,
            delivered_at=started,
            duration=(ended - started) / 1000,
            redelivery=redelivery,
            repository_id=_id_in(payload, "repository"),
            installation_id=_id_in(payload, "installation"),
            answer=outcome.answer,
        )
        self._world.deliveries.append(delivery)
        return delivery

    async def tell(
        self,
        events: Sequence[Event],
        *,
        at_once: int = 16,
        told: Callable[[int, int], None] | None = None,
    ) -> None:
        """Deliver what happened long ago, so many at a time; the log of deliveries has forgotten it.

        `told` is called with how many have been delivered, and out of how many. Raises RuntimeError when one is
        refused.
        """
        slots, done = asyncio.Semaphore(at_once), 0

        async def one(app: App, name: str, body: bytes) -> None:
            nonlocal done
            async with slots:
                status, answer = await self._post(
                    str(app.webhook_url), body, self._headers(app, name, str(uuid.uuid4()), body)
                )
            if status != ACCEPTED:
                raise RuntimeError(f"{name} was answered with {status}: {answer[:200]}")
            done += 1
            if told:
                told(done, len(tasks))

        tasks = []
        async with asyncio.TaskGroup() as group:
            for event in events:
                for each in self._world.installed_on(event.repo):
                    if receives(each, event) and each.app.webhook_url is not None:
                        body = json.dumps(payloads.envelope(self._world, event, each)).encode()
                        tasks.append(group.create_task(one(each.app, event.name, body)))

    async def redeliver(self, delivery: Delivery) -> Delivery | None:
        """Send a logged body again with its GUID, signed with the current secret."""
        return await self.send(
            delivery.app,
            delivery.event,
            delivery.payload,
            guid=delivery.guid,
            raw=delivery.raw,
            redelivery=True,
        )

    async def _deliver(self, app: App, body: bytes, headers: dict[str, str], fault: Fault | None) -> Outcome:
        if fault and fault.delay:
            await self._world.clock.sleep(fault.delay)
        if fault and fault.replaces and fault.when == "before":
            return Outcome(status_code=fault.status or 502, status="failed to connect to host")
        try:
            status, text = await self._post(str(app.webhook_url), body, headers)
        except TimeoutError:
            return Outcome(status_code=504, status="timed out")
        except aiohttp.ClientError:
            return Outcome(status_code=502, status="failed to connect to host")
        if fault and fault.replaces:
            return Outcome(status_code=fault.status or 504, status="timed out")
        words = "OK" if 200 <= status < 300 else f"Invalid HTTP Response: {status}"
        return Outcome(status_code=status, status=words, answer=text)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        if self._session is None:
            raise RuntimeError("start() the simulated GitHub before acting on it")
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


class BackgroundTasks:
    """Running tasks, and the errors of those that failed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Start a task; its error is raised by `settled` or `close`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def settled(self) -> None:
        """Return when no task is running, including tasks that were started by tasks."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # lets the done callbacks run before the set is checked again
        self._raise()

    async def close(self) -> None:
        """Cancel the running tasks and wait for them to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)
        self._raise()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failures.append(failure)

    def _raise(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
