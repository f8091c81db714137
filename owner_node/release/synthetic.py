"""The product of synthetic records at an owner: counts of its records, with its share of the noise.

The data are loaded and pinned as for masking, and nothing else of masking happens.
"""

from collections.abc import Sequence

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.arrays import Int64Array
from common.model.plan import Plan
from common.model.rounds import KEY_BYTES
from common.synthesis.course import Question
from owner_node.config import PolicyConfig
from owner_node.masking.arrays import BitSource
from owner_node.masking.foreseen import Forecast
from owner_node.release.masked import Masked, Prepared
from owner_node.synthesis.counts import noisy_answer


class Synthetic(Masked):
    """What of a synthetic release depends on what it is made of, for an owner: no fragment, but answers."""

    def forecast(self, _prepared: Prepared, _policy: PolicyConfig) -> Forecast | None:
        """Return nothing: what is expected of a model follows from the plan."""
        return None

    def columns(self, prepared: Prepared, plan: Plan, owner: str) -> dict[int, Int64Array]:
        """Return codes of an owner's attributes in the order of the tokens, `(n_records,)` by number."""
        names = plan.assignment_of(owner).names
        records, order = prepared.records, prepared.pinned.token_order()
        held = records.sample(records.n_records).columns
        return {
            number: (held[each.name] - each.lower)[order]
            for number, each in enumerate(plan.attributes)
            if each.name in names
        }

    def answer(
        self, questions: Sequence[Question], prepared: Prepared, plan: Plan, bits: BitSource
    ) -> Int64Array:
        """Answer a round with the owner's share of its noise, once the charge is spent, `(n_numbers,)`.

        Args:
            questions: The round.
            prepared: The records.
            plan: The plan.
            bits: Of this round alone (`noise_bits`).
        """
        records = prepared.records
        columns = records.sample(records.n_records).columns
        codes = [columns[each.name] - each.lower for each in plan.attributes]
        return noisy_answer(questions, codes, bits)


SYNTHETIC = Synthetic()


def noise_bits(seed: bytes, release: str, opening: str) -> BitSource:
    """Return the random bits of a round's noise, from an owner's seed of the release.

    They follow from what opened the round. An owner whose state was put back to a moment before its answer
    gives the same answer again, and not a second one with other noise. After other sums the noise is another.

    Args:
        seed: 32 random bytes of this release alone, kept like the data.
        release: Its id.
        opening: Digest of the document that opened the round, hexadecimal.
    """
    info = f"noise|{opening}".encode()
    derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=release.encode(), info=info)
    return BitSource(bytearray(derivation.derive(seed)))
