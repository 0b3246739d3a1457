"""The feature `word_index`: the tables that searches by words are answered from."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(name="word_index", tables="bot.word_index.tables")
