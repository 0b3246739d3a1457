"""POST /api/circleci/webhooks and /api/buildkite/webhooks: whose an event is, and what is stored of it.

A secret vouches for its own projects only: an event of any other is stored as foreign, and nothing follows from it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bot.core import metrics
from bot.core.errors import Rejected
from bot.core.json_fields import Unreadable, clean
from bot.ingest.inbox import Incoming
from bot.ingest.senders import Sender
from bot.providers import agents, buildkite, events, signatures
from bot.providers.guide import PATHS
from bot.providers.peek import find_changes, peek_buildkite, peek_circleci
from bot.providers.settings import BUILDKITE, CIRCLECI, PROJECT_MOST, ProviderSettings, normalize_project
from bot.web.parameters import IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.providers.peek import Agent, Build, BuildkiteEvent, CircleciEvent, Identified, Job
    from bot.providers.settings import Provider

P = TypeVar("P", bound="Agent | Build | Identified | Job")
LIMIT = 2 * 1024 * 1024  # bytes of a body
WORD = re.compile(r"[a-z][a-z0-9_.-]{0,39}")  # an event
UNKNOWN = "unknown"
KNOWN = frozenset((*events.CIRCLECI_EVENTS, *events.BUILDKITE_EVENTS))
JOB_EVENTS, BUILD_EVENTS = frozenset(events.JOB_EVENTS), frozenset(events.BUILD_EVENTS)


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
    matching = [one for secret in signatures.verify_circleci(given, body, known) for one in known[secret]]
    if not matching:
        raise _unsigned("circleci-signature", given, "the secret of the webhook")
    told = peek_circleci(body)
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
    given, now = headers.get("x-buildkite-signature", ""), context.clock.now() / 1000
    secrets = signatures.verify_buildkite(given, body, known, now=now)
    matching = [one for secret in secrets for one in known[secret]]
    if not matching:
        secrets = signatures.same_tokens(headers.get("x-buildkite-token", ""), known)
        matching = [one for secret in secrets for one in known[secret] if one.allow_token]
    if not matching:
        raise _unsigned(
            "X-Buildkite-Signature", given, "the webhook's token, its setting to sign, and the clock"
        )
    told = peek_buildkite(body)
    subject = buildkite_subject(told, headers.get("x-buildkite-event") or told.event, matching)
    signed_at = signatures.signed_at(given) if told.agent else ""
    changes = find_changes(told, subject.event, signed_at) or body
    return _incoming(BUILDKITE, f"{BUILDKITE}:{hashlib.sha256(changes).hexdigest()}", body, subject)


def circleci_subject(told: CircleciEvent, event: object, trusted: Iterable[Provider]) -> Subject:
    """Return what an event of CircleCI is about; raises Rejected 400 where it does not say."""
    name = event if isinstance(event, str) else UNKNOWN
    if name == events.JOB_COMPLETED:
        _require(told.job, "job.id")
    elif name == events.WORKFLOW_COMPLETED:
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
    elif name in events.AGENT_EVENTS:
        return _of_agent(name, _require(told.agent, "agent.id"), trusted)
    else:
        return _of_nothing(BUILDKITE, name)
    try:
        project = buildkite.make_project(build and build.web_url, told.pipeline and told.pipeline.slug)
    except Unreadable as error:
        raise Rejected(400, "invalid_body", str(error)) from None
    return _of_project(BUILDKITE, name, project, project, trusted)


def _of_project(kind: str, event: str, project: str, shown: str, trusted: Iterable[Provider]) -> Subject:
    for one in trusted:
        if repo := one.projects.get(project):
            return Subject(f"{kind}.{event}", project, repo, "")
    return Subject(f"{kind}.{event}", project, None, f"unknown project {shown}")


def _of_agent(event: str, agent: Agent, trusted: Iterable[Provider]) -> Subject:
    organization = agents.find_organization(agent.web_url, agent.url)
    ours = any(organization in one.organizations for one in trusted)
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
    """Return the entries of a kind by their secrets; raises Rejected 404 without any."""
    known = settings.of(ProviderSettings).by_secret.get(kind)
    if not known:
        raise Rejected(
            404, "not_found", f"no {kind} is among PROVIDERS in the settings: see docs/providers.md"
        )
    return known


def _unsigned(header: str, given: str, check: str) -> Rejected:
    problem = "does not match" if given else "is missing"
    return Rejected(401, "invalid_signature", f"{header} {problem}: check {check}")


def _require(part: P | None, called: str) -> P:
    """Return an object; raises Rejected 400 unless it has an id."""
    if part is None or not isinstance(part.id, str) or not part.id.strip():
        raise _invalid(called)
    return part


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
