"""What backends report, and whether they may."""

from __future__ import annotations
