from __future__ import annotations

import re
from pathlib import Path

import pytest

from bot.oot.allowlist import entry as allowlist_entry
from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.entry import ENTRY_KEYS, Level
from bot.oot.allowlist.yaml_document import AllowlistError

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config/allowlist.example.yml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/allowlist.md").read_text(encoding="utf-8")
CHOICES = (
    *allowlist_entry.EVENTS,
    *allowlist_entry.POLICIES,
    *allowlist_entry.CHECKS,
    *allowlist_entry.CONCLUSIONS,
    *allowlist_entry.CALLBACK_TOKENS,
    *allowlist_entry.ANSWERS,
    *allowlist_entry.NIGHTLY,
    *allowlist_entry.DISPATCHES,
)


def test_the_example_is_valid_and_uses_every_level_and_key():
    allowlist = parse_allowlist(EXAMPLE)
    assert {entry.level for entry in allowlist.entries} == set(Level)
    words = set(re.findall(r"\b([a-z_]+):", EXAMPLE))
    assert set(ENTRY_KEYS) <= words


def test_the_example_shows_an_effect_of_every_choice():
    entries = parse_allowlist(EXAMPLE).entries
    terms = {term for entry in entries for term in vars(entry).values() if isinstance(term, str)}
    events = {event for entry in entries for event in entry.events}
    assert set(CHOICES) <= terms | events


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_on_the_page_is_valid(block):
    assert parse_allowlist(block).entries


def test_the_table_of_the_page_lists_every_key_with_its_levels():
    rows = re.findall(r"^\| `(\w+)` \| (L[L1-4 ]+) \|", PAGE, re.MULTILINE)
    assert {name: levels.split() for name, levels in rows} == {
        name: [level.name for level in Level if level in key.levels] for name, key in ENTRY_KEYS.items()
    }


def test_the_messages_on_the_page_are_the_parsers():
    text = "\n\nL2:\n- {repo: example-org/cpu, oncall: alice}\n\n\n\n\n- Example-Org/CPU"
    with pytest.raises(AllowlistError) as caught:
        parse_allowlist(text)
    for problem in caught.value.problems:
        assert f"\n{problem}\n" in PAGE
