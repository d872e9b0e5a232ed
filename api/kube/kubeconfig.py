"""What a kubeconfig file says.

Certificates, keys and tokens are read here. Everything that needs a program run or a token exchanged (exec, auth-provider)
is left to the official client, which is imported only then: it costs 0.6 s and 35 MB.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from api.kube.credentials import AskedToken, FixedToken, TokenFile, TokenSource, is_sendable
from api.kube.server import Material, Server
from api.refusals import BadInput, Refused

_PLUGIN_FIELDS = ("exec", "auth-provider")
_UNSUPPORTED = {
    "as": "use a user that has the rights itself",
    "username": "Kubernetes dropped passwords in 1.19; use a token or a certificate",
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One cluster, user or context, with the file it came from: relative paths in it start there."""

    source: Path
    where: str
    fields: Mapping[str, Any]

    def refuse(self, field: str, problem: str, remedy: str) -> Refused:
        return Refused(BadInput(f"{self.source}: {self.where}.{field}", problem, remedy))

    def text(self, field: str) -> str | None:
        value = self.fields.get(field)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.refuse(field, f"is {type(value).__name__}, not text", "write it as text")
        return value

    def file(self, field: str) -> Path | None:
        """The file a field names, seen from the kubeconfig's directory as kubectl does."""
        text = self.text(field)
        if text is None:
            return None
        path = self.source.absolute().parent / text
        if not path.is_file():
            raise self.refuse(field, f"there is no file {path}", "correct the path")
        return path

    def material(self, field: str) -> Material | None:
        """`<field>-data`, which wins as in kubectl, or the file `<field>` names."""
        data = self.text(f"{field}-data")
        if data is None:
            return self.file(field)
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as error:
            raise self.refuse(f"{field}-data", "is not base64", "write the PEM file encoded with base64") from error


def read(paths: Sequence[Path], *, context: str | None = None) -> Server:
    """The server of the given context, else of the current one; of several files the first to name something wins, as in
    kubectl.

    Raises Refused with file, field and remedy.
    """
    documents = [(path, _document(path)) for path in paths if len(paths) == 1 or path.exists()]
    if not documents:
        raise Refused(BadInput("KUBECONFIG", f"none of {', '.join(map(str, paths))} exists", "name a file that exists"))
    current = next((str(doc["current-context"]) for _, doc in documents if doc.get("current-context")), None)
    chosen = context if context is not None else current
    if chosen is None:
        raise Refused(BadInput(str(paths[0]), "no current-context is set", "run: kubectl config use-context NAME"))
    bound = _find(documents, "context", chosen)
    cluster = _find(documents, "cluster", bound.text("cluster") or "")
    user_name = bound.text("user")
    user = _find(documents, "user", user_name) if user_name else _Entry(paths[0], "user", {})
    if cluster.text("proxy-url"):
        raise cluster.refuse("proxy-url", "Lanewise uses no proxies", "name an address that can be reached directly")
    for field, remedy in _UNSUPPORTED.items():
        if user.fields.get(field):
            raise user.refuse(field, "is not supported", remedy)
    namespace = bound.text("namespace") or "default"
    certificate, key = user.material("client-certificate"), user.material("client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise user.refuse(missing, "is missing", "give certificate and key, or neither")
    if any(user.fields.get(field) for field in _PLUGIN_FIELDS):
        return _ask_official_client([path for path, _ in documents], chosen, user, namespace)
    return Server(
        url=_url(cluster),
        authority=cluster.material("certificate-authority"),
        certificate=certificate,
        key=key,
        tokens=_tokens(user),
        insecure=cluster.fields.get("insecure-skip-tls-verify") is True,
        tls_server_name=cluster.text("tls-server-name"),
        namespace=namespace,
        source=str(user.source),
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(BadInput(str(path), f"cannot be read: {error.strerror}", "name a kubeconfig file")) from error
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # PyYAML lets the latter two through: 2026-13-45, "[" * 3000
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise Refused(BadInput(str(path), f"is not YAML{line}", "name a kubeconfig file")) from error
    if not isinstance(document, dict):
        raise Refused(BadInput(str(path), "is no kubeconfig", "name a file with clusters, users and contexts"))
    return document


def _find(documents: Sequence[tuple[Path, Mapping[str, Any]]], kind: str, name: str) -> _Entry:
    known: list[str] = []
    for path, document in documents:
        entries = document.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            known.append(str(entry.get("name")))
            if entry.get("name") == name:
                fields = entry.get(kind)
                return _Entry(path, f"{kind}s[{name}].{kind}", fields if isinstance(fields, dict) else {})
    listed = f"use one of: {', '.join(known)}" if known else f"add one below {kind}s"
    raise Refused(BadInput(str(documents[0][0]), f"there is no {kind} {name!r}", listed))


def _url(cluster: _Entry) -> str:
    url = (cluster.text("server") or "").rstrip("/")
    if not url.startswith(("https://", "http://")) or not _has_host(url):
        raise cluster.refuse("server", f"{url!r} is no URL", "write https://HOST:PORT")
    return url


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0  # reading the port checks it
    except ValueError:
        return False


def _tokens(user: _Entry) -> TokenSource | None:
    # The file wins over the literal, as in client-go (tools/clientcmd/client_config.go).
    file = user.file("tokenFile")
    if file is not None:
        return TokenFile(file)
    text = user.text("token")
    if text is not None and not is_sendable(text):
        raise user.refuse("token", "has characters that no token has", "write it as it was issued, in one line")
    return FixedToken(text) if text else None


def _ask_official_client(paths: Sequence[Path], context: str, user: _Entry, namespace: str) -> Server:
    field = next(name for name in _PLUGIN_FIELDS if user.fields.get(name))
    try:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config
    except ImportError as error:
        remedy = "install it: pip install 'lanewise[controller]', or use a token or a certificate"
        raise user.refuse(field, "needs the Python package kubernetes, which is not installed", remedy) from error
    settings = Configuration()
    load: Callable[..., None] = load_kube_config
    try:
        load(":".join(map(str, paths)), context=context, client_configuration=settings, persist_config=False)
    except (ConfigException, OSError, ValueError, KeyError) as error:
        raise user.refuse(field, f"gave no credentials: {error}", "see that kubectl works with this file") from error

    def ask() -> str | None:
        value = settings.auth_settings().get("BearerToken", {}).get("value")
        return str(value).removeprefix("Bearer ") if value else None

    if ask() is None and not (settings.cert_file and settings.key_file):
        raise user.refuse(field, "gave no credentials", "see that kubectl works with this file")
    return Server(
        url=str(settings.host).rstrip("/"),
        authority=_path(settings.ssl_ca_cert),
        certificate=_path(settings.cert_file),
        key=_path(settings.key_file),
        tokens=AskedToken(ask),
        insecure=not settings.verify_ssl,
        tls_server_name=settings.tls_server_name,
        namespace=namespace,
    )


def _path(name: Any) -> Path | None:
    return Path(str(name)) if name else None
