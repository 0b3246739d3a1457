"""What is said of whose CI is collected, and how to change it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs import collection
from bot.jobs.settings import CollectSettings
from tests.serving import SQLITE

pytestmark = SQLITE

CHANGE = "set CI=upstream,backends to collect logs and artifacts"


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (CollectSettings(), "of upstream and backends (CI=upstream,backends); set CI=off to collect nothing"),
        (CollectSettings(ci=("upstream",)), "of upstream (CI=upstream); set CI=off to collect nothing"),
        (CollectSettings(ci=()), f"off (CI=off); {CHANGE}"),
    ],
)
def test_it_says_what_applies_and_how_to_change_it(settings, chosen, words):
    chosen_settings = replace(settings, of_features={CollectSettings: chosen})
    assert collection.describe_scope(chosen_settings) == words
