"""Pages of the site as a whole: its home, repositories, the search."""

from __future__ import annotations
