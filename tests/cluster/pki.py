"""A throw-away certificate authority: a key pair for each component of a test cluster, and its kubeconfig."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=3650)
NODE = "localhost"  # the API server reaches the kubelet under its node's name, so the name has to resolve


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a certificate is for: a client by its name and group, a server by the names it is called under."""

    name: str
    group: str = ""
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def is_server(self) -> bool:
        return bool(self.dns or self.addresses)


@dataclass(frozen=True, slots=True)
class Authority:
    """The key and certificate that sign all others of one cluster."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def identities(address: str) -> dict[str, Identity]:
    """The parts of a cluster whose API server answers at `address`, by file name."""
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    return {
        "apiserver": Identity("kube-apiserver", dns=("localhost", *service), addresses=("127.0.0.1", address)),
        "kubelet-server": Identity(NODE, dns=(NODE,), addresses=("127.0.0.1",)),
        "admin": Identity("admin", group="system:masters"),
        "kube-controller-manager": Identity("system:kube-controller-manager"),
        "kube-scheduler": Identity("system:kube-scheduler"),
        "kubelet": Identity(f"system:node:{NODE}", group="system:nodes"),
        "apiserver-kubelet-client": Identity("apiserver-kubelet-client", group="system:masters"),
    }


CLIENTS_OF_THE_API = ("admin", "kube-controller-manager", "kube-scheduler", "kubelet")


def write(folder: Path, address: str, server: str) -> None:
    """Writes `ca.crt`, a `.crt` and `.key` for each part, the service accounts' keys, and kubeconfigs for the clients."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = new_authority()
    (folder / "ca.crt").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    for name, identity in identities(address).items():
        key = ec.generate_private_key(ec.SECP256R1())
        _write_key(folder / f"{name}.key", key)
        (folder / f"{name}.crt").write_bytes(certificate(authority, key, identity).public_bytes(Encoding.PEM))
    for name in CLIENTS_OF_THE_API:
        user = {"client-certificate": str(folder / f"{name}.crt"), "client-key": str(folder / f"{name}.key")}
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(server, folder / "ca.crt", user))
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "accounts.key", accounts)
    public = accounts.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "accounts.pub").write_bytes(public)


def new_authority() -> Authority:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lanewise-test-cluster")])
    unsigned = (
        _unsigned(key, name, issuer=name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(key, unsigned.sign(key, hashes.SHA256()))


def certificate(authority: Authority, key: ec.EllipticCurvePrivateKey, identity: Identity) -> x509.Certificate:
    """A certificate for the holder of `key`; Kubernetes reads user and group from common name and organization."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.name)]
    if identity.group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.group))
    usage = ExtendedKeyUsageOID.SERVER_AUTH if identity.is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    unsigned = _unsigned(key, x509.Name(attributes), issuer=authority.certificate.subject)
    unsigned = unsigned.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    unsigned = unsigned.add_extension(issuer_key, critical=False)  # strict verifiers (Python 3.13's default) want it
    if identity.is_server:
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in identity.dns]
        names += [x509.IPAddress(IPv4Address(address)) for address in identity.addresses]
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return unsigned.sign(authority.key, hashes.SHA256())


def kubeconfig(server: str, ca: Path, user: dict[str, str]) -> str:
    """A kubeconfig with one cluster and one user, which holds file names of a certificate or a token itself."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        },
        sort_keys=False,
    )


def _unsigned(key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
