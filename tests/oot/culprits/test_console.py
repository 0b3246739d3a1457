"""`ootbot bisect start|list|cancel`, beside a running bot."""

import json

import pytest

from tests.command import ootbot
from tests.oot.culprits.searched import broken_branch

pytestmark = pytest.mark.logic


async def test_a_search_is_begun_listed_and_cancelled_on_the_console(bot, github):
    branch = await broken_branch(bot, github)
    code, out, err = await ootbot(
        bot, "bisect", "start", "npu", "CI / test", "--reason", "the night of Tuesday"
    )
    assert (code, err) == (0, "")
    search = await branch.search()
    assert f"search {search['id']} began between {branch.shas[0][:7]} and {branch.shas[15][:7]}" in out
    assert (search["requested_by"], search["reason"]) == ("the operator", "the night of Tuesday")
    _, out, _ = await ootbot(bot, "bisect", "start", "npu", "--json")
    again = json.loads(out)
    assert (again["id"], again["new"]) == (search["id"], False)
    code, _, err = await ootbot(bot, "bisect", "start", "nqu")
    assert (code, "the nearest are: npu" in err) == (1, True)
    _, out, _ = await ootbot(bot, "bisect", "list", "--json")
    (row,) = map(json.loads, out.splitlines())
    assert row["page_url"].endswith(f"/bisects/{search['id']}")
    assert (await ootbot(bot, "bisect", "cancel", search["id"]))[0] == 0
    assert (await branch.search())["state"] == "cancelled"
    code, _, err = await ootbot(bot, "bisect", "cancel", search["id"])
    assert (code, "is over: cancelled by the operator" in err) == (1, True)
    assert search["id"] in (await ootbot(bot, "bisect", "list"))[1]
