"""A backend's own verdict on why its job failed: advice for people, checked and cut, never counted.

One that does not have the agreed shape is dropped as a whole: half of it could mislead.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from bot.core.json_fields import clean
from bot.core.links import safe_url

MOST_BYTES = 16 * 1024
MOST_EVIDENCE = 10
MOST_SUMMARY, MOST_REASON, MOST_WORDS, MOST_URL = 1_000, 300, 200, 500  # letters

Text = Annotated[str, Meta(min_length=1)]


class Suspect(Struct, omit_defaults=True):
    """The upstream change that is suspected."""

    pr: Annotated[int, Meta(gt=0, le=2**53)] | None = None
    commit: Annotated[str, Meta(pattern="^[0-9a-fA-F]{7,40}$")] | None = None
    reason: Text | None = None


class Evidence(Struct, omit_defaults=True):
    """Something that speaks for it."""

    job: Text | None = None
    test: Text | None = None
    log_url: Text | None = None
    excerpt: Text | None = None


class Analyzer(Struct, omit_defaults=True):
    """What came to this verdict."""

    name: Text | None = None
    version: Text | None = None
    model: Text | None = None
    prompt_version: Text | None = None


class Triage(Struct, omit_defaults=True):
    """Why a job failed, according to its backend."""

    category: Literal["upstream", "backend", "infra", "flake", "unknown"]
    confidence: Literal["high", "medium", "low"]
    summary: Text
    suspected_upstream: Suspect | None = None
    evidence: list[Evidence] | None = None
    reproduced_on_retry: bool | None = None
    analyzer: Analyzer | None = None
    analyzed_at: Text | None = None


def read_verdict(sent: Any) -> dict[str, Any] | None:
    """Return a verdict as it is stored; None for one that does not have the shape of version 1."""
    if not isinstance(sent, dict) or str(sent.get("schema_version")).strip() != "1":
        return None
    try:
        if len(msgspec.json.encode(sent)) > MOST_BYTES:
            return None
        found = msgspec.convert(sent, Triage)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        return None
    if not _coherent(found):
        return None
    found.evidence = [_cut_evidence(one) for one in (found.evidence or [])[:MOST_EVIDENCE]] or None
    found.summary = _cut(found.summary, MOST_SUMMARY) or ""
    if found.suspected_upstream:
        found.suspected_upstream.reason = _cut(found.suspected_upstream.reason, MOST_REASON)
    if found.analyzer:
        for name in found.analyzer.__struct_fields__:
            setattr(found.analyzer, name, _cut(getattr(found.analyzer, name), MOST_WORDS))
    kept: dict[str, Any] = msgspec.to_builtins(found)
    return kept


def _coherent(found: Triage) -> bool:
    """Whether its parts agree: only upstream is suspected of something, which is named; links can be followed."""
    suspect = found.suspected_upstream
    if suspect and (found.category != "upstream" or not (suspect.pr or suspect.commit)):
        return False
    links = [one.log_url for one in found.evidence or () if one.log_url]
    if not all(len(link) <= MOST_URL and safe_url(link) for link in links):
        return False
    return found.analyzed_at is None or _is_time(found.analyzed_at)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= MOST_WORDS


def _cut_evidence(one: Evidence) -> Evidence:
    return Evidence(
        job=_cut(one.job, MOST_WORDS),
        test=_cut(one.test, MOST_WORDS),
        log_url=one.log_url,
        excerpt=_cut(one.excerpt, MOST_SUMMARY),
    )


def _cut(text: str | None, most: int) -> str | None:
    return text and clean(text.strip())[:most]
