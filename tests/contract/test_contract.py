"""Is what we ask of GitHub, and what the simulated one answers and sends, as GitHub describes it?

With --nightly every test that uses the simulated GitHub is compared with the description (`recorder.py`).
"""

import re

import pytest

from bot.demo.github.rest_api import ROUTES
from tests.contract import description
from tests.contract.description import GITHUB, SERVER, Different

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        bool(description.reason_to_skip()), reason=description.reason_to_skip() or "it is here"
    ),
]


@pytest.mark.parametrize("name", [GITHUB, SERVER])
def test_every_call_that_is_simulated_is_one_of_githubs(name):
    """And those that tests and demo make are among them: the simulation answers no other."""
    described = description.described(name)
    for route in ROUTES:
        path = re.sub(r"\{\w+(:[^}]*)?\}", "1", route.path)
        described.operation(route.method, path)


def test_a_body_with_what_github_does_not_know_is_told():
    described = description.described()
    operation = described.operation("PATCH", "/repos/a/b/check-runs/1")
    described.check_request(operation, {}, {"status": "queued"})
    with pytest.raises(Different, match="the body has head_sha"):
        described.check_request(operation, {}, {"status": "queued", "head_sha": "1" * 40})


def test_an_enterprise_server_knows_less():
    dispatch = ("POST", "/repos/a/b/actions/workflows/ci.yml/dispatches")
    body = {"ref": "main", "inputs": {}, "return_run_details": True}
    for name, known in ((GITHUB, True), (SERVER, False)):
        described = description.described(name)
        operation = described.operation(*dispatch)
        if known:
            described.check_request(operation, {}, body)
        else:
            with pytest.raises(Different, match="the body has return_run_details"):
                described.check_request(operation, {}, body)


def test_a_call_that_is_none_is_told():
    with pytest.raises(Different, match="no call of GitHub's"):
        description.described().operation("GET", "/repos/a/b/moods")
