from __future__ import annotations

from tests.evidence.tests.conftest import bot, options

__all__ = ["bot", "options"]
