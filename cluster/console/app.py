"""The pages of the console, and its one stream of live data.

All answers are reads: there is nothing to submit, so there is nothing to forge. The page runs only scripts of this
server, and only programs of this machine can ask it (`dledger console` listens on loopback): a page of another site
that has its name resolve to loopback is refused by the name in `Host`.
"""

from __future__ import annotations

import json
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

from cluster.console.group_view import plain_group
from cluster.console.hub import TooManyViewers, updates
from cluster.console.pages import group_row, node_rows
from cluster.console.topics import page_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from cluster.console.group_view import GroupView
    from cluster.console.hub import Hub
    from cluster.console.topics import TopicRow

_FOLDER: Final = Path(__file__).parent
_HOSTS: Final = ["localhost", "127.0.0.1", "[::1]"]
# How long a page waits for nodes that have not answered yet; it shows them as unknown then.
_PATIENCE_S: Final = 1.5
# A comment in the stream, so that both ends learn of a broken connection.
_SILENCE_S: Final = 10.0
_SEARCH_MAX: Final = 255
_EVENTS_SHOWN: Final = 50
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Console:
    """What the pages show.

    Attributes:
        hub: of the groups.
        ask_topics: returns the topics of all groups, and the faults of those that do not answer; called in another
            thread.
    """

    hub: Hub
    ask_topics: Callable[[], tuple[list[TopicRow], dict[str, str]]]


def console_app(console: Console) -> Starlette:
    """Return the application; its nodes are watched from the first page on."""
    pages = _Pages(console)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await console.hub.close()

    return Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/parts/overview", pages.overview_part),
            Route("/groups/{name}", pages.group),
            Route("/parts/groups/{name}", pages.group_part),
            Route("/topics", pages.topics),
            Route("/events", pages.events),
            Route("/api/groups", pages.groups_json),
            Mount("/static", StaticFiles(directory=_FOLDER / "static")),
        ],
        exception_handlers={404: pages.not_found, TooManyViewers: pages.too_many},
        middleware=[Middleware(_Headers), Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)],
        lifespan=lifespan,
    )


class _Headers:
    """Adds the headers that keep the page's rights small to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)


class _Pages:
    """The endpoints of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._hub = console.hub
        self._templates = Jinja2Templates(directory=_FOLDER / "templates")
        self._templates.env.globals["group_names"] = list(self._hub.groups)

    async def overview(self, request: Request) -> Response:
        """Show all groups: what is wrong now, and what to do."""
        await self._hub.first_answers(_PATIENCE_S)
        return self._page(request, "overview.html", "Overview", groups=self._rows())

    async def overview_part(self, request: Request) -> Response:
        """Return the changing part of the overview, for a page that is open."""
        await self._hub.first_answers(_PATIENCE_S)
        return self._templates.TemplateResponse(request, "overview_part.html", {"groups": self._rows()})

    async def group(self, request: Request) -> Response:
        """Show one group: the nodes, their positions and their last events."""
        group = self._group_of(request)
        await self._hub.first_answers(_PATIENCE_S)
        events = sorted(group.events, key=itemgetter("at_ms"))[-_EVENTS_SHOWN:][::-1]
        return self._page(
            request, "group.html", f"Group {group.name}", row=group_row(group), nodes=node_rows(group), events=events
        )

    async def group_part(self, request: Request) -> Response:
        """Return the state and the findings of a group, for a page that is open."""
        group = self._group_of(request)
        await self._hub.first_answers(_PATIENCE_S)
        return self._templates.TemplateResponse(request, "group_part.html", {"row": group_row(group)})

    async def topics(self, request: Request) -> Response:
        """List topics, by name; the search and the page are in the address."""
        search = request.query_params.get("search", "")[:_SEARCH_MAX]
        begin = request.query_params.get("begin", "0")
        rows, faults = await run_in_threadpool(self._console.ask_topics)
        page = page_of(rows, faults, search=search, begin=int(begin[:9]) if begin.isdecimal() else 0)
        return self._page(request, "topics.html", "Topics", page=page, search=search)

    async def groups_json(self, _: Request) -> Response:
        """Return all groups with their nodes and events, for programs."""
        await self._hub.first_answers(_PATIENCE_S)
        return JSONResponse({"groups": [plain_group(group) for group in self._hub.groups.values()]})

    async def events(self, _: Request) -> Response:
        """Stream states and events as server-sent events: first all groups, then each change."""
        stream = updates(self._hub, _SILENCE_S)
        # The first one takes the place, so that a refusal is an answer and not a broken stream.
        whole = await anext(stream)

        async def lines() -> AsyncIterator[str]:
            async with aclosing(stream):
                yield f"event: whole\ndata: {json.dumps(whole)}\n\n"
                async for update in stream:
                    yield ": quiet\n\n" if update is None else f"event: update\ndata: {json.dumps(update)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def not_found(self, request: Request, _: Exception) -> Response:
        """Say that there is no such page."""
        return self._page(request, "missing.html", "Not found", status_code=404)

    async def too_many(self, _request: Request, error: Exception) -> Response:
        """Refuse another viewer."""
        return Response(str(error), 503, media_type="text/plain")

    def _rows(self) -> list[Any]:
        return [group_row(group) for group in self._hub.groups.values()]

    def _group_of(self, request: Request) -> GroupView:
        group = self._hub.groups.get(request.path_params["name"])
        if group is None:
            raise HTTPException(404)
        return group

    def _page(self, request: Request, template: str, title: str, status_code: int = 200, **values: Any) -> Response:
        return self._templates.TemplateResponse(
            request, template, {"title": title, "path": request.url.path, **values}, status_code=status_code
        )
