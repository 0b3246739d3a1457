from __future__ import annotations

from tests.ci.test_results.conftest import bot, options

__all__ = ["bot", "options"]
