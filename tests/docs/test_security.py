"""Does the security model name what lifts it, and the limits as they are?"""

import re
from pathlib import Path

import pytest

from bot.ingest import webhooks
from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.entry import Entry
from bot.oot.reports import endpoints

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ATTACKS = re.findall(r"^\| [^|]+ \| [^|]+ \| `(test_\w+)` \|$", PAGE, re.MULTILINE)
WEAKER = re.findall(r"^\| `(\w+): (\w+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("key", "value"), WEAKER)
def test_a_key_that_weakens_the_model_is_none_of_the_defaults(key, value):
    entry = "repo: org/gpu, paths: [src/**]" if key == "paths_pass" else "repo: org/gpu"
    plain, weak = (
        parse_allowlist(f"L4: [{{{entry}{more}}}]").entries[0] for more in ("", f", {key}: {value}")
    )
    assert getattr(weak, key) != getattr(plain, key) == getattr(Entry(repo="org/gpu", level=4, line=1), key)
    assert f"[`{key}: {value}`](#keys-that-weaken-this)" in PAGE  # said where it is an exception


def test_the_keys_that_weaken_the_model_are_listed():
    assert {key for key, _ in WEAKER} == {"static_key", "confirm", "callback_token", "paths_pass"}


def test_every_attack_names_a_test_that_there_is():
    table = PAGE.partition("## Attacks, and what happens")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        for name in named:
            assert f"def {name}(" in tests, name


def test_the_sizes_are_those_of_the_doors():
    said = re.search(r"(\d+) MiB for\s+webhooks, (\d+) MiB for a report, (\d+) MiB for a batch", PAGE)
    sizes = [webhooks.BODY_LIMIT, endpoints.REPORT_LIMIT, endpoints.BATCH_LIMIT]
    assert [int(size) * 1024 * 1024 for size in said.groups()] == sizes


def test_every_attack_is_played_by_the_test_it_names():
    table = PAGE.partition("## Attacks")[2].partition("|---|---|---|\n")[2].partition("\n\n")[0]
    assert len(ATTACKS) == len(table.splitlines())
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in ATTACKS if f"def {name}(" not in written] == []
