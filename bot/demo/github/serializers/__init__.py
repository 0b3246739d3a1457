"""Serializers: GitHub's objects as JSON, one module for each group of objects."""

from __future__ import annotations
