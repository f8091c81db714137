"""The questions that analysts ask of a release: one set of calls for both products.

What is the same stands here: what may be asked, and how names and responses are checked. Answers are laid
out by `common.analysis.answers`. Each product has its own (`common.analysis.masked`,
`common.analysis.synthetic`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from common.analysis.answers import (
    check_confidence,
    different,
    event_code,
    is_date,
    is_numeric,
    joined,
    names_of,
    parts_of_regressors,
    quantile_shares,
    refused,
    regressors_of,
    with_dates,
)
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Interval:
    """The kind of interval that is asked for."""

    confidence: float
    population: bool
    """True for whom the records are a sample of, False for the records alone."""

    def __post_init__(self) -> None:
        check_confidence(self.confidence)


@dataclass(frozen=True, slots=True)
class Formula:
    """A model as analysts write it."""

    response: str
    """A time, if there is an event."""
    event: str
    """Empty but for survival."""
    regressors: tuple[str, ...]
    """Attributes, and interactions such as "age:sex"."""


_OTHER_SYNTAX = re.compile(r"[~^]|\w\(|^[(-]|\s-\s|^\.$")
"""Parts of formulas of other software. Names of attributes can contain hyphens, points and parentheses."""
_SURVIVAL = re.compile(r"Surv\(\s*([^(),]+?)\s*,\s*([^(),]+?)\s*\)")


def read_formula(text: str) -> Formula:
    """Read a model such as "ill ~ age*ward" or "Surv(months, died) ~ age + ward".

    Raises:
        UsageError: If it is not a formula, or as `regressors_of`.
    """
    response, tilde, regressors = (part.strip() for part in text.partition("~"))
    survival = _SURVIVAL.fullmatch(response)
    names = [part.strip() for part in regressors.split("+")]
    both = (survival[1], survival[2]) if survival else (response, "")
    if not (tilde and response and all(names)) or any(map(_OTHER_SYNTAX.search, (*both, *names))):
        raise UsageError(
            f"{text!r} is not a formula of names, +, : and *",
            'for example "ill ~ age + ward", "ill ~ age*ward", or "Surv(months, died) ~ age"',
        )
    return Formula(*both, tuple(regressors_of(names)))


class Estimates(ABC):
    """Estimates of the original records of a release.

    Every answer is a table with the columns of `common.analysis.answers`. All calls take `confidence` of the
    intervals, and `population`: whether intervals are for whom the records are a sample of. All raise
    UsageError with the reason if there is no answer, and what would do.
    """

    of_three: ClassVar[str]
    """Why relations of three attributes are refused: how masking or counting treats one."""

    # --- answers of a product -----------------------------------------------------------------------------

    @abstractmethod
    def released(self, name: str) -> Attribute:
        """Return an attribute of the release; raises UsageError if no attribute has the name."""

    @abstractmethod
    def attribute(self, name: str) -> Attribute:
        """Return an attribute that estimates can be of; raises UsageError with the reason if none can be."""

    def listed(self, name: str) -> Attribute:
        """Return an attribute whose own values can be estimated; raises UsageError as `attribute`."""
        return self.attribute(name)

    @abstractmethod
    def numeric(self) -> list[str]:
        """Return the names of all attributes that have a mean."""

    @abstractmethod
    def tables(self, names: Sequence[str]) -> Iterator[dict[str, Int64Array]]:
        """Yield tables with estimated relations: first as estimated, then with noise once more.

        Args:
            names: The attributes whose relations they have.

        Returns:
            Values in units by attribute, `(n_records,)` each.
        """

    @abstractmethod
    def _mean(self, name: str, asked: Interval) -> "pd.DataFrame": ...

    @abstractmethod
    def _shares(self, name: str, asked: Interval) -> "pd.DataFrame": ...

    @abstractmethod
    def _quantiles(self, name: str, at: Float64Array, asked: Interval) -> "pd.DataFrame": ...

    @abstractmethod
    def _cells(self, first: str, second: str, asked: Interval) -> "pd.DataFrame": ...

    @abstractmethod
    def _linear(self, response: str, on: Sequence[str], asked: Interval) -> "pd.DataFrame": ...

    @abstractmethod
    def _logistic(self, response: str, code: int, on: Sequence[str], asked: Interval) -> "pd.DataFrame": ...

    # --- one attribute ------------------------------------------------------------------------------------

    def means(
        self, names: str | Sequence[str] = (), *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the means of numbers and dates, and the shares that are true.

        An attribute that has none has a line that says why. Missing values are left out: the line says how
        many there are.

        Args:
            names: Empty for all that have a mean.
        """
        asked, lines, dates = Interval(confidence, population), [], []
        for name in names_of(names) or self.numeric():
            dates.append(is_date(self.released(name)))
            try:
                if not is_numeric(self.listed(name)):
                    raise UsageError("it is a category: use shares", "")
                lines.append(self._mean(name, asked))
            except UsageError as problem:
                lines.append(refused(name, str(problem)))
        return with_dates(joined(lines, "attribute"), dates)

    def shares(self, name: str, *, confidence: float = 0.95, population: bool = False) -> "pd.DataFrame":
        """Return the share of the records that has each label of a category, or each value of a boolean."""
        asked = Interval(confidence, population)
        if not self.attribute(name).is_categorical:
            raise UsageError(f"attribute {name!r} is not a category", "use means, or quantiles")
        return self._shares(name, asked)

    def quantiles(
        self,
        name: str,
        at: float | Sequence[float] = (0.25, 0.5, 0.75),
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return quantiles of a number or date, of its present values.

        Args:
            at: Shares of the records below them, between 0 and 1.
        """
        asked, attribute, shares = Interval(confidence, population), self.listed(name), quantile_shares(at)
        if attribute.is_categorical:
            raise UsageError(f"attribute {name!r} has no quantiles: it is a category", "use shares")
        return with_dates(self._quantiles(name, shares, asked), [is_date(attribute)] * shares.size)

    # --- several attributes -------------------------------------------------------------------------------

    @abstractmethod
    def correlations(
        self, names: str | Sequence[str] = (), *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the correlations of all pairs of attributes, a line each.

        Args:
            names: Numbers, dates, booleans, or categories with two labels, of which the second counts as 1;
                empty for all that have correlations.
        """

    def regress(
        self, response: str, on: str | Sequence[str], *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return a linear regression, a line per regressor.

        A category among the regressors is a factor: a line per label, against the one that the line names.
        Labels that are too rare are one level, and its line names them all.

        Args:
            response: A number, a date, a boolean or a category of two labels.
            on: The regressors: these, or categories; "age:sex" is the interaction of two that were counted,
                in a synthetic release together, and "age*sex" stands for both and their interaction.
        """
        asked, regressors = Interval(confidence, population), self._model(response, on)
        if not is_numeric(self.attribute(response)):
            raise UsageError(f"the response {response!r} is a category", "use logistic, with event=...")
        return self._linear(response, regressors, asked)

    def logistic(
        self,
        response: str,
        on: str | Sequence[str],
        event: str | bool | None = None,  # noqa: FBT001
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return a logistic regression, a line of log odds per regressor, as `regress` does.

        Args:
            response: A boolean or a category.
            on: The regressors.
            event: The label whose odds are regressed; the second one if there are two.
        """
        asked, regressors = Interval(confidence, population), self._model(response, on)
        code = event_code(self.attribute(response), event)
        return self._logistic(response, code, regressors, asked)

    def crosstab(
        self, first: str, second: str, *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the share of the records in every cell of two attributes' labels, or bins."""
        asked = Interval(confidence, population)
        different([first, second])
        return self._cells(first, second, asked)

    def survival(
        self,
        time: str,
        event: str,
        at: float | Sequence[float] = (),
        *,
        by: str = "",
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return the share that has had no event, by time (Kaplan and Meier 1958).

        With groups, `attrs["log_rank"]` of the answer has statistic, degrees of freedom and p-value of the
        log-rank test, for whom the records are a sample of.

        Args:
            time: A number without missing values.
            event: A boolean, or a category of two labels.
            at: Times; empty for those that the release shows best.
            by: An attribute whose bins are groups; it needs time and event that were counted together.
        """
        Interval(confidence, population)
        raise self._refusal("survival has", time, event, [by] if by else [])

    def cox(
        self,
        time: str,
        event: str,
        on: str | Sequence[str],
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return a Cox regression, a line of log hazard ratios per regressor, as `regress` does.

        Args:
            time: A number without missing values.
            event: A boolean, or a category of two labels, counted together with the time.
            on: The regressors: other attributes.
        """
        Interval(confidence, population)
        raise self._refusal("hazard ratios have", time, event, parts_of_regressors(regressors_of(on)))

    def _refusal(self, what: str, time: str, event: str, others: Sequence[str]) -> UsageError:
        for name in parts_of_regressors([time, event, *others]):
            self.attribute(name)
        hint = (
            "regress the event with logistic; or ask for a synthetic release that counts both together: "
            f"--together {time}:{event}"
        )
        reason = "rank noise moves times and events to different records"
        if others:
            reason = f"time, event and another attribute are a relation of three, which {self.of_three}"
        return UsageError(f"{what} no true intervals here: {reason}", hint)

    @abstractmethod
    def _check_interaction(self, first: str, second: str) -> None:
        """Raises UsageError unless relations of a third attribute with both are known."""

    def _model(self, response: str, on: str | Sequence[str]) -> list[str]:
        """Return the regressors, whose attributes are all different from the response."""
        regressors = regressors_of(on)
        attributes = parts_of_regressors(regressors)
        if not regressors:
            raise UsageError("no regressor is named", "name one or more: on=...")
        if response in attributes:
            raise UsageError("regressors are other attributes than the response", "name others: on=...")
        for name in (response, *attributes):
            self.attribute(name)
        for name in regressors:
            if ":" in name:
                self._check_interaction(*name.split(":"))
        return regressors

    def supports(self, formula: str) -> str:
        """Return why a model has no true intervals, and what would do; empty if it has them.

        Args:
            formula: Such as "ill ~ age + ward", or "Surv(months, died) ~ age + ward".
        """
        try:
            model = read_formula(formula)
            response, on = model.response, model.regressors
            if model.event:
                self.cox(response, model.event, on)
                return ""
            ask = self.logistic if self.attribute(response).is_categorical else self.regress
            ask(response, on)
        except UsageError as problem:
            return f"{problem}; {problem.hint}"
        return ""
