"""What happened on GitHub: deliveries, the records made of them, and what was missed."""

from __future__ import annotations
