"""What does the REST API do? One module for each family of endpoints, each ending in its routes."""

from __future__ import annotations
