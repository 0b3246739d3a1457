"""The feature `contributions`: what outside people contribute, and how long they wait."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="contributions",
    tables="bot.ci.extras.contributions.tables",
    tasks={"contributions": "bot.ci.extras.contributions.count_days:describe_pull"},
    background=frozenset({"contributions"}),
    sums=("bot.ci.extras.contributions.count_days:CONTRIBUTIONS",),
    before_commit="bot.ci.extras.contributions.count_days:note_changed",
    exports="bot.ci.extras.contributions.exports:EXPORTS",
    prune="bot.ci.extras.contributions.count_days:prune",
    views="bot.ci.extras.contributions.contributions_page:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/contributions",
            label="Contributions",
            place=80,
            shown="bot.ci.extras.shown_pages:has_contributions",
        ),
    ),
    routes="bot.ci.extras.contributions.contributions_page:setup",
    settings="bot.ci.extras.contributions.outsiders:ContributionSettings",
)
