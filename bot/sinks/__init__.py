"""Copies for others: what changes here is sent to object stores, DynamoDB and ClickHouse."""

from __future__ import annotations
