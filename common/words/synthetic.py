"""What a synthetic table promises and what it does not hide, in plain words.

References:
    Dwork, McSherry, Nissim, Smith 2006 (differential privacy; here two data sets differ in one whole record).
"""

from decimal import Decimal

from common.words.numbers import bound_text

_FROM_THE_MODEL = (
    "No record is that of a person: records are drawn from a model of noisy counts, and from nothing else. "
    "One can be equal to a person's by chance."
)
_FACTS = (
    "Facts about many: if smokers fall ill more often, the table says so about a smoker who is not in the "
    "data, too."
)
_SUM = "Tables of the same data add up: two with ε = 1 protect like one with ε = 2."


def promises(epsilon: Decimal) -> tuple[str, ...]:
    """Say what is promised of a table for which one owner spent ε."""
    whole = (
        f"Differential privacy for whole records, ε = {bound_text(epsilon)}: if all attributes of one person "
        "were others, every possible table would be at most exp(ε) times as probable, or as improbable. That "
        "holds against anyone, whatever they know."
    )
    return (whole, _FROM_THE_MODEL)


def invariants(n_records: int) -> tuple[str, ...]:
    """Say what a table shows that ε does not cover."""
    return (f"The number of records, {n_records:,}.", _FACTS, _SUM)
