"""How attributes are to be masked: what is agreed about each, its mechanism, the order it is masked in."""

from dataclasses import dataclass
from decimal import Decimal

from common.errors import UsageError
from common.privacy import EXPONENTIAL, HISTOGRAM
from common.schema import Attribute, TaxonomyMethod
from owner_node.masking.arrays import Int64Array
from owner_node.masking.calibration import Setting
from owner_node.masking.categories import IndexOrder, frequency_order, taxonomy_order
from owner_node.masking.exponential import TaxonomyMechanism
from owner_node.masking.mechanisms import Mechanism, mechanism
from owner_node.masking.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class AttributeTask:
    """How one attribute of one fragment is masked."""

    attribute: Attribute
    """The attribute as the schema declares it."""
    epsilon: Decimal
    """The attribute's share of the budget."""
    k: int | None
    """Minimum cluster size; None where the mechanism makes no clusters."""
    mechanism: str
    """Mechanism id."""
    max_records_per_person: int = 1
    """g, the most records that one person has."""
    taxonomy: Taxonomy | None = None
    """The taxonomy of its categories, exactly if the attribute has one."""
    rank_noise: Decimal = Decimal(0)
    """w, the scale of the noise on ranks as a share of the number of records; 0 for none."""

    @property
    def setting(self) -> Setting:
        """What calibration needs of this."""
        attribute = self.attribute
        return Setting(
            attribute.name, attribute.n_values, self.epsilon, self.k or 1, self.max_records_per_person
        )


def mechanism_of(task: AttributeTask) -> Mechanism:
    """Return the mechanism that a task names.

    Raises:
        UsageError: If there is none of that name, or it does not go with the attribute.
    """
    exponential = task.attribute.method is TaxonomyMethod.EXPONENTIAL
    if (task.mechanism == EXPONENTIAL) != exponential:
        raise UsageError(
            f"attribute {task.attribute.name!r}: mechanism {task.mechanism} does not go with its method",
            'mechanism exponential goes with method = "exponential" of a taxonomy, and only with it',
        )
    if exponential and task.taxonomy is not None:
        return TaxonomyMechanism(task.taxonomy)
    return mechanism(task.mechanism)


def own_order(values: Int64Array, task: AttributeTask) -> IndexOrder | None:
    """Return the order of categories that an attribute is masked in, if it is not the declared one."""
    if task.taxonomy is not None:
        return taxonomy_order(task.taxonomy)
    # Counts are the same in any order: no need for one that the data make, which no bound covers.
    if not task.attribute.by_frequency or task.mechanism == HISTOGRAM:
        return None
    return frequency_order(values, task.attribute.n_values)
