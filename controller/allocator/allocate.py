"""From the question to the answer: pools gathered, wishes read, searched, and told."""

from api.refusals import Refused
from controller.allocator.cel import Compiler
from controller.allocator.pools import Device, Pool, gather
from controller.allocator.question import Allocated, Question
from controller.allocator.refusals import Insoluble
from controller.allocator.results import allocation
from controller.allocator.search import MAX_RESULTS, Search
from controller.allocator.selection import Selection
from controller.allocator.whynot import WhyNot, explain
from controller.allocator.wishes import Claim, Wish, read_claim

MAX_STEPS = 300_000
"""Steps of the search before it is given up: some seconds. kube-scheduler gives up after ten."""


def allocate(question: Question, *, compiler: Compiler | None = None, max_steps: int = MAX_STEPS) -> Allocated | WhyNot:
    """Devices for all claims of the question, or why this node cannot give them.

    Who asks often keeps one `compiler`, so that each selector is compiled once.

    Raises Refused (BadSelector, Insoluble, TooLong, Unsupported) where no other node need be asked: where kube-scheduler ends
    the attempt with an error, and where something is asked that is not understood here.
    """
    claims = tuple(read_claim(claim) for claim in question.claims)
    pools = gather(question)
    selection = Selection(question.node, question.classes, compiler or Compiler())
    wanted: dict[Wish, tuple[Device, ...]] = {}
    for claim in claims:
        _check(claim, question, pools, selection, wanted)
    node = question.node["metadata"]["name"]
    search = Search(claims, pools, question.held, selection, wanted, max_steps=max_steps)
    solution = search.solution()
    if solution is None:
        return explain(node, claims, pools, question.held, selection)
    return Allocated(
        tuple(
            allocation(
                claim,
                solution.picked[i],
                [solution.met[i, j] for j in range(len(claim.requests))],
                question.classes,
                node,
            )
            for i, claim in enumerate(claims)
        )
    )


def _check(
    claim: Claim,
    question: Question,
    pools: tuple[Pool, ...],
    selection: Selection,
    wanted: dict[Wish, tuple[Device, ...]],
) -> None:
    """What can be said of a claim before any search; fills in which devices a wish for all of them means."""
    least = 0
    for request in claim.requests:
        for wish in request.wishes:
            if wish.class_name not in question.classes:
                remedy = "create the DeviceClass, or see what there is: kubectl get deviceclasses"
                raise Refused(Insoluble(wish.where, f"there is no DeviceClass {wish.class_name}", remedy))
            if wish.count is None:
                wanted[wish] = _everything(wish, pools, selection)
        least += min(_count(wish, wanted) for wish in request.wishes)
        if least > MAX_RESULTS:
            problem = f"the claim would get {least} devices, and {MAX_RESULTS} is the limit"
            raise Refused(Insoluble(f"claim {claim.reference}, request {request.name}", problem, "split the claim"))


def _count(wish: Wish, wanted: dict[Wish, tuple[Device, ...]]) -> int:
    return wish.count if wish.count is not None else len(wanted[wish])


def _everything(wish: Wish, pools: tuple[Pool, ...], selection: Selection) -> tuple[Device, ...]:
    found: list[Device] = []
    for pool in pools:
        if pool.incomplete:
            problem = f"it asks for all devices, but pool {pool} is being updated"
            raise Refused(
                Insoluble(wish.where, problem, "nothing need be done: it is tried again when the pool is complete")
            )
        if pool.invalid:
            problem = f"it asks for all devices, but pool {pool} is invalid: {pool.invalid}"
            raise Refused(Insoluble(wish.where, problem, f"the driver {pool.driver} has to publish a valid pool"))
        found += [device for device in pool.devices if selection.selectable(wish, device)]
    return tuple(found)
