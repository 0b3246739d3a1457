"""Endpoints of the REST API: one module for each group, each ending with its routes."""

from __future__ import annotations
