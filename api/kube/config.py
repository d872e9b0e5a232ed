"""Which API server to talk to, as read from the pod we run in or from a kubeconfig."""

from collections.abc import Mapping
from pathlib import Path

from api.kube.credentials import TokenFile
from api.kube.server import Server
from api.refusals import BadInput, Refused

__all__ = ["TOKEN_DIR", "Server", "in_cluster", "load"]

TOKEN_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: Path | None, env: Mapping[str, str], *, context: str | None = None, token_dir: Path = TOKEN_DIR
) -> Server:
    """The server to use: the given file, else $KUBECONFIG, else the cluster we run in, else ~/.kube/config; of a file the
    given context, else its current one.

    What a person named goes before what the surroundings say. Raises Refused with the path and the remedy.
    """
    if kubeconfig is not None:
        return _read(kubeconfig, context=context)
    named = tuple(Path(part) for part in env.get("KUBECONFIG", "").split(":") if part)
    if named:
        return _read(*named, context=context)
    # A context is a kubeconfig's, and a pod has none.
    if env.get("KUBERNETES_SERVICE_HOST") and context is None:
        return in_cluster(env, token_dir=token_dir)
    home = Path(env.get("HOME") or "/") / ".kube" / "config"
    if home.exists():
        return _read(home, context=context)
    raise Refused(
        BadInput(
            "kubeconfig",
            f"no cluster is named: no --kubeconfig, no KUBECONFIG, no {home}, and this is no pod",
            "give --kubeconfig=FILE",
        )
    )


def _read(*paths: Path, context: str | None) -> Server:
    from api.kube.kubeconfig import read  # needs YAML, which a pod does without

    return read(paths, context=context)


def in_cluster(env: Mapping[str, str], *, token_dir: Path = TOKEN_DIR) -> Server:
    """The server of the cluster whose pod we are. Source: Kubernetes docs, "Accessing the Kubernetes API from a Pod"."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT") or "443"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Refused(
            BadInput("KUBERNETES_SERVICE_PORT", f"{port!r} is no port", "the kubelet sets it; do not set it by hand")
        )
    authority = token_dir / "ca.crt"
    if not authority.is_file():
        remedy = "run with automountServiceAccountToken: true, or give --kubeconfig=FILE"
        raise Refused(BadInput(str(authority), "no certificate of the cluster's authority", remedy))
    namespace = token_dir / "namespace"
    return Server(
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authority=authority,
        tokens=TokenFile(token_dir / "token"),
        namespace=(namespace.read_text(encoding="utf-8", errors="replace").strip() if namespace.is_file() else "")
        or "default",
    )
