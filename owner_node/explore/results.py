"""The results of an exploration: one JSON document, for the owner alone, since it depends on original data.

Numbers are JSON numbers, except epsilons, which are decimals as text. An *estimate* is
`{"mean", "low", "high"}`, low and high the ends of its 95 % confidence interval; it is null if it was not
requested or is not defined. Every list of settings is in the requested order.

    format               "tessera/explore/v1"
    dataset              name of the data set
    created, version     ISO 8601 time, UTC; version of the software
    records              number of records
    control_records      records left out of the attacked releases, to measure what an attack discloses about
                         people who are not in a release; 0 without attacks
    attributes           [{name, type, values}]: `values` is V, the size of the declared domain
    mechanisms, epsilons, ks, rank_noises
                         the grid. mechanisms: ids; epsilons and rank_noises: texts; ks: "auto" or numbers as
                         text. A mechanism that takes no k has a single column, whose k is null
    own_rank_noises      {attribute: text}: attributes with their own rank noise, the same in every setting
    repetitions          draws of noise per cell that measures of utility are averaged over
    deep_repetitions     draws per cell that attacks and models are averaged over
    attacked             "all" cells in all draws; or "useful": cells whose mean SSE is at most a quarter of
                         that of the means, or without any the one with the smallest, and one draw alone where
                         that shows that more than a fifth of persons are re-identified
    known                attributes that an intruder is assumed to know about everybody
    intruders            what each intruder that was tried knows, as `knows` of risks: the first one most
    class                the class attribute of `f_measure`, or null
    mean_sse_of_means    mean SSE with every value replaced by its attribute's mean: 1/l, less if some
                         attributes do not vary
    cells                [cell], by mechanism, rank noise, k, epsilon
    shown                the effect of the recommended cell on each attribute; without one, of the useful cell
                         that reveals least; if none is useful, of the cell that reveals least:
        cell             its position in `cells`
        attributes       [{name, bins, original, masked}]: `bins` are labels in ascending or declared order,
                         `original` and `masked` the numbers of records in each, masked in one draw
        distortions      [{name, mean, zeros, most_frequent, distorted}], means over a few draws: `mean` and
                         `zeros` are {before, after}, or null where the attribute has none; `most_frequent`
                         is {value, before, after}; `distorted` names those that changed much
    recommendation       {cell, verdict, reasons}: `verdict` is "recommended" or "none"; `cell` its position
                         in `cells`, or null; `reasons` sentences in plain English, the first is a summary

A cell:

    mechanism, epsilon, k, rank_noise   its place in the grid; k is "auto", a number as text, or null
    epsilon_joint        text, or null if there is no bound
    epsilon_table        the bound on lists and on the assignment of records to their values; null if there is
                         none, as without rank noise
    problem              null, or why these data cannot be masked with this setting, or that it was not tried
                         before Ctrl-C; everything below is then null or []
    mean_sse             estimate (Del Vasto-Terrientes et al. 2025, eq. 5)
    mean_sse_without_noise   number: the same clusters without noise (plain individual ranking); null without
                         clusters
    relative_error, variance_change, divergence, correlation_error      estimates, see `measures`
    pmse                 estimate; `pmse_ratio` estimate: as a multiple of the expectation for equal data
    f_measure            null, or [{class, masked: estimate, original: number}], one per class
    attributes           [{name, mechanism, k (number or null), epsilon (text), sse, unchanged,
                         relative_error, variance_change, divergence}]: numbers, means over the draws; null if
                         not requested. sse: Σ d²/(n σ²), 1 is as bad as the attribute's mean; null if the
                         attribute has no variation and was changed
    risks                [risk], each:
        attack           "unchanged-values", "unchanged-records", "linkage", "likelihood", "structure",
                         "interval", "inference", "membership", "extremes" or "scales"; "likelihood" and
                         "membership" are there if some known attribute's released values ascend with the
                         ranks of its records, "scales" if the noise of some attribute depends on the data
        knows            what the intruder knows of everybody, of attacks that link persons to records: "all",
                         "any 3" (others in every draw), names; ", approximately" if up to 5 % of the ranks
        attribute        the attribute that "inference" predicts; null for the others
        rate             estimate: share of targets for which the attack is right
        baseline         number: success rate of the best guess without the release
        control          estimate: the same attack on people who are not in the release; null if it does not
                         apply to them
        targets          records that were attacked in each draw
        meaning          one sentence: what a rate of 1 would mean
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.canonical import Document
from owner_node.risk.risks import Risk, reidentified
from owner_node.risk.utility import Estimate

FORMAT = "tessera/explore/v1"
RECOMMENDED, NOTHING = "recommended", "none"


@dataclass(frozen=True, slots=True)
class AttributeResult(Document):
    """The effect of a setting on one attribute: means over the draws; fields as in the document."""

    name: str
    mechanism: str
    k: int | None
    epsilon: str
    sse: float | None
    unchanged: float | None = None
    relative_error: float | None = None
    variance_change: float | None = None
    divergence: float | None = None


@dataclass(frozen=True, slots=True)
class ClassResult(Document):
    """F-measures of one class, of a model trained on masked and of one trained on original records."""

    label: str = field(metadata={"name": "class"})
    masked: Estimate | None
    original: float


@dataclass(frozen=True, slots=True)
class CellResult(Document):
    """The measures of one setting; fields as in the document."""

    mechanism: str
    epsilon: str
    k: str | None
    rank_noise: str
    epsilon_joint: str | None
    epsilon_table: str | None = None
    problem: str | None = None
    mean_sse: Estimate | None = None
    mean_sse_without_noise: float | None = None
    relative_error: Estimate | None = None
    variance_change: Estimate | None = None
    divergence: Estimate | None = None
    correlation_error: Estimate | None = None
    pmse: Estimate | None = None
    pmse_ratio: Estimate | None = None
    f_measure: tuple[ClassResult, ...] | None = None
    attributes: tuple[AttributeResult, ...] = ()
    risks: tuple[Risk, ...] = ()

    def worst(self, attacks: Collection[str]) -> Risk | None:
        """Return the risk with the largest excess among some attacks; None if none of them was tried.

        Rates of different attributes are not comparable with each other; their excess is.
        """
        return max(
            (risk for risk in self.risks if risk.attack in attacks),
            key=lambda risk: risk.excess,
            default=None,
        )

    def reidentified(self, knows: str) -> Risk | None:
        """Return the attack that links most persons, with this knowledge; None if none was tried."""
        return reidentified([risk for risk in self.risks if risk.knows == knows])

    def excess(self, attacks: Collection[str]) -> float | None:
        """Return the largest excess among some attacks."""
        worst = self.worst(attacks)
        return None if worst is None else worst.excess


@dataclass(frozen=True, slots=True)
class ShownCell(Document):
    """Distributions of every attribute before and after, for the cell at one position."""

    cell: int
    attributes: tuple[Mapping[str, Any], ...]
    """`{name, bins, original, masked}` each."""
    distortions: tuple[Mapping[str, Any], ...] = ()
    """The result of `owner_node.risk.distortion.distortions`."""


@dataclass(frozen=True, slots=True)
class Recommendation(Document):
    """Which cell is recommended, if one is, and why; fields as in the document."""

    verdict: str
    """`RECOMMENDED` or `NOTHING`."""
    cell: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that exploring measured."""

    about: Mapping[str, Any]
    """The parts of the document known in advance: data set, grid, repetitions, requested results."""
    cells: Sequence[CellResult]
    """By mechanism, rank noise, k, epsilon."""
    shown: ShownCell
    recommendation: Recommendation

    def to_document(self) -> dict[str, Any]:
        """Return the document that the module's docstring describes."""
        return {
            "format": FORMAT,
            **self.about,
            "cells": [cell.to_document() for cell in self.cells],
            "shown": self.shown.to_document(),
            "recommendation": self.recommendation.to_document(),
        }
