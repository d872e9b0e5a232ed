"""Who trusts whom."""

import base64
import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.kube.client import Client
from api.kube.errors import Unreachable
from api.kube.server import Server
from api.refusals import Refused
from tests.support.reflecting import reflecting
from tests.support.scripted_server import Json, ScriptedServer, a_list, an_object

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
END = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


class Authority:
    """Signs certificates."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._build(self.name, self.key.public_key(), authority=True)

    def _build(self, subject, public_key, *, authority=False):
        builder = x509.CertificateBuilder(self.name, subject, public_key, x509.random_serial_number(), START, END)
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def pair(self, name):
        """Certificate and key as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._build(subject, key.public_key()).public_bytes(serialization.Encoding.PEM)
        plain = serialization.NoEncryption()
        return certificate, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


AUTHORITY = Authority()


def serving(tmp_path, authority=AUTHORITY, **options):
    certificate, key = authority.pair("server")
    file = tmp_path / "server.pem"
    file.write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem.decode())
    context.load_cert_chain(file)
    context.verify_mode = options.pop("verify", ssl.CERT_NONE)
    return ScriptedServer(tls=context, **options)


def version(server, **fields):
    with Client(Server(url=server.url, **fields), user_agent="test") as client:
        return client.version()


def answer(asked):
    return Json({"gitVersion": "v1.37.2"}) if asked.path == "/version" else None


def test_given_authority_is_trusted(tmp_path):
    """As data and as a file."""
    file = tmp_path / "ca.crt"
    file.write_bytes(AUTHORITY.pem)
    with serving(tmp_path, answer=answer) as server:
        assert version(server, authority=AUTHORITY.pem)["gitVersion"] == "v1.37.2"
        assert version(server, authority=file)["gitVersion"] == "v1.37.2"


def test_other_authority_is_not_trusted(tmp_path):
    """The error says that it is about trust, and what to check."""
    with serving(tmp_path, answer=answer) as server, pytest.raises(Unreachable) as caught:
        version(server, authority=Authority().pem)
    assert caught.value.cause == "untrusted"
    assert "the server's certificate is not trusted" in caught.value.what
    assert caught.value.remedy == "check the certificate authority given"


def test_insecure_takes_any_certificate(tmp_path):
    """Only when it was asked for."""
    with serving(tmp_path, answer=answer) as server:
        assert version(server, insecure=True)["gitVersion"] == "v1.37.2"


def test_client_certificate_is_shown(tmp_path):
    """Certificate and key given as data, as kubeadm writes them, convince a server that demands them."""
    certificate, key = AUTHORITY.pair("system:node:node-a")
    with serving(tmp_path, answer=answer, verify=ssl.CERT_REQUIRED) as server:
        assert version(server, authority=AUTHORITY.pem, certificate=certificate, key=key)["gitVersion"] == "v1.37.2"
        with pytest.raises(Unreachable):
            version(server, authority=AUTHORITY.pem)


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"authority": b"no PEM"}, "certificate-authority-data"),
        ({"authority": AUTHORITY.pem, "certificate": b"no", "key": b"PEM"}, "client-certificate-data"),
    ],
)
def test_unusable_certificates_are_refused_at_the_start(fields, source):
    """Before any call, with the field they came from."""
    with pytest.raises(Refused) as caught:
        Client(Server(url="https://127.0.0.1:1", **fields), user_agent="test")
    assert caught.value.reason.source == source


def test_rotated_authority_is_read_again(tmp_path):
    """When the cluster's authority is replaced, the next failure makes us read its file again."""
    old, new = Authority(), Authority()
    file = tmp_path / "ca.crt"
    file.write_bytes(old.pem)
    with (
        serving(tmp_path, new, answer=answer) as server,
        Client(Server(url=server.url, authority=file), user_agent="test") as client,
    ):
        with pytest.raises(Unreachable):
            client.version()
        file.write_bytes(new.pem)
        with pytest.raises(Unreachable):
            client.version()
        assert client.version()["gitVersion"] == "v1.37.2"


def test_stop_ends_a_watch_over_tls(tmp_path):
    """Shutting the socket down under a TLS read ends it at once, too."""
    with (
        serving(tmp_path, lists=(a_list(an_object("a")),)) as server,
        reflecting(server, target=Server(url=server.url, authority=AUTHORITY.pem)) as (reflector, _, _),
    ):
        server.wait_for_watches(1)
        assert reflector.stop(timeout_seconds=2.0)


def test_keys_leave_no_file_behind(tmp_path, monkeypatch):
    """The file that the ssl module needs is gone when the client is made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate, key = AUTHORITY.pair("x")
    Client(Server(url="https://127.0.0.1:1", certificate=certificate, key=key), user_agent="test").close()
    assert list(tmp_path.iterdir()) == []
    assert base64.b64encode(key).decode() not in repr(Server(url="https://x", key=key))
