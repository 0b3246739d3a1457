"""The feature `test_results`: what reports of tests say, case by case."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(name="test_results", commands={"tests": "bot.console.tests:tests"})
