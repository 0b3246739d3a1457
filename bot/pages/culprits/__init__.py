"""Pages of searches for culprits, and what searches add to other pages."""

from __future__ import annotations
