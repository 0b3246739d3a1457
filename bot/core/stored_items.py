"""Items of DynamoDB as exports describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """An item that is to have some attributes, or is to be deleted. Others that it has stay as they are."""

    table: str  # without the prefix of the sink
    key: str  # `dynamoKey`
    attributes: Mapping[str, Any]  # as JSON has them; null is not written
    # the attribute with our version of these: exports that write to the same item have one each, so that none of them
    # takes the other for newer
    version: str = "_version"
