"""Who chooses the keys of what the program keeps, and how large does it become?

A new cache fails this test until it is listed here: strangers must not be able to fill the memory.
"""

from typing import NamedTuple

import pytest

from tests.core.caches import caches

KIB, MIB = 1024, 1024 * 1024
STRANGERS_MOST = 112 * MIB  # in all caches whose keys strangers choose, 80 of them of whole pages and lists

# the code: a table, a path, an attribute; the settings: the operator; GitHub: installations, repositories, deliveries;
# backends: listed ones; strangers: anyone on the network, or whoever opens a pull request
CODE, SETTINGS, GITHUB, BACKENDS, STRANGERS = "the code", "the settings", "GitHub", "backends", "strangers"


class Kept(NamedTuple):
    """What is kept: who chooses the keys, how many there are at most, and the bytes of one with its value."""

    by: str
    most: int
    size: int


CACHES = {
    "BodyCapacity._arriving": Kept(
        STRANGERS, 2_000, KIB
    ),  # one a connection; the bodies have limits of their own
    "Budgets._held": Kept(GITHUB, 10_000, KIB),  # accounts with an installation
    "BuildkiteApi._downloads": Kept(SETTINGS, 10, 64 * KIB),  # addresses of the API
    "BuildkiteApi._pauses": Kept(SETTINGS, 1_000, KIB),  # variables with tokens
    "BytesCache._entries": Kept(STRANGERS, 1, 16 * MIB),  # so many bytes in all
    "RunCounter._counted": Kept(CODE, 4, MIB),  # windows
    "DaySumsCache._combined": Kept(CODE, 24, MIB),  # kinds of sums, and backends of the allowlist
    "DaySumsCache._of_days": Kept(CODE, 24, MIB),
    "DaySumsCache._since": Kept(CODE, 24, MIB),
    "ErrorLog._logged_at": Kept(CODE, 1_000, KIB),  # places in the code
    "GitHubApp._etag_cache": Kept(GITHUB, 100, 256 * KIB),
    "GitHubApp._roles": Kept(STRANGERS, 10_000, 512),  # people who comment
    "IssuerKeys._keys": Kept(SETTINGS, 1, MIB),  # of one issuer; its key set has a limit
    "LocalBudgets._budgets": Kept(GITHUB, 10_000, KIB),
    "OpenSinks._drivers": Kept(SETTINGS, 20, 64 * KIB),
    "OpenSinks._locks": Kept(SETTINGS, 20, KIB),
    "PageCache._locks": Kept(STRANGERS, 2_000, KIB),  # those that are held
    "PageCache._pages": Kept(STRANGERS, 1, 64 * MIB),  # so many bytes in all
    "CachedRepositoryIds._cached": Kept(SETTINGS, 1, MIB),
    "RateLimiter._blocked": Kept(GITHUB, 10_000, 256),  # accounts with an installation
    "RateLimiter._seen": Kept(GITHUB, 10_000, 256),
    "RateLimiter._waiting": Kept(GITHUB, 10_000, 256),
    "RecentGuids._newer": Kept(
        GITHUB, 20_000, 256
    ),  # GUIDs: a delivery is stored only with the secret's signature
    "RecentGuids._older": Kept(GITHUB, 20_000, 256),
    "RefusalLimiter._times": Kept(STRANGERS, 10_000, 640),  # addresses
    "Resources._made": Kept(CODE, 100, KIB),
    "Router.channels": Kept(CODE, 3, KIB),
    "Searches._times": Kept(STRANGERS, 10_000, 512),  # addresses
    "Statement._compiled": Kept(CODE, 10, 16 * KIB),
    "ClickhouseDriver._tables": Kept(CODE, 100, 16 * KIB),  # tables that exports are written to
    "_day_cell": Kept(BACKENDS, 20_000, KIB),  # days and rates of a few digits
    "_provider_event": Kept(CODE, 100, KIB),
    "compile_globs": Kept(SETTINGS, 256, 256 * KIB),  # those of the allowlist
    "converter_of": Kept(SETTINGS, 4_000, KIB),  # types of a ClickHouse's columns
    "parse_type": Kept(SETTINGS, 4_000, KIB),
    "Compiled._texts": Kept(CODE, 100, 16 * KIB),
    "Store._kept": Kept(CODE, 100, KIB),
    "Store._other_readers": Kept(CODE, 2, KIB),
    "Supervisor._running": Kept(CODE, 3, KIB),
    "Tokens._cached": Kept(GITHUB, 10_000, KIB),
    "Tokens._installations": Kept(GITHUB, 10_000, 256),
    "Tokens._locks": Kept(GITHUB, 10_000, 512),  # repositories that something is done for
    "Totals._ended": Kept(CODE, 1_000, KIB),  # names of metrics and their labels
    "Totals._last": Kept(CODE, 3, 256 * KIB),
    "Worker._running": Kept(CODE, 20, KIB),
    "_asked_about": Kept(CODE, 2, 16 * KIB),  # functions that make one statement for each database
    "_change": Kept(CODE, 100, 16 * KIB),
    "_claiming": Kept(CODE, 4, 16 * KIB),
    "_collected": Kept(CODE, 2, 16 * KIB),
    "_distinct_upstreams": Kept(CODE, 10, 16 * KIB),
    "_due": Kept(CODE, 4, 16 * KIB),
    "_fields": Kept(CODE, 500, 8 * KIB),
    "_fitting": Kept(SETTINGS, 4_000, KIB),  # types of a ClickHouse's columns
    "_insert": Kept(CODE, 200, 16 * KIB),
    "_known_lines": Kept(CODE, 2, 16 * KIB),
    "_measured_runs": Kept(CODE, 2, 16 * KIB),
    "_of_keys": Kept(CODE, 2, 16 * KIB),
    "_overtaken": Kept(CODE, 2, 16 * KIB),
    "_parsed_rules": Kept(SETTINGS, 64, 256 * KIB),  # rulesets in files and trusted repositories
    "_listing_row": Kept(CODE, 2, 16 * KIB),
    "_requests": Kept(CODE, 100, KIB),
    "_read_of": Kept(CODE, 200, 4 * KIB),  # tables that are exported
    "_removing_changes": Kept(CODE, 2, 16 * KIB),
    "_rows_of_keys": Kept(CODE, 400, 16 * KIB),  # the same, on two databases
    "_require_columns": Kept(CODE, 2_000, KIB),
    "_select": Kept(CODE, 1_000, 16 * KIB),
    "_shipped_rules": Kept(CODE, 1, MIB),
    "_sign_token": Kept(BACKENDS, 1_000, KIB),  # a dispatch that was sent
    "_take": Kept(CODE, 100, 16 * KIB),
    "_update": Kept(CODE, 200, 16 * KIB),
    "_uploaded": Kept(CODE, 2, 16 * KIB),
    "_uploads": Kept(CODE, 2, 16 * KIB),
    "_upsert": Kept(CODE, 500, 16 * KIB),
    "_url": Kept(BACKENDS, 1_000, 4 * KIB),  # links that they report
    "compile_pattern": Kept(SETTINGS, 1_000, 8 * KIB),
    "compile_rules": Kept(SETTINGS, 16, 8 * MIB),
    "_pattern": Kept(CODE, 200, 4 * KIB),  # paths of the table of refusals
    "_query_by_keys": Kept(CODE, 2, 16 * KIB),
    "TimeShares._accounts": Kept(BACKENDS, 1_000, KIB),
    "Turns._waiting": Kept(BACKENDS, 1_000, KIB),  # repositories whose files wait
    "canonical": Kept(CODE, 500, KIB),
    "Standings._known": Kept(BACKENDS, 200, 64 * KIB),
    "made.globals['cached_line']": Kept(BACKENDS, 4_000, 4 * KIB),
    "member_reader": Kept(CODE, 2_000, KIB),
    "parse_cached": Kept(SETTINGS, 8, MIB),  # the allowlist
    # names of jobs: what collected runs ran, a pull request's among them; cut to 255 characters by GitHub
    "_first_match": Kept(BACKENDS, 10_000, KIB),
    "_parse_name": Kept(BACKENDS, 20_000, KIB),
    "counted_label": Kept(BACKENDS, 2_000, KIB),
    "_shown": Kept(BACKENDS, 20_000, KIB),
}
# what ends with the request, transaction, file or page that it is made for
SHORT = {
    "ObjectChecker._listed",
    "DayCounter._sums",
    "FamilyBaseline._commits",
    "UsageSums.seconds",
    "_Remarks._by_key",
    "Transaction._changed",
    "Transaction._requests",
    "Transaction._slots",
    "_Gathered.named",
}


def test_every_cache_says_who_chooses_its_keys():
    assert caches() - CACHES.keys() - SHORT == set()


def test_what_is_listed_is_there():
    assert (CACHES.keys() | SHORT) - caches() == set()


@pytest.mark.parametrize("by", [STRANGERS])
def test_what_strangers_choose_stays_small(by):
    sizes = {name: kept.most * kept.size for name, kept in CACHES.items() if kept.by == by}
    assert sum(sizes.values()) < STRANGERS_MOST, sizes
