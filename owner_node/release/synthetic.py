"""The product of synthetic records at an owner: counts of its records, with its share of the noise.

The data are loaded and pinned as for masking, and nothing else of masking happens.
"""

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.arrays import Int64Array
from common.model.plan import Plan
from common.model.rounds import KEY_BYTES
from common.synthesis.schedule import Question, question_digest
from owner_node.config import PolicyConfig
from owner_node.masking.arrays import BitSource
from owner_node.masking.foreseen import Forecast
from owner_node.release.product import OwnerProduct, Prepared
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.shares import noise_share


class Synthetic(OwnerProduct):
    """Answers to the rounds of a synthetic release."""

    def forecast(self, _prepared: Prepared, _policy: PolicyConfig) -> Forecast | None:
        """Return nothing: what is expected of the records follows from the plan."""
        return None

    def columns(self, prepared: Prepared, plan: Plan, owner: str) -> dict[int, Int64Array]:
        """Return codes of an owner's attributes in the order of the tokens, `(n_records,)` by number."""
        names = plan.assignment_of(owner).names
        records, order = prepared.records, prepared.pinned.token_order()
        held = records.sample(records.n_records).columns
        return {
            number: (held[attribute.name] - attribute.lower)[order]
            for number, attribute in enumerate(plan.attributes)
            if attribute.name in names
        }

    def answer(
        self, questions: Sequence[Question], prepared: Prepared, plan: Plan, seed: bytes, number: int
    ) -> Int64Array:
        """Answer a round with the owner's share of its noise, once the charge is spent, `(n_numbers,)`.

        Args:
            seed: Of the noise of the release (`noise_of`).
        """
        records = prepared.records
        columns = records.sample(records.n_records).columns
        codes = [columns[attribute.name] - attribute.lower for attribute in plan.attributes]
        noise = [noise_of(question, seed, plan.release, number) for question in questions]
        return exact_answer(questions, codes) + np.concatenate(noise)


SYNTHETIC = Synthetic()


def noise_of(question: Question, seed: bytes, release: str, number: int) -> Int64Array:
    """Draw an owner's share of the noise of a question, `(n_numbers,)`.

    Its bits follow from a secret seed and from the question, and from nothing that a message says beside it.
    So an owner whose state was put back to a moment before its answer has the same noise for the same
    question, whatever an aggregator changes in what opens the round: another number of records, another
    signature of a key, the sums that other questions follow from. To ask again brings no second draw.

    Args:
        seed: 32 random bytes of this release alone, kept like the data.
        number: Number of the round: a partition that is counted in two rounds has two draws.
    """
    info = f"noise|{number}|{question_digest(question)}".encode()
    derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=release.encode(), info=info)
    bits = BitSource(bytearray(derivation.derive(seed)))
    share = noise_share(question.n_numbers, question.noise, bits)
    bits.erase()
    return share
