"""What does a pull request look like now? Our rows, read and judged once, for check runs, comment and pages alike."""

from __future__ import annotations

from bot.query.explained import explained
from bot.query.head import Head
from bot.query.state import MOST_HEADS, PullState, pull_state

__all__ = ["MOST_HEADS", "Head", "PullState", "explained", "pull_state"]
