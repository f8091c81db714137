"""The product of synthetic records at an owner: counts of its records, with its share of the noise.

The data are loaded and pinned as for masking, and nothing else of masking happens.
"""

from collections.abc import Sequence

from common.arrays import Int64Array
from common.model.plan import Plan
from common.synthesis.course import Question
from owner_node.config import PolicyConfig
from owner_node.masking.arrays import SystemBits
from owner_node.masking.foreseen import Forecast
from owner_node.release.masked import Masked, Prepared
from owner_node.synthesis.counts import noisy_answer


class Synthetic(Masked):
    """What of a synthetic release depends on what it is made of, for an owner: no fragment, but answers."""

    def forecast(self, _prepared: Prepared, _policy: PolicyConfig) -> Forecast | None:
        """Return nothing: what is expected of a model follows from the plan."""
        return None

    def answer(self, questions: Sequence[Question], prepared: Prepared, plan: Plan) -> Int64Array:
        """Answer a round with the owner's share of its noise, once the charge is spent, `(n_numbers,)`.

        Noise is drawn anew by every call.
        """
        records = prepared.records
        columns = records.sample(records.n_records).columns
        codes = [columns[each.name] - each.lower for each in plan.attributes]
        return noisy_answer(questions, codes, SystemBits())


SYNTHETIC = Synthetic()
