"""What the page of everything that is red adds to the program."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="red",
    views="bot.red.red_view:VIEWS",
    navigation=(NavigationEntry(bar="site", path="/red", label="Red now", place=5),),
)
