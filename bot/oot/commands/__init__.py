"""Commands that people give in comments and by the buttons of check runs."""

from __future__ import annotations
