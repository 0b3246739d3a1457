"""Reading usage logs: all that runs in the parser child, which knows neither the database nor the web."""

from __future__ import annotations
