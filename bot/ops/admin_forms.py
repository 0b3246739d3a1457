"""POST /admin/...: sign in and out, run a task or handle a delivery again, tie failures to issues, reset tests.

A form is accepted only with the sign-in cookie and the key that our own pages put into it, against cross-site requests.
"""

from __future__ import annotations

import functools
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

import structlog
from aiohttp import web

from bot.ci.logs import failure_rows
from bot.ci.test_results import evaluate_states
from bot.ci.test_results.pages import result_rows
from bot.core import escaping
from bot.core.errors import Rejected
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import inbox, watched
from bot.ops import sessions
from bot.queue import queue_admin
from bot.web import access, parameters
from bot.web.app_keys import CONTEXT
from bot.web.bodies import read_body
from bot.web.refusal_limiter import REFUSAL_LIMITER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Handler = Callable[[web.Request], Awaitable[web.Response]]

log = structlog.get_logger("bot.ops.admin_forms")

LIMIT = 10_000  # bytes of a form
ADMINISTRATOR = "the administrator"  # who did it, in what is kept of it
MOST_FIELDS = 10
FORM: web.RequestKey[Mapping[str, str]] = web.RequestKey("form")  # a body is read once


def checks_form_key(handler: Handler) -> Handler:
    """Accept a form only from one of our own pages, sent by whoever signed in.

    Others get 403; browsers are sent to where one can sign in and press again.
    """

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        request[FORM] = form = await _form(request)
        given = form.get("key", "").encode("utf-8", "replace")
        if access.is_signed_in(request) and hmac.compare_digest(given, sessions.form_key(request).encode()):
            await request.app[CONTEXT].intake.show_arrived()
            return await handler(request)
        if "text/html" in request.headers.get("Accept", ""):
            return _redirect("/admin?again=1")
        raise Rejected(403, "forbidden", "sign in at /admin and use the button there")

    return checked


async def sign_in(request: web.Request) -> web.Response:
    """Exchange ADMIN_TOKEN for a cookie."""
    settings = request.app[CONTEXT].settings
    if not settings.admin_token:
        raise Rejected(404, "not_found", "this page is closed: set OOTBOT_ADMIN_TOKEN to open it")
    form = await _form(request)
    if not access.is_token(request, form.get("token", "")):
        detail = "that is not the ADMIN_TOKEN"
        refusal = request.app[REFUSAL_LIMITER].answer(request, Rejected(401, "invalid_token", detail))
        if refusal.status == 429:  # too many guesses
            raise refusal
        return _redirect("/admin?wrong=1")
    answer = _redirect("/admin")
    answer.set_cookie(
        sessions.COOKIE,
        await sessions.begin(request),
        max_age=sessions.LIFE,
        httponly=True,
        samesite="Strict",
        secure=settings.url.startswith("https://"),
    )
    return answer


@checks_form_key
async def sign_out(request: web.Request) -> web.Response:
    """End every session of the token, this one's cookie included."""
    await sessions.end_all(request)
    answer = _redirect("/admin?out=1")
    answer.del_cookie(sessions.COOKIE)
    return answer


@checks_form_key
async def retry(request: web.Request) -> web.Response:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await queue_admin.retry(tx, identifier)
    if found is None or found["state"] not in queue_admin.RETRYABLE:
        return _notice(f"task {identifier} cannot run again: it is {found['state'] if found else 'gone'}")
    return _notice(f"task {identifier} runs again")


@checks_form_key
async def replay(request: web.Request) -> web.Response:
    """Have a delivery handled again."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await inbox.replay(tx, guid)
    if found is None or found["state"] == "foreign":
        return _notice(
            f"delivery {guid} cannot be handled again: it is {found['state'] if found else 'gone'}"
        )
    return _notice(f"delivery {guid} is handled again")


@checks_form_key
async def tie(request: web.Request) -> web.Response:
    """Tie a failure to an issue, or untie it where no address is given."""
    form = request[FORM]
    signature, address = form.get("signature", "").strip().lower(), form.get("issue_url", "").strip()
    url = escaping.url(address)
    if address and url is None:
        return _notice("that is not the address of an issue: it begins with https:// and has no spaces")
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        known = await failure_rows.tie(tx, signature, url)
    if not known:
        return _notice("no failure has that signature: it is the end of the address of the failure's page")
    return _notice("the failure is tied to the issue" if address else "the failure is tied to no issue")


@checks_form_key
async def reset_test(request: web.Request) -> web.Response:
    """Call a test mended, as `ootbot tests reset` does."""
    repo, digest = parameters.repo(request), request.match_info["digest"]
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await result_rows.test_by_digest(tx, await watched.ids(tx, repo), digest)
        if found is None:
            raise Rejected(404, "unknown_test", f"no test of that id is known in {repo}")
        await evaluate_states.reset(tx, found["repository_id"], found["id"], by=ADMINISTRATOR)
    log.info("test reset", repo=repo, test=digest, by=ADMINISTRATOR)
    return _redirect(f"/{repo}/test/{digest}")


async def _form(request: web.Request) -> Mapping[str, str]:
    body = await read_body(request, limit=LIMIT)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        detail = f"a form of at most {MOST_FIELDS} fields is expected: use the button at /admin"
        raise Rejected(400, "invalid_form", detail) from None
    return {name: values[0] for name, values in fields.items()}


def _notice(words: str) -> web.Response:
    return _redirect("/admin?" + urlencode({"said": words}))


def _redirect(address: str) -> web.Response:
    """Redirect with GET, so that reloading the page sends nothing again."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "private, no-store"})


routes: list[web.RouteDef] = [
    web.post("/admin/sign-in", sign_in),
    web.post("/admin/sign-out", sign_out),
    web.post("/admin/failures", tie),
    web.post("/admin/tasks/{id}/retry", retry),
    web.post("/admin/tests/{owner}/{repo}/{digest:[0-9a-f]{16}}/reset", reset_test),
    web.post("/admin/deliveries/{guid}/replay", replay),
]
