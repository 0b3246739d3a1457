"""Reading and judging a log: all that the parser child loads, and nothing that needs the database."""

from __future__ import annotations
