"""What an event is about, read without decoding the rest of its body: this is done of every request."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bot.core.errors import Rejected
from bot.web.bodies import require_utf8

T = TypeVar("T")


class Identified(msgspec.Struct):
    """An object of which only the id is told."""

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
_encode = msgspec.json.Encoder().encode


def peek_circleci(body: bytes) -> CircleciEvent:
    """Return what an event of CircleCI is about; raises Rejected 400."""
    return _decode(_circleci, body)


def peek_buildkite(body: bytes) -> BuildkiteEvent:
    """Return what an event of Buildkite is about; raises Rejected 400."""
    return _decode(_buildkite, body)


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


def find_changes(told: BuildkiteEvent, event: str, signed_at: str) -> bytes:
    """Return what tells an event of Buildkite from others, nothing where only its body does.

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
