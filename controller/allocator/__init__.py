"""Which devices a pod's claims get on one node, chosen as kube-scheduler chooses them.

    allocate(Question(node, slices, classes, claims, held)) -> Allocated | WhyNot

The order and the rules are those of k8s.io/dynamic-resource-allocation 0.37 with the features that Kubernetes 1.37 has on
by default (its "incubating" allocator); `tests/upstream/test_allocator.py` asks both the same questions. What is not
understood here (counters, shared devices, binding conditions, derived attributes, parts of CEL) is refused by name.
"""

from controller.allocator.allocate import allocate
from controller.allocator.question import Allocated, DeviceID, Question, holders
from controller.allocator.refusals import BadSelector, Insoluble, TooLong, Unsupported
from controller.allocator.whynot import WhyNot

__all__ = [
    "Allocated",
    "BadSelector",
    "DeviceID",
    "Insoluble",
    "Question",
    "TooLong",
    "Unsupported",
    "WhyNot",
    "allocate",
    "holders",
]
