"""POST /api/circleci/webhooks and /api/buildkite/webhooks: whose an event is, and what is stored of it.

A secret vouches for its own projects only: an event of any other is stored as foreign, and nothing follows from it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bot.core import metrics
from bot.core.errors import Rejected
from bot.core.json_fields import Unreadable, clean
from bot.ingest.inbox import Incoming
from bot.ingest.senders import Sender
from bot.providers import agents, buildkite, events, signatures
from bot.providers.guide import PATHS
from bot.providers.settings import BUILDKITE, CIRCLECI, PROJECT_MOST, normalize_project, providers_of
from bot.web.bodies import require_utf8
from bot.web.parameters import IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.providers.settings import Provider

LIMIT = 2 * 1024 * 1024  # bytes of a body
WORD = re.compile(r"[a-z][a-z0-9_.-]{0,39}")  # an event
UNKNOWN = "unknown"
KNOWN = frozenset((*events.CIRCLECI_EVENTS, *events.BUILDKITE_EVENTS))


class Part(msgspec.Struct):
    """What identifies one of an event's objects, and what of it changes; the rest is skipped."""

    id: Any = None
    slug: Any = None
    web_url: Any = None
    url: Any = None
    state: Any = None
    blocked: Any = None
    commit: Any = None
    runnable_at: Any = None
    started_at: Any = None
    finished_at: Any = None
    exit_status: Any = None
    soft_failed: Any = None
    retried_in_job_id: Any = None


NOTHING = Part()


class Told(msgspec.Struct):
    """The members that say what an event is about."""

    id: Any = None
    type: Any = None
    event: Any = None
    build: Part | None = None
    job: Part | None = None
    workflow: Part | None = None
    project: Part | None = None
    pipeline: Part | None = None
    agent: Part | None = None


_decoder = msgspec.json.Decoder(Told)
_encode = msgspec.json.Encoder().encode


class Subject(NamedTuple):
    """What an event is about."""

    event: str
    project: str | None  # None: of no project
    repo: str | None
    ignored: str  # why nothing follows from it


def admit_circleci(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Return what is stored of an event of CircleCI; raises Rejected 404, 401 or 400."""
    known = _require_open(context.settings, CIRCLECI)
    given = headers.get("circleci-signature", "")
    matching = _matching(known, signatures.verify_circleci(given, body, _secrets(known)))
    if not matching:
        raise _unsigned("circleci-signature", given, "the secret of the webhook")
    told = peek(body)
    event = headers.get("circleci-event-type") or told.type
    if told.job is not None and event in events.CIRCLECI_EVENTS:
        event = events.JOB_COMPLETED  # some of CircleCI's own samples call it the other one
    subject = circleci_subject(told, event, matching)
    identifier = told.id
    if identifier is None and subject.event.rpartition(".")[2] not in events.CIRCLECI_EVENTS:
        identifier = hashlib.sha256(body).hexdigest()  # of a test
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(f"{CIRCLECI}:{identifier}"):
        raise _invalid("id")
    return _incoming(CIRCLECI, f"{CIRCLECI}:{identifier}", body, subject)


def admit_buildkite(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Return what is stored of an event of Buildkite, which has no id: one is made of it.

    Raises Rejected 404, 401 or 400.
    """
    known = _require_open(context.settings, BUILDKITE)
    given, token = headers.get("x-buildkite-signature", ""), headers.get("x-buildkite-token", "")
    now = context.clock.now() / 1000
    matching = _matching(known, signatures.verify_buildkite(given, body, _secrets(known), now=now))
    plainly = [one for one in known if one.allow_token]
    matching = matching or _matching(plainly, signatures.same_tokens(token, _secrets(plainly)))
    if not matching:
        raise _unsigned(
            "X-Buildkite-Signature", given, "the webhook's token, its setting to sign, and the clock"
        )
    told = peek(body)
    subject = buildkite_subject(told, headers.get("x-buildkite-event") or told.event, matching)
    changes = _changes(told, subject, given) or body
    return _incoming(BUILDKITE, f"{BUILDKITE}:{hashlib.sha256(changes).hexdigest()}", body, subject)


def peek(body: bytes) -> Told:
    """Return what identifies an event's objects; raises Rejected 400."""
    try:
        require_utf8(body)
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(
            400, "invalid_body", f"the body is not a JSON object as it is sent here: {error}"
        ) from None
    except RecursionError:
        raise Rejected(400, "invalid_body", "the body is nested too deeply") from None


def _changes(told: Told, subject: Subject, signature: str) -> bytes:
    """Return what tells an event of Buildkite from others, nothing where only its body does.

    Agents come back to a state they were in before, so the time counts; nothing else does.
    """
    about: tuple[object, ...] = (told.job, told.build)
    if told.agent is not None:
        about = (told.agent, signatures.signed_at(signature))
    elif told.build is None:
        return b""
    try:
        return _encode((subject.event, *about))
    except (UnicodeEncodeError, RecursionError):  # what can be decoded may still be odd
        return b""


def circleci_subject(told: Told, event: object, trusted: Iterable[Provider]) -> Subject:
    """Return what an event of CircleCI is about; raises Rejected 400 where it does not say."""
    name = _event_name(event)
    if name not in events.CIRCLECI_EVENTS:
        return Subject(f"{CIRCLECI}.{name}", None, None, f"nothing follows from {name}")
    part, called = (told.job, "job.id") if name == events.JOB_COMPLETED else (told.workflow, "workflow.id")
    _require(part, called)
    slug = (told.project or NOTHING).slug
    if not isinstance(slug, str) or not slug.strip():
        raise _invalid("project.slug")
    return _of_project(CIRCLECI, name, slug, trusted)


def buildkite_subject(told: Told, event: object, trusted: Iterable[Provider]) -> Subject:
    """Return what an event of Buildkite is about; raises Rejected 400 where it does not say."""
    name = _event_name(event)
    if name not in events.BUILDKITE_EVENTS:
        return Subject(f"{BUILDKITE}.{name}", None, None, f"nothing follows from {name}")
    if name in events.AGENT_EVENTS:
        _require(told.agent, "agent.id")
        agent = told.agent or NOTHING
        organization = agents.find_organization(agent.web_url, agent.url)
        ours = any(organization in one.organizations for one in trusted)
        words = "" if ours else f"unknown organization {organization or 'of an agent'}"
        return Subject(f"{BUILDKITE}.{name}", organization, None, words)
    part, called = (told.job, "job.id") if name in events.JOB_EVENTS else (told.build, "build.id")
    _require(part, called)
    try:
        project = buildkite.make_project((told.build or NOTHING).web_url, (told.pipeline or NOTHING).slug)
    except Unreadable as error:
        raise Rejected(400, "invalid_body", str(error)) from None
    return _of_project(BUILDKITE, name, project, trusted)


def _of_project(kind: str, event: str, project: str, trusted: Iterable[Provider]) -> Subject:
    shown = clean(project)[:PROJECT_MOST]
    key = normalize_project(kind, shown)
    repo = next((one.projects[key] for one in trusted if key in one.projects), None)
    words = "" if repo else f"unknown project {shown}"
    return Subject(f"{kind}.{event}", key, repo, words)


def _incoming(kind: str, guid: str, body: bytes, subject: Subject) -> Incoming:
    incoming = Incoming(
        guid=guid, event=subject.event, body=body, repo=subject.repo, source=kind, headers=None
    )
    if subject.ignored and subject.project is not None:
        incoming["foreign"] = True
        incoming["repo"] = f"{kind}:{subject.project}"  # no repository's name has a colon
    if subject.ignored:
        incoming["ignored"] = subject.ignored
    return incoming


def _require_open(settings: Settings, kind: str) -> Sequence[Provider]:
    known = providers_of(settings, kind)
    if not known:
        raise Rejected(
            404, "not_found", f"no {kind} is among PROVIDERS in the settings: see docs/providers.md"
        )
    return known


def _secrets(providers: Iterable[Provider]) -> list[str]:
    return list(dict.fromkeys(secret for one in providers for secret in one.secrets))


def _matching(providers: Iterable[Provider], secrets: Sequence[str]) -> list[Provider]:
    return [one for one in providers if any(secret in one.secrets for secret in secrets)]


def _unsigned(header: str, given: str, check: str) -> Rejected:
    problem = "does not match" if given else "is missing"
    return Rejected(401, "invalid_signature", f"{header} {problem}: check {check}")


def _event_name(event: object) -> str:
    return event if isinstance(event, str) and WORD.fullmatch(event) else UNKNOWN


def _require(part: Part | None, called: str) -> None:
    """Raise Rejected 400 unless an object has an id."""
    if part is None or not isinstance(part.id, str) or not part.id.strip():
        raise _invalid(called)


def _invalid(field: str) -> Rejected:
    return Rejected(400, "invalid_body", f"{field} is missing or malformed")


def _count_taken(incoming: Incoming) -> None:
    kind, _, event = incoming["event"].partition(".")
    metrics.count_provider_event(kind, event if event in KNOWN else "other")
    if incoming.get("foreign"):
        metrics.PROVIDER_UNMAPPED.labels(kind).inc()


def _count_refused(kind: str, refusal: Rejected) -> None:
    metrics.PROVIDER_REFUSED.labels(kind, refusal.code).inc()


CIRCLECI_SENDER = Sender(
    path=PATHS[CIRCLECI],
    limit=LIMIT,
    admit=admit_circleci,
    taken=_count_taken,
    refused=lambda refusal: _count_refused(CIRCLECI, refusal),
)
BUILDKITE_SENDER = Sender(
    path=PATHS[BUILDKITE],
    limit=LIMIT,
    admit=admit_buildkite,
    taken=_count_taken,
    refused=lambda refusal: _count_refused(BUILDKITE, refusal),
)
SENDERS = (CIRCLECI_SENDER, BUILDKITE_SENDER)
