"""What is known about an API server before the first call."""

from dataclasses import dataclass, field
from pathlib import Path

from api.kube.credentials import TokenSource

Material = Path | bytes
"""PEM, in a file that may be replaced while we run, or as it stood in the kubeconfig."""


@dataclass(frozen=True, slots=True)
class Server:
    """One API server and how to make ourselves known there. Secrets are kept out of its repr."""

    url: str
    """With scheme, and with a path in front of /api where a gateway asks for one."""
    authority: Material | None = field(default=None, repr=False)
    """Who signed the server's certificate; None: whom the system trusts."""
    certificate: Material | None = field(default=None, repr=False)
    key: Material | None = field(default=None, repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)
    insecure: bool = False
    """Take any certificate."""
    tls_server_name: str | None = None
    """The name to expect in the certificate where it is not the URL's host."""
    namespace: str = "default"
    source: str = ""
    """The kubeconfig that all this was read from."""
