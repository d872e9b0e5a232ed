"""An archive is an OCI image layout whose digests fit, and the same inputs give the same bytes."""

import gzip
import hashlib
import io
import json
import tarfile

from tests.cluster import images


def files_of(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers() if member.isfile()}


def an_image() -> bytes:
    root = images.layer([images.Folder("bin"), images.File("bin/tool", b"#!", 0o755), images.Link("bin/alias", "tool")])
    return images.archive("local.test/tool:1", [root], ["/bin/tool"], {"PATH": "/bin", "MODE": "test"})


def test_every_descriptor_leads_to_a_blob_of_its_digest_and_size():
    """Index, manifest and configuration chain down to the layer, which unpacks to what was put in."""
    files = files_of(an_image())

    def blob(descriptor):
        content = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert descriptor["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
        assert descriptor["size"] == len(content)
        return content

    [described] = json.loads(files["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == "local.test/tool:1"
    manifest = json.loads(blob(described))
    configuration = json.loads(blob(manifest["config"]))
    assert configuration["config"] == {"Env": ["PATH=/bin", "MODE=test"], "Cmd": ["/bin/tool"]}
    [packed] = [blob(each) for each in manifest["layers"]]
    root = gzip.decompress(packed)
    assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(root).hexdigest()]
    with tarfile.open(fileobj=io.BytesIO(root)) as tar:
        assert [(each.name, oct(each.mode), each.linkname) for each in tar.getmembers()] == [
            ("bin", "0o755", ""),
            ("bin/tool", "0o755", ""),
            ("bin/alias", "0o777", "tool"),
        ]


def test_same_inputs_give_the_same_bytes():
    """An image that did not change is not a new image."""
    assert an_image() == an_image()
