"""One HTTP request: parsed, allowed or refused, handed to reads, writes, deletion or a watch, and answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import yaml

from cli.sandbox.apiserver import binding, discovery, openapi, reads, routes, tables
from cli.sandbox.apiserver.access import verb_of
from cli.sandbox.apiserver.faults import Answer, Drop, Hold
from cli.sandbox.apiserver.kinds import Served
from cli.sandbox.apiserver.routes import Route, Target
from cli.sandbox.apiserver.statuses import ApiError, bad_request, invalid_options, method_not_allowed, required
from cli.sandbox.apiserver.watch import Watch
from cli.sandbox.apiserver.writes import APPLY, Writer

if TYPE_CHECKING:
    from cli.sandbox.apiserver.server import ApiServer

HEALTH = ("readyz", "healthz", "livez")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the log keeps it, noted before it is answered."""

    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    user: str
    content_type: str
    body: bytes

    @property
    def writes(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH", "DELETE")


class ConnectionDroppedError(Exception):
    """The connection ends here without an answer."""


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.1 with kept connections; `api` is set by the server on a subclass."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: ApiServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Nothing on stderr; `ApiServer.requests` is the log."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        target = routes.parse(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(method, target, body)
        except ApiError as failure:
            self._send(failure.code, failure.body())
        except (ConnectionDroppedError, ConnectionError):
            self.close_connection = True

    def _answer(self, method: str, target: Target, body: bytes) -> None:
        user = self.api.access.user(self.headers.get("Authorization") or "")
        content_type = (self.headers.get("Content-Type") or "").partition(";")[0].strip()
        agent = self.headers.get("User-Agent") or ""
        self.api.note(Request(method, target.path, target.query, agent, user, content_type, body))
        match self.api.faults.next_for(method, target.path):
            case Answer() as refusal:
                headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
                status = ApiError(refusal.status, refusal.reason, refusal.message, {})
                self._send(refusal.status, status.body(), headers)
                return
            case Drop(after_write=False):
                raise ConnectionDroppedError
            case Drop():
                self._dispatch(method, target, body, user, content_type, lambda *_: None)
                raise ConnectionDroppedError
            case Hold() as hold:
                hold.wait()
                if self.api.stopping:
                    raise ConnectionDroppedError
        self._dispatch(method, target, body, user, content_type, self._send)

    def _dispatch(
        self,
        method: str,
        target: Target,
        body: bytes,
        user: str,
        content_type: str,
        send: Callable[[int, Mapping[str, Any]], None],
    ) -> None:
        if target.parts[:1] and target.parts[0] in HEALTH:
            self._send_text(200, "ok")
        elif (told := _told_of_itself(self.api.served, target)) is not None:
            if method != "GET":
                raise method_not_allowed()
            self.api.access.check(user, "get", target.path, None, "")
            send(200, told)
        elif not routes.is_resource(self.api.served, target):
            self._send_text(404, "404 page not found\n")
        else:
            self._on_resource(method, target, body, user, content_type, send)

    def _on_resource(
        self,
        method: str,
        target: Target,
        body: bytes,
        user: str,
        content_type: str,
        send: Callable[[int, Mapping[str, Any]], None],
    ) -> None:
        route = routes.resource(self.api.served, target)
        verb = verb_of(method, target.query, route.name)
        self.api.access.check(user, verb, target.path, route.kind, route.name)
        writer = self._writer(target, content_type)
        match method, bool(route.name):
            case "POST", True if route.subresource == routes.BINDING[1]:
                send(201, binding.bind(self.api.store, route.kind, route.key, _parsed_object(body, content_type)))
            case _, True if route.subresource == routes.BINDING[1]:
                raise method_not_allowed()
            case "GET", True:
                send(200, self._as_asked(route, reads.get(self.api.store, route)))
            case "GET", False if verb == "watch":
                self._watch(route, target)
            case "GET", False:
                send(200, self._as_asked(route, reads.listed(self.api.store, route, target)))
            case "POST", False:
                self._need_namespace(route)
                made = self.api.writes.create(route.kind, route.namespace, _parsed_object(body, content_type), writer)
                send(201, made.obj)
            case "PUT", True:
                put = self.api.writes.replace(
                    route.kind, route.key, _parsed_object(body, content_type), writer, route.subresource
                )
                send(201 if put.created else 200, put.obj)
            case "PATCH", True:
                patch = _parsed(body, yaml_too=content_type == APPLY)
                done = self.api.writes.patch(route.kind, route.key, content_type, patch, writer, route.subresource)
                send(201 if done.created else 200, done.obj)
            case "DELETE", True if not route.subresource:
                send(200, self._delete(route, target, _options(target, body)))
            case "DELETE", False:
                send(200, self._delete_collection(route, target, _options(target, body)))
            case _:
                raise method_not_allowed()

    def _as_asked(self, route: Route, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if tables.wanted(self.headers.get("Accept") or ""):
            return tables.table(route.kind, body, self.api.store.now())
        return body

    def _need_namespace(self, route: Route) -> None:
        if route.kind.namespaced and not route.namespace:
            raise method_not_allowed()

    def _writer(self, target: Target, content_type: str) -> Writer:
        manager = target.query.get("fieldManager", "")
        if not manager and content_type == APPLY:
            raise invalid_options(required("fieldManager", "is required for apply patch"))
        agent = (self.headers.get("User-Agent") or "unknown").partition("/")[0]
        return Writer(
            manager or agent[:128],
            force=target.flag("force"),
            dry_run=target.query.get("dryRun") == "All",
            validation=target.query.get("fieldValidation", "Warn"),
        )

    def _delete(self, route: Route, target: Target, options: Mapping[str, Any]) -> Mapping[str, Any]:
        dry_run = target.query.get("dryRun") == "All"
        removal = self.api.deletion.delete(route.kind, route.key, options, dry_run=dry_run)
        if route.kind.returns_deleted or not removal.gone:
            return route.kind.shown(removal.obj)
        meta = removal.obj["metadata"]
        details = {"name": meta["name"], "group": route.kind.group, "kind": route.kind.plural, "uid": meta["uid"]}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {k: v for k, v in details.items() if v},
        }

    def _delete_collection(self, route: Route, target: Target, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Deletes what the selectors pick and answers with the list of it."""
        listed = reads.listed(self.api.store, route, target)
        for item in listed["items"]:
            meta = item["metadata"]
            key = route.key._replace(namespace=meta.get("namespace", ""), name=meta["name"])
            if self.api.store.find(key) is not None:
                self.api.deletion.delete(route.kind, key, options)
        return listed

    def _watch(self, route: Route, target: Target) -> None:
        watch = Watch(
            self.api.store,
            route,
            target,
            bookmarks_seconds=self.api.bookmarks_seconds,
            stopping=lambda: self.api.stopping,
            stalled=lambda: self.api.faults.watches_stalled,
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in watch:
            if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                event["object"] = self._as_asked(route, event["object"])
            line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        if self.api.stopping:
            raise ConnectionDroppedError
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(body, separators=(",", ":")).encode(), "application/json", headers or {})

    def _send_text(self, status: int, text: str) -> None:
        self._send_bytes(status, text.encode(), "text/plain; charset=utf-8", {})

    def _send_bytes(self, status: int, content: bytes, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _told_of_itself(served: Served, target: Target) -> Mapping[str, Any] | None:
    return discovery.answer(served, target.parts) or openapi.answer(served, target.parts)


def _parsed(body: bytes, *, yaml_too: bool) -> Any:
    try:
        return json.loads(body)
    except ValueError as wrong:
        if yaml_too:
            try:
                return yaml.safe_load(body)
            except yaml.YAMLError as worse:
                raise bad_request(f"error decoding YAML: {worse}") from None
        raise bad_request(f"couldn't parse the body as JSON: {wrong}") from None


def _parsed_object(body: bytes, content_type: str = "") -> dict[str, Any]:
    parsed = _parsed(body, yaml_too=content_type == "application/yaml")
    if not isinstance(parsed, dict):
        raise bad_request("the body is no object")
    return parsed


def _options(target: Target, body: bytes) -> dict[str, Any]:
    """DeleteOptions from the body, or from the query where the body has none."""
    options = _parsed_object(body) if body.strip() else {}
    if "propagationPolicy" in target.query:
        options.setdefault("propagationPolicy", target.query["propagationPolicy"])
    if "gracePeriodSeconds" in target.query:
        options.setdefault("gracePeriodSeconds", int(target.query["gracePeriodSeconds"]))
    return options
