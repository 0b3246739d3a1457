"""What the HUD adds to the program: pages and their JSON, and the search."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="pages",
    before_commit="bot.oot.pages.pull_words:keep_words",
    prune="bot.oot.pages.pull_words:forget_words",
    views="bot.oot.pages.views:VIEWS",
    routes="bot.oot.pages.views:setup",
    conditions="bot.oot.pages.conditions:read_conditions",
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
            shown="bot.oot.pages.repository_page:has_home",
        ),
        NavigationEntry(
            bar="repository",
            path="/oot/{repo}",
            label="Health",
            place=5,
            shown="bot.oot.pages.views:is_backend",
        ),
        NavigationEntry(
            bar="repository",
            path="/{repo}/pulls",
            label="Pull requests",
            place=20,
            shown="bot.oot.pages.views:has_pulls",
            covers=("/{repo}/pull/",),
        ),
    ),
    search="bot.oot.pages.search_hits:find_hits",
    sections={"missing": "bot.oot.pages.missing_pages:describe"},
)
