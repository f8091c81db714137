"""How wide intervals of a model's coefficients will be in a synthetic release, before it is made.

Nothing is known of the records yet, so it is assumed that attributes are independent, that numbers are spread
evenly over bins, that labels of a regressor are equally frequent, and that a quarter of the records have the
event. A coefficient is a sum of the cells of the table of regressor and response, with the bins' values a and
b as weights, less their means, over the variances that these have. With shares q of the bins and noise of
standard deviation σ in each cell, its standard error is

    σ/n · √(G⁻¹ a'a G⁻¹) · √(Σ b²)/v,    G = Σ q a², v = Σ q b²,

The b of a number are the means of its bins by its standard deviation, those of a label 1 and 0. Those of a
time and its event are the residuals of a model without regressors, whose variance is the share of the event.
With B bins of equal q, G⁻¹ a'a G⁻¹ is B/(1 - 1/B²) for a number, and 2 L B for a label against another one of
L. An interaction has the product of both, with B of the joint attribute. Beside it, the coefficient of an
attribute is that of records with the first of the other one's L labels, and its variance is L times as large.
Sampling the records gives √(G⁻¹/(n v)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, prod, sqrt
from statistics import NormalDist

from common.analysis.calibration import WIDER
from common.analysis.estimates import Formula
from common.model.schema import Attribute
from common.model.together import Joint, modelled_names, parts_of
from common.synthesis.binning import FEW_VALUES, FEWEST_LABELS
from common.synthesis.schedule import Design

_CONFIDENCE = 0.95
_EVENT = 0.25
ASSUMED = (
    "It is a forecast for independent attributes, numbers spread evenly, labels of equal frequency, and an "
    "event that a quarter of the records have. Related attributes and rare labels have wider intervals. "
    "Numbers are in standard deviations."
)
"""The assumptions of a forecast, in words."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The interval to expect of one regressor's coefficient; of a factor, of each label against another."""

    regressor: str
    at_means: tuple[str, ...]
    """Numbers that it has an interaction with, taken at their means; in the model's answer they are 0."""
    width: float
    """Length of the 95 % interval about the records. Numbers are in standard deviations, also regressors; all
    other responses are in log odds or log hazards."""
    times_sampling: float
    """How many times as wide it is as the interval that the original records have for whom they are a sample
    of."""

    @property
    def is_answered(self) -> bool:
        """False if the tables that it needs are not counted."""
        return self.width < inf


def forecasts(design: Design, model: Formula) -> tuple[Forecast, ...]:
    """Return what to expect of every regressor, from public numbers alone."""
    response = _Counted.of(design, [model.response, model.event] if model.event else [model.response])
    normal = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    # As `NoisyCounts.reach`.
    reach = normal if design.delta else max(normal, -log(1 - _CONFIDENCE) / sqrt(2))
    of_design = [part for each in design.attributes for part in parts_of(each)]
    n_labels = {each.name: each.n_values if each.is_categorical else 1 for each in of_design}
    numbers = {each.name for each in of_design if not each.is_categorical}
    crossed = [each.split(":") for each in model.regressors if ":" in each]
    found = []
    for regressor in model.regressors:
        own = _Counted.of(design, regressor.split(":"))
        others = {name for pair in crossed if regressor in pair for name in pair} - {regressor}
        at_means = tuple(sorted(others & numbers))
        places = sorted(each.place for each in (own, response) if each)
        if own is None or response is None or tuple(places) not in design.pair_variances:
            found.append(Forecast(regressor, at_means, inf, inf))
            continue
        variance = design.pair_variances[places[0], places[1]] / design.n_records**2
        parts = prod(n_labels[name] for name in others)
        noise = WIDER * sqrt(parts * variance * own.n_bins * own.spread(own.kept) * response.weight)
        sampling = sqrt(parts * own.spread(1.0) / response.varying / design.n_records)
        found.append(Forecast(regressor, at_means, 2 * reach * noise, reach * noise / (normal * sampling)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Counted:
    """One attribute of a model, or two as one, as it is counted."""

    attributes: tuple[Attribute, ...]
    """A regressor or response, both parts of an interaction, or a time and its event."""
    place: int
    """The number of the counted attribute."""
    n_bins: int
    kept: float
    """Share of the variance of numbers between bins."""

    @classmethod
    def of(cls, design: Design, names: Sequence[str]) -> "_Counted | None":
        """Return it; None if it is not counted, or not as one attribute."""
        of, places = modelled_names(design.attributes), [each.name for each in design.attributes]
        (name, *others) = {of.get(name, "") for name in names}
        if others or not name:
            return None
        place = places.index(name)
        counted, most = design.attributes[place], design.most_bins(place)
        n_bins = min(counted.n_values, max(most, FEWEST_LABELS if counted.is_categorical else FEW_VALUES))
        parts = {each.name: each for each in parts_of(counted)}
        n_blocks = counted.second.n_values if isinstance(counted, Joint) else 1
        kept = 1.0 if n_bins == counted.n_values else 1 - min(n_blocks / n_bins, 0.5) ** 2
        return cls(tuple(parts[name] for name in names), place, n_bins, kept)

    def spread(self, kept: float) -> float:
        """Return 1/G of a regressor, if bins keep this share of the variance of numbers."""
        return prod(2 * each.n_values if each.is_categorical else 1 / kept for each in self.attributes)

    @property
    def varying(self) -> float:
        """The variance v of a response."""
        if len(self.attributes) > 1:
            return _EVENT
        return self._share * (1 - self._share) if self.attributes[0].is_categorical else 1.0

    @property
    def weight(self) -> float:
        """Σ b²/v² of a response."""
        attribute, share = self.attributes[0], self._share
        if len(self.attributes) > 1 or not attribute.is_categorical:
            return self.n_bins / (self.kept * self.varying)
        of_label = self.n_bins / attribute.n_values
        return (of_label * (1 - share) ** 2 + (self.n_bins - of_label) * share**2) / self.varying**2

    @property
    def _share(self) -> float:
        return min(_EVENT, 1 / self.attributes[0].n_values)
