"""The certificates are what Kubernetes reads users, groups and host names from."""

from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.cluster import pki


def test_certificate_of_a_server_names_its_addresses_and_is_signed_by_the_authority():
    """A client that trusts the authority accepts the API server under its loopback address and its service's names."""
    authority, key = pki.new_authority(), ec.generate_private_key(ec.SECP256R1())
    made = pki.certificate(authority, key, pki.identities("127.44.0.1")["apiserver"])
    made.verify_directly_issued_by(authority.certificate)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "127.44.0.1"]
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_certificate_of_the_kubelet_is_of_its_node():
    """The Node authorizer knows a kubelet by this user and group."""
    authority, key = pki.new_authority(), ec.generate_private_key(ec.SECP256R1())
    made = pki.certificate(authority, key, pki.identities("127.44.0.1")["kubelet"])
    assert made.subject.rfc4514_string() == "O=system:nodes,CN=system:node:localhost"


def test_written_kubeconfig_names_files_that_exist(tmp_path):
    """Each client's kubeconfig stands on its own, and keys are readable by their owner only."""
    pki.write(tmp_path, "127.44.0.1", "https://127.44.0.1:443")
    for name in pki.CLIENTS_OF_THE_API:
        content = yaml.safe_load((tmp_path / f"{name}.kubeconfig").read_text())
        user, cluster = content["users"][0]["user"], content["clusters"][0]["cluster"]
        assert cluster["server"] == "https://127.44.0.1:443"
        for path in (user["client-certificate"], user["client-key"], cluster["certificate-authority"]):
            assert Path(path).is_file(), path
        assert Path(user["client-key"]).stat().st_mode & 0o077 == 0
