"""GET /oot/commands: what each command in a comment does, and who may give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.oot.commands.described import describe_commands
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from aiohttp.web import Request, Response


@page
async def show_commands(request: Request) -> Response:
    """Show the commands."""
    return render(
        request, "commands.html", json_url="", commands=describe_commands(request.app[CONTEXT].features)
    )


PAGE = Endpoint(web.get("/oot/commands", show_commands))
