"""Benchmarks: did a commit make a model slower on a device?"""

from __future__ import annotations
