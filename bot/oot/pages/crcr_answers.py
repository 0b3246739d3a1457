"""Answers and descriptions of the addresses that dashboards of the cross-repository CI relay ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot.web import operations as op
from bot.web.asked import describe

if TYPE_CHECKING:
    from bot.web.asked import Parameter


def send(answer: object) -> web.Response:
    """Answer with JSON."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(answer), headers=headers)


def crcr_operation(
    path: str,
    name: str,
    summary: str,
    kind: Any,
    *known: Parameter[Any],
    refusals: tuple[op.Refusal, ...] = (op.WRONG_PARAMETER,),
) -> op.Operation:
    """Describe an address for the interface's document."""
    return op.Operation(
        f"GET {path}",
        name,
        summary,
        op.Content(kind, f"{summary}, as dashboards of the cross-repository CI relay ask for them"),
        topic=op.Topic("CRCR", "What dashboards of the cross-repository CI relay ask for."),
        callers=op.READER,
        refusals=[*refusals, *op.READING],
        parameters=describe(known),
    )
