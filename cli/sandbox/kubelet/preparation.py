"""Having claims prepared and unprepared by their drivers.

Source: prepareResources and unprepareResources of pkg/kubelet/cm/dra/manager.go, whose words the errors have too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from api.claims import Claim, PreparedDevice, read_claim
from api.kube.client import Client
from api.kube.errors import ApiError, Closed, KubeError
from api.kube.paths import CLAIMS
from api.refusals import Refused
from cli.sandbox.kubelet.ledger import Entry, Key, Ledger
from cli.sandbox.kubelet.plugin import ClaimId, Plugin
from cli.sandbox.kubelet.pods import ClaimUse, NotPrepared, Object, claims_of, where


class Preparation:
    """Safe from several threads, for several pods at once. `plugin_of` raises NotPrepared for a driver without plugin."""

    def __init__(self, client: Client, ledger: Ledger, plugin_of: Callable[[str], Plugin]) -> None:
        self._client = client
        self._ledger = ledger
        self._plugin_of = plugin_of

    def prepare(self, pod: Object) -> None:
        """Have all claims of a pod prepared that are not yet. NotPrepared when that did not succeed; safe to repeat.

        Everything is looked at before anything is recorded, so that a pod that cannot start can be deleted.
        """
        claims = [self._checked(pod, use) for use in claims_of(pod)]
        plugins = {driver: self._plugin_of(driver) for claim in claims for driver in _drivers(claim)}
        entries = self._enter(pod["metadata"]["uid"], claims)
        for driver, plugin in plugins.items():
            batch = [entry for entry in entries if driver in entry.drivers]
            if batch:
                self._ask(driver, plugin, batch)
        with self._ledger.locked():
            for entry in entries:
                entry.prepared = True
            self._save()

    def unprepare(self, pod_uid: str) -> None:
        """Give back the claims of a pod that no other pod uses. NotPrepared when that did not succeed; safe to repeat."""
        with self._ledger.locked() as entries:
            last = []
            keys = self._ledger.of_pod(pod_uid)
            for key in keys:
                entry = entries[key]
                if len(entry.pods) > 1:
                    entry.pods.discard(pod_uid)
                else:
                    entry.unpreparing = True
                    last.append(entry)
        if not keys:
            return
        for driver in sorted({driver for entry in last for driver in entry.drivers}):
            batch = [entry for entry in last if driver in entry.drivers]
            answers = self._call("NodeUnprepareResources", batch, self._plugin_of(driver).unprepare)
            _complain("NodeUnprepareResources", batch, answers)
        with self._ledger.locked() as entries:
            for entry in last:
                entries.pop(entry.key, None)
            self._save()

    def cdi_names(self, claim: Key, request: str) -> list[str]:
        """The CDI device names of a prepared claim's request, or of all its requests for ""."""
        with self._ledger.locked() as entries:
            entry = entries.get(claim)
            if entry is None:
                what = f"unable to get claim info for ResourceClaim {claim[1]} in namespace {claim[0]}"
                raise NotPrepared(f"internal error: {what}")
            return entry.cdi_names(request)

    def _checked(self, pod: Object, use: ClaimUse) -> Claim:
        meta = pod["metadata"]
        try:
            obj = self._client.get(CLAIMS.path(meta["namespace"], use.name))
            claim = read_claim(obj)
        except Closed:
            raise
        except KubeError as error:
            words = error.message if isinstance(error, ApiError) else error.what
            raise NotPrepared(f"fetch ResourceClaim {use.name}: {words}") from error
        except Refused as refused:
            raise NotPrepared(f"fetch ResourceClaim {use.name}: {refused.reason.what}") from refused
        if use.owned and not is_owned_by(obj, meta["uid"]):
            of = f"ResourceClaim {claim.ref.namespace}/{claim.ref.name} was not created for Pod {where(pod)}"
            raise NotPrepared(f"{of} (Pod is not owner)")
        if all(user.uid != meta["uid"] for user in claim.pods):
            who = f"pod {meta['name']} ({meta['uid']})"
            raise NotPrepared(f"{who} is not allowed to use ResourceClaim {use.name} ({claim.ref.uid})")
        if not claim.allocated:
            raise NotPrepared(f"ResourceClaim {use.name}: not allocated")
        return claim

    def _enter(self, pod_uid: str, claims: Iterable[Claim]) -> list[Entry]:
        """Record the claims before any driver is asked; those that have to be prepared."""
        wanted = []
        with self._ledger.locked() as entries:
            for claim in claims:
                key = (claim.ref.namespace, claim.ref.name)
                entry = entries.get(key)
                if entry is None:
                    entry = entries[key] = Entry(claim.ref, dict.fromkeys(_drivers(claim), ()))
                elif entry.ref.uid != claim.ref.uid:
                    raise NotPrepared(
                        f"old ResourceClaim with same name {claim.ref.name} and different UID {entry.ref.uid} still exists "
                        "(previous pod force-deleted?!)"
                    )
                elif entry.unpreparing:
                    raise NotPrepared(f"ResourceClaim {claim.ref.name} is being unprepared")
                entry.pods.add(pod_uid)
                if not entry.prepared and entry not in wanted:
                    wanted.append(entry)
            self._save()
        return wanted

    def _save(self) -> None:
        try:
            self._ledger.save()
        except OSError as error:
            raise NotPrepared(f"checkpoint ResourceClaim state: {error}") from error

    def _ask(self, driver: str, plugin: Plugin, batch: list[Entry]) -> None:
        answers = self._call("NodePrepareResources", batch, plugin.prepare)
        # What came before the first error stays recorded, as upstream keeps it.
        with self._ledger.locked():
            for entry in batch:
                answer = answers.get(entry.ref.uid)
                if answer is not None and not answer.error:
                    entry.drivers[driver] = tuple(_device(device) for device in answer.devices)
        _complain("NodePrepareResources", batch, answers)

    def _call(self, name: str, batch: list[Entry], call: Callable[[list[ClaimId]], Any]) -> Mapping[str, Any]:
        try:
            reply = call([(entry.ref.namespace, entry.ref.name, entry.ref.uid) for entry in batch])
        except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:
            # The latter two: the plugin was deregistered meanwhile, so its connection is closed.
            raise NotPrepared(f"{name}: {rpc_error(error)}") from error
        return dict(reply.claims)


def is_owned_by(claim: Object, pod_uid: str) -> bool:
    """Whether the pod is the claim's controlling owner."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == pod_uid for owner in owners)


def rpc_error(error: Exception) -> str:
    """As gRPC for Go writes it."""
    if not isinstance(error, grpc.Call):
        return "rpc error: code = Canceled desc = grpc: the client connection is closing"
    code = "".join(part.capitalize() for part in error.code().name.split("_")).replace("Cancelled", "Canceled")
    return f"rpc error: code = {code} desc = {error.details()}"


def _complain(name: str, batch: list[Entry], answers: Mapping[str, Any]) -> None:
    names = {entry.ref.uid: entry.ref.name for entry in batch}
    for uid, answer in answers.items():
        if uid not in names:
            raise NotPrepared(f"{name} returned result for unknown claim UID {uid}")
        if answer.error:
            raise NotPrepared(f"{name} failed for ResourceClaim {names[uid]}: {answer.error}")
    if missing := len(names) - len(answers):
        raise NotPrepared(f"{name} skipped {missing} ResourceClaims")


def _drivers(claim: Claim) -> list[str]:
    return list(dict.fromkeys(result.driver for result in claim.results))


def _device(wire: Any) -> PreparedDevice:
    # v1beta1 knows no share.
    share = wire.share_id if "share_id" in wire.DESCRIPTOR.fields_by_name and wire.HasField("share_id") else None
    return PreparedDevice(
        requests=tuple(wire.request_names),
        pool=wire.pool_name,
        device=wire.device_name,
        cdi_ids=tuple(wire.cdi_device_ids),
        share_id=share,
    )
