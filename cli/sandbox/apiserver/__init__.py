"""A Kubernetes API server in this process, for tests and for the demo.

It answers as kube-apiserver 1.37.2 does; `tests/contract` asks both the same. Known to differ: CEL is neither compiled
nor run (selectors, x-kubernetes-validations, admission policies); built-in kinds outside resource.k8s.io are taken
without a schema; collection of owned objects, of namespaces and of definitions has ended when a delete is answered, but
objects whose owners never existed stay until `deletion.collect()`; bookmarks come also when nothing has changed; apply
does not check the types of values; protobuf, schemas in OpenAPI and aggregated discovery are not
offered.
"""

from cli.sandbox.apiserver.http import Request
from cli.sandbox.apiserver.server import ApiServer
from cli.sandbox.apiserver.store import Store

__all__ = ["ApiServer", "Request", "Store"]
