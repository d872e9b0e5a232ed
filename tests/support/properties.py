"""How long a property test may take: few examples, and no deadline on a machine that others use too."""

from hypothesis import settings

FEW = settings(max_examples=40, deadline=None)
