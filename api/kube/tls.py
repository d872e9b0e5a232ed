"""How we trust the API server, and show it who we are, by certificate."""

import ssl
import tempfile
from pathlib import Path

from api.kube.server import Material, Server
from api.refusals import BadInput, Refused


def context_for(server: Server) -> ssl.SSLContext:
    """The TLS settings for one server. Raises Refused when a certificate or key cannot be used."""
    # Empty where an authority is given, so that nothing else is trusted.
    system = server.authority is None
    context = ssl.create_default_context() if system else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Python 3.13 turned this on; authorities made by kubeadm and its like lack what it asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if server.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if server.authority is not None:
        try:
            context.load_verify_locations(cadata=_pem(server.authority).decode("ascii", errors="ignore"))
        except (OSError, ValueError) as error:
            source = _source(server, server.authority, "certificate-authority-data")
            raise Refused(
                BadInput(source, "holds no usable certificate", "give the cluster's authority as PEM")
            ) from error
    if server.certificate is not None and server.key is not None:
        try:
            _load_chain(context, _pem(server.certificate), _pem(server.key))
        except (OSError, ValueError) as error:
            source = _source(server, server.certificate, "client-certificate-data")
            raise Refused(
                BadInput(source, "certificate and key cannot be used together", "give both as PEM")
            ) from error
    return context


def _load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module takes files only. This one is ours alone (mode 0700) and gone when we return.
    with tempfile.TemporaryDirectory(prefix="lanewise-") as directory:
        file = Path(directory, "pair.pem")
        file.touch(mode=0o600)
        file.write_bytes(certificate + b"\n" + key)
        # A key with a passphrase would otherwise ask for it on the terminal of a daemon.
        context.load_cert_chain(file, password=lambda: "")


def _pem(material: Material) -> bytes:
    return material if isinstance(material, bytes) else material.read_bytes()


def _source(server: Server, material: Material, field: str) -> str:
    if isinstance(material, Path):
        return str(material)
    return f"{server.source}: {field}" if server.source else field
