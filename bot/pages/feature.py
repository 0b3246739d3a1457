"""What pages add to the program: addresses, links between them, the search, and what is broken now."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="pages",
    before_commit="bot.pages.pulls.pull_rows:keep_words",
    prune="bot.pages.pulls.pull_rows:forget_words",
    views="bot.pages.site.views:VIEWS",
    routes="bot.pages.site.views:setup",
    conditions="bot.oot.statistics.health:read_conditions",
    navigation=(
        NavigationEntry(bar="site", path="/oot", label="Backends", place=20, covers=("/oot/",)),
        NavigationEntry(bar="backends", path="/oot", label="Health", place=10),
        NavigationEntry(bar="backends", path="/oot/dispatches", label="Dispatches", place=15),
        NavigationEntry(bar="backends", path="/oot/metrics", label="Backend metrics", place=20),
        NavigationEntry(bar="backends", path="/oot/levels", label="Levels", place=30),
        NavigationEntry(bar="backends", path="/oot/commands", label="Commands", place=35),
        NavigationEntry(
            bar="repository",
            path="/{repo}",
            label="{repo}",
            place=0,
            shown="bot.pages.site.repository:has_home",
        ),
        NavigationEntry(
            bar="repository",
            path="/oot/{repo}",
            label="Health",
            place=5,
            shown="bot.pages.site.views:is_backend",
        ),
        NavigationEntry(
            bar="repository",
            path="/{repo}/pulls",
            label="Pull requests",
            place=20,
            shown="bot.pages.site.views:has_pulls",
            covers=("/{repo}/pull/",),
        ),
    ),
    search="bot.pages.site.search:find_hits",
    sections={
        "missing": "bot.pages.site.repository:describe_missing",
        "instead": "bot.pages.grid.home:lead_to_commit",
    },
)


BROKEN_NOW_FEATURE = Feature(
    name="red",
    views="bot.pages.grid.broken_now_page:VIEWS",
    navigation=(NavigationEntry(bar="site", path="/red", label="Red now", place=5),),
)
