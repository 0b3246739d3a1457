"""`ootbot logs explain` of a job's address: its stored log, or GitHub's."""

from __future__ import annotations

import json

from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


async def test_the_log_of_a_job_is_explained(bot, github, logs):
    stored = await logs.arrives("FAILED t.py::test_stored\n")
    passed = await logs.arrives("FAILED t.py::test_elsewhere\n", conclusion="success")
    asked = len([call for call in github.calls if call.path.endswith("/logs")])
    for address in (
        f"https://github.com/{UPSTREAM}/actions/runs/{stored.run.id}/job/{stored.id}?pr=1",
        f"http://127.0.0.1:8080/{UPSTREAM}/job/{stored.id}",
    ):
        code, out, err = await ootbot(bot, "logs", "explain", address, "--json")
        assert code == 0, err
        assert json.loads(out)["verdicts"][0]["captures"] == ["t.py::test_stored"]
    assert len([call for call in github.calls if call.path.endswith("/logs")]) == asked
    address = f"https://github.com/{UPSTREAM}/actions/runs/{passed.run.id}/job/{passed.id}"
    code, out, err = await ootbot(bot, "logs", "explain", address)
    assert code == 0, err
    assert "verdict: pytest failure (test), line 1" in out


async def test_addresses_that_name_no_log(bot):
    code, _, err = await ootbot(bot, "logs", "explain", "https://github.com/org/x/pull/1")
    assert (code, "not the address of a job" in err) == (2, True)
    code, _, err = await ootbot(
        bot, "logs", "explain", f"https://github.com/{UPSTREAM}/actions/runs/1/job/4711"
    )
    assert (code, "404" in err, "Traceback" in err) == (1, True, False)
