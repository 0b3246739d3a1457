"""POST /api/circleci/webhooks and /api/buildkite/webhooks: whose an event is, and what is stored of it."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from bot.core import metrics
from bot.core.errors import Rejected
from bot.core.json_fields import Unreadable, clean
from bot.ingest.inbox import Incoming
from bot.ingest.webhooks import Sender
from bot.providers import buildkite, feature
from bot.providers.feature import (
    BUILDKITE,
    CIRCLECI,
    PATHS,
    PROJECT_MOST,
    ProviderSettings,
    normalize_project,
)
from bot.web.addresses import IDENTIFIER
from bot.web.bodies import require_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.providers.feature import Provider

P = TypeVar("P", bound="Agent | Build | Identified | Job")
LIMIT = 2 * 1024 * 1024  # bytes of a body
WORD = re.compile(r"[a-z][a-z0-9_.-]{0,39}")  # an event
UNKNOWN = "unknown"
KNOWN = frozenset((*feature.CIRCLECI_EVENTS, *feature.BUILDKITE_EVENTS))
JOB_EVENTS, BUILD_EVENTS = frozenset(feature.JOB_EVENTS), frozenset(feature.BUILD_EVENTS)
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
SKEW = 300  # seconds a signed time may differ from ours: what is sent again later is refused
PARTS_MOST = 20
_SIGNED = re.compile(r"timestamp=([0-9]{1,12}),signature=([0-9a-f]{64})")


class Subject(NamedTuple):
    """What an event is about."""

    event: str
    project: str | None  # None: of no project
    repo: str | None
    ignored: str  # why nothing follows from it


class Identified(msgspec.Struct):
    """An object of which only the id is read."""

    id: Any = None


class Project(msgspec.Struct):
    """A project of CircleCI."""

    slug: Any = None


class CircleciEvent(msgspec.Struct):
    """An event of CircleCI."""

    id: Any = None
    type: Any = None
    job: Identified | None = None
    workflow: Identified | None = None
    project: Project | None = None


class Job(msgspec.Struct, omit_defaults=True):
    """A job of Buildkite: its id, and what tells its events apart."""

    id: Any = None
    state: Any = None
    runnable_at: Any = None
    started_at: Any = None
    finished_at: Any = None
    exit_status: Any = None
    soft_failed: Any = None
    retried_in_job_id: Any = None


class Build(msgspec.Struct, omit_defaults=True):
    """A build of Buildkite: its id, and what tells its events apart."""

    id: Any = None
    web_url: Any = None
    state: Any = None
    blocked: Any = None
    commit: Any = None
    started_at: Any = None
    finished_at: Any = None


class Pipeline(msgspec.Struct):
    """A pipeline of Buildkite."""

    slug: Any = None


class Agent(msgspec.Struct, omit_defaults=True):
    """An agent of Buildkite."""

    id: Any = None
    web_url: Any = None
    url: Any = None


class BuildkiteEvent(msgspec.Struct):
    """An event of Buildkite."""

    event: Any = None
    job: Job | None = None
    build: Build | None = None
    pipeline: Pipeline | None = None
    agent: Agent | None = None


_circleci, _buildkite = msgspec.json.Decoder(CircleciEvent), msgspec.json.Decoder(BuildkiteEvent)


def admit_circleci(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Verify an event of CircleCI and return what is stored of it; raises Rejected 404, 401 or 400."""
    known = _require_open(context.settings, CIRCLECI)
    signature = headers.get("circleci-signature", "")
    matching = [provider for secret in verify_circleci(signature, body, known) for provider in known[secret]]
    if not matching:
        raise _unsigned("circleci-signature", signature, "the secret of the webhook")
    told = peek_circleci(body)
    event = headers.get("circleci-event-type") or told.type
    if told.job is not None and event in feature.CIRCLECI_EVENTS:
        event = feature.JOB_COMPLETED  # some of CircleCI's own samples call it the other one
    subject = circleci_subject(told, event, matching)
    identifier = told.id
    if identifier is None and subject.event.rpartition(".")[2] not in feature.CIRCLECI_EVENTS:
        identifier = hashlib.sha256(body).hexdigest()  # of a test
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(f"{CIRCLECI}:{identifier}"):
        raise _invalid("id")
    return _incoming(CIRCLECI, f"{CIRCLECI}:{identifier}", body, subject)


def admit_buildkite(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Verify an event of Buildkite and return what is stored of it; an id is made of its content.

    Raises Rejected 404, 401 or 400.
    """
    known = _require_open(context.settings, BUILDKITE)
    signature, now = headers.get("x-buildkite-signature", ""), context.clock.now() / 1000
    secrets = verify_buildkite(signature, body, known, now=now)
    matching = [provider for secret in secrets for provider in known[secret]]
    if not matching:
        secrets = same_tokens(headers.get("x-buildkite-token", ""), known)
        matching = [provider for secret in secrets for provider in known[secret] if provider.allow_token]
    if not matching:
        raise _unsigned(
            "X-Buildkite-Signature", signature, "the webhook's token, its setting to sign, and the clock"
        )
    told = peek_buildkite(body)
    subject = buildkite_subject(told, headers.get("x-buildkite-event") or told.event, matching)
    signed_at = read_signing_time(signature) if told.agent else ""
    changes = find_changes(told, subject.event, signed_at) or body
    return _incoming(BUILDKITE, f"{BUILDKITE}:{hashlib.sha256(changes).hexdigest()}", body, subject)


def circleci_subject(told: CircleciEvent, event: object, trusted: Iterable[Provider]) -> Subject:
    """Return what an event of CircleCI is about; raises Rejected 400 where it does not say."""
    name = event if isinstance(event, str) else UNKNOWN
    if name == feature.JOB_COMPLETED:
        _require(told.job, "job.id")
    elif name == feature.WORKFLOW_COMPLETED:
        _require(told.workflow, "workflow.id")
    else:
        return _of_nothing(CIRCLECI, name)
    slug = told.project.slug if told.project else None
    if not isinstance(slug, str) or not slug.strip():
        raise _invalid("project.slug")
    shown = clean(slug)[:PROJECT_MOST]
    return _of_project(CIRCLECI, name, normalize_project(CIRCLECI, shown), shown, trusted)


def buildkite_subject(told: BuildkiteEvent, event: object, trusted: Iterable[Provider]) -> Subject:
    """Return what an event of Buildkite is about; raises Rejected 400 where it does not say."""
    name, build = event if isinstance(event, str) else UNKNOWN, told.build
    if name in JOB_EVENTS:
        _require(told.job, "job.id")
    elif name in BUILD_EVENTS:
        build = _require(told.build, "build.id")
    elif name in feature.AGENT_EVENTS:
        return _of_agent(name, _require(told.agent, "agent.id"), trusted)
    else:
        return _of_nothing(BUILDKITE, name)
    try:
        project = buildkite.make_project(build and build.web_url, told.pipeline and told.pipeline.slug)
    except Unreadable as error:
        raise Rejected(400, "invalid_body", str(error)) from None
    return _of_project(BUILDKITE, name, project, project, trusted)


def _count_taken(incoming: Incoming) -> None:
    kind, _, event = incoming["event"].partition(".")
    metrics.count_provider_event(kind, event if event in KNOWN else "other")
    if incoming.get("foreign"):
        metrics.PROVIDER_UNMAPPED.labels(kind).inc()


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


def peek_circleci(body: bytes) -> CircleciEvent:
    """Return what an event of CircleCI is about; raises Rejected 400."""
    return _decode(_circleci, body)


def peek_buildkite(body: bytes) -> BuildkiteEvent:
    """Return what an event of Buildkite is about; raises Rejected 400."""
    return _decode(_buildkite, body)


def find_changes(told: BuildkiteEvent, event: str, signed_at: str) -> bytes:
    """Return what distinguishes an event of Buildkite from others, "" if only its whole body does.

    Agents come back to a state they were in before, so the time counts; nothing else does.
    """
    about: tuple[object, ...] = (told.job, told.build)
    if told.agent is not None:
        about = (told.agent, signed_at)
    elif told.build is None:
        return b""
    try:
        return _encode((event, *about))
    except (UnicodeEncodeError, RecursionError):  # what can be decoded may still be odd
        return b""


def verify_circleci(header: str, body: bytes, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that made the `v1=` signature of the header; other versions are ignored.

    https://circleci.com/docs/webhooks/
    """
    signatures = [
        part.strip().removeprefix("v1=")
        for part in header.split(",")[:PARTS_MOST]
        if part.strip().startswith("v1=")
    ]
    return [
        secret
        for secret in secrets
        if _is_among(signatures, hmac.digest(secret.encode(), body, "sha256").hex())
    ]


def verify_buildkite(header: str, body: bytes, tokens: Iterable[str], *, now: float) -> list[str]:
    """Return the tokens that made the header's signature; none if its time is too far from `now` (seconds).

    https://buildkite.com/docs/apis/webhooks/pipelines
    """
    match = _SIGNED.fullmatch(header.replace(" ", ""))
    if match is None or abs(now - int(match[1])) > SKEW:
        return []
    signature, signed = match[2], b"%b.%b" % (match[1].encode(), body)
    return [
        token
        for token in tokens
        if hmac.compare_digest(signature, hmac.digest(token.encode(), signed, "sha256").hex())
    ]


def read_signing_time(header: str) -> str:
    """Return the time in Buildkite's signature as it is written there, "" if it has none."""
    match = _SIGNED.fullmatch(header.replace(" ", ""))
    return match[1] if match else ""


def same_tokens(header: str, tokens: Iterable[str]) -> list[str]:
    """Return the tokens that a header holds in plain text."""
    return [token for token in tokens if header and _same(header, token)]


def _of_project(kind: str, event: str, project: str, shown: str, trusted: Iterable[Provider]) -> Subject:
    for provider in trusted:
        if repo := provider.projects.get(project):
            return Subject(f"{kind}.{event}", project, repo, "")
    return Subject(f"{kind}.{event}", project, None, f"unknown project {shown}")


def _of_agent(event: str, agent: Agent, trusted: Iterable[Provider]) -> Subject:
    organization = buildkite.find_organization(agent.web_url, agent.url)
    ours = any(organization in provider.organizations for provider in trusted)
    words = "" if ours else f"unknown organization {organization or 'of an agent'}"
    return Subject(f"{BUILDKITE}.{event}", organization, None, words)


def _of_nothing(kind: str, event: str) -> Subject:
    name = event if WORD.fullmatch(event) else UNKNOWN
    return Subject(f"{kind}.{name}", None, None, f"nothing follows from {name}")


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


def _require_open(settings: Settings, kind: str) -> Mapping[str, Sequence[Provider]]:
    """Return the entries of a kind by their secrets; raises Rejected 404 if there are none."""
    known = settings.of(ProviderSettings).by_secret.get(kind)
    if not known:
        raise Rejected(
            404, "not_found", f"no {kind} is among PROVIDERS in the settings: see docs/providers.md"
        )
    return known


def _unsigned(header: str, signature: str, check: str) -> Rejected:
    problem = "does not match" if signature else "is missing"
    return Rejected(401, "invalid_signature", f"{header} {problem}: check {check}")


def _require(part: P | None, called: str) -> P:
    """Return an object; raises Rejected 400 unless it has an id."""
    if part is None or not isinstance(part.id, str) or not part.id.strip():
        raise _invalid(called)
    return part


def _invalid(field: str) -> Rejected:
    return Rejected(400, "invalid_body", f"{field} is missing or malformed")


def _count_refused(kind: str, refusal: Rejected) -> None:
    metrics.PROVIDER_REFUSED.labels(kind, refusal.code).inc()


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        require_utf8(body)
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(
            400, "invalid_body", f"the body is not a JSON object as it is sent here: {error}"
        ) from None
    except RecursionError:
        raise Rejected(400, "invalid_body", "the body is nested too deeply") from None


def _same(signature: str, expected: str) -> bool:
    return hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode())


def _is_among(signatures: Iterable[str], expected: str) -> bool:
    return any([_same(signature, expected) for signature in signatures])  # noqa: C419 - each is compared, whichever is right
