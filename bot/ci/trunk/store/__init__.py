"""What the grid keeps in the database: reads of its rows, and the statements that write them."""

from __future__ import annotations
