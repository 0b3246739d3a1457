"""How does GitHub write its objects as JSON? One module for each family of objects."""

from __future__ import annotations
