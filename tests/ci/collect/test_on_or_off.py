"""Is anything collected here, who decided that, and how is it changed?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.ci.collect import collection_scope
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.tables import ci_default

CHANGE = "set CI=upstream,backends to collect logs and artifacts"


@pytest.mark.parametrize(
    ("chosen", "upgraded", "words"),
    [
        (None, False, "of upstream and backends: CI is unset, which is on for a new database; set CI=off to collect nothing"),
        (None, True, f"off: CI is unset, which is off for one that was in use before there was collecting; {CHANGE}"),
        (("upstream",), True, "of upstream: CI=upstream is set; unset, it is off for one that was in use before there was collecting"),
        ((), False, "off: CI=off is set; unset, it is on for a new database"),
    ],
)  # fmt: skip
async def test_it_says_what_applies_and_why(bot, chosen, upgraded, words):
    settings = replace(bot.context.settings, of_features={CollectSettings: CollectSettings(ci=chosen)})
    async with bot.store.transaction() as tx:
        if upgraded:
            await tx.run(ci_default.insert().values(name="ci", value="off"))
        assert await collection_scope.describe_scope(tx, settings) == words
