"""Any order of a provider's events, some of them twice, ends in the same rows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.core.json_fields import clean
from bot.ingest.tables import merge
from bot.providers import buildkite, circleci, statuses
from tests.harness import START
from tests.jobs.branch import iso
from tests.providers import sending

STATES = (*buildkite.JOB_STATES, "finished", "odd")
TEXTS = st.none() | st.text(max_size=8) | st.integers(0, 9)
TIMES = st.none() | st.integers(0, 3).map(lambda seconds: iso(START + seconds * 1_000)) | st.just("nonsense")
BEGINNING = {"repository_id": 1, "repo": "org/project", "delivery_guid": "guid"}


@st.composite
def buildkite_events(draw):
    """Events about one job, as wild as can be."""
    event = sending.job_event(draw(st.sampled_from(STATES)))
    for name in ("created_at", "runnable_at", "started_at", "finished_at"):
        event["job"][name] = draw(TIMES)
    for name in ("exit_status", "retries_count", "parallel_group_index", "parallel_group_total"):
        event["job"][name] = draw(st.none() | st.integers(-2, 3) | st.just(2**80))
    event["job"]["soft_failed"] = draw(st.booleans() | st.none())
    event["job"]["retried_in_job_id"] = draw(TEXTS)
    event["build"]["commit"] = draw(st.sampled_from(["HEAD", "a" * 40, "b" * 40, None]))
    return buildkite.read_job(event, BEGINNING | {"received_at": draw(st.integers(1, 3))})


@st.composite
def circleci_events(draw):
    event = sending.circleci(status=draw(st.sampled_from(["success", "failed", "canceled", "odd", ""])))
    event["job"]["stopped_at"] = draw(TIMES)
    event["pipeline"]["vcs"]["revision"] = draw(st.none() | st.just("a" * 40))
    return circleci.read_job(event, BEGINNING | {"received_at": draw(st.integers(1, 3))})


@st.composite
def commit_statuses(draw):
    told = {
        "sha": "a" * 40,
        "context": "ci",
        "id": draw(st.integers(1, 3)),
        "state": draw(st.sampled_from([*statuses.STATES, "odd"])),
        "updated_at": draw(TIMES),
        "description": draw(TEXTS),
    }
    return statuses.read_status(told, BEGINNING | {"received_at": draw(st.integers(1, 3))})


def merged(records):
    row = None
    for one in records:
        row = merge(row, one) or row
    return row


def check_every_order(draw, events):
    records = draw.draw(st.lists(events, min_size=1, max_size=5))
    others = draw.draw(st.permutations(records)) + draw.draw(st.lists(st.sampled_from(records), max_size=2))
    assert merged(others) == merged(records)
    row = merged(records)
    assert all(clean(value) == value for value in row.values() if isinstance(value, str))
    assert row["conclusion"] is None or row["status"] == "completed"


KINDS = {"buildkite": buildkite_events(), "circleci": circleci_events(), "status": commit_statuses()}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data())
def test_any_order_of_events_ends_in_the_same_row(kind, draw):
    check_every_order(draw, KINDS[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data())
def test_any_order_of_very_many_events_ends_in_the_same_row(kind, draw):
    check_every_order(draw, KINDS[kind])
