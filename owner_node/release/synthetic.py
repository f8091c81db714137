"""The product of synthetic records at an owner: counts of its records, with its share of the noise.

The data are loaded and pinned as for masking, and nothing else of masking happens.
"""

from collections.abc import Mapping

from common.arrays import Int64Array
from common.errors import InternalError
from common.synthesis.binning import Attributes
from common.synthesis.schedule import Round
from owner_node.release.product import OwnerProduct, SealedFile
from owner_node.synthesis.crossed import Member, group_answer


class Synthetic(OwnerProduct):
    """Answers to the rounds of a synthetic release."""

    def produce(self, *_arguments: object, **_named: object) -> SealedFile:
        """Refuse: owners of synthetic releases send no records."""
        raise InternalError("a synthetic release has no fragments")

    def drop_tokens(self, *_arguments: object, **_named: object) -> str:
        """Return nothing: there is no fragment."""
        return ""

    def count_absent(self, *_arguments: object, **_named: object) -> int:
        """Refuse: no record of an owner is released."""
        raise InternalError("a synthetic release has no fragments")

    def answer(self, questions: Round, member: Member, across: Mapping[Attributes, Int64Array]) -> Int64Array:
        """Answer a round with the owner's share of its noise, `(n_numbers,)`."""
        return group_answer(member, questions, across)


SYNTHETIC = Synthetic()
