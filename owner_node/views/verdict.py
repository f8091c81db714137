"""The verdict on a plan for its owner: one document, which text, pages, the decision and `--json` show.

It knows one intruder, the one that the policy expects (`known`), and one figure for it: the one that is
stored with the plan (`owner_node.views.appraisal`). Other intruders, whose attacks are stored with it too,
are named as others: no limit of the policy speaks of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.model.products import Product
from common.words.numbers import about_text, bound_text, number_of, percent_text
from owner_node.config import PolicyConfig
from owner_node.consent.data_limits import LimitLine, data_limits, reidentified_line
from owner_node.masking.foreseen import Forecast, Reidentification
from owner_node.risk.attacks import LINKING, WORDS


def limits_of(plan: Mapping[str, Any], policy: PolicyConfig) -> list[dict[str, Any]]:
    """Compare a plan with every limit of a policy that is a number.

    Args:
        plan: The plan, as `request_view` returns it.

    Returns:
        The fields of `LimitLine` and `kept`, for each limit.
    """
    lines = [
        LimitLine(
            "max_epsilon_per_release", "charge (ε)", "epsilon",
            policy.max_epsilon_per_release, plan["charge"],
        )
    ]  # fmt: skip
    # No record of a synthetic release is a person's, so limits of masked values do not apply to it.
    if Product(plan["product"]).rules.by_record:
        lines += data_limits(_forecast_of(plan), policy)
    sizes = [attribute["k"] for attribute in plan["attributes"] if attribute["k"] is not None]
    noises = [
        attribute["rank_noise"] for attribute in plan["attributes"] if attribute["rank_noise"] is not None
    ]
    if sizes:
        smallest = Decimal(min(sizes))
        lines.append(
            LimitLine("min_k", "smallest cluster (k)", "number", Decimal(policy.min_k), smallest, least=True)
        )
    if noises:
        lines.append(
            LimitLine(
                "min_rank_noise", "smallest rank noise", "share", policy.min_rank_noise or None, min(noises),
                least=True,
            )
        )  # fmt: skip
    return [{**line.to_document(), "kept": line.kept} for line in lines]


def _forecast_of(plan: Mapping[str, Any]) -> Forecast | None:
    return None if plan["forecast"] is None else Forecast.from_document(plan["forecast"])


def limit_text(limit: Mapping[str, Any], number: Any) -> str:
    """Return a limit, or what a plan has there, in the unit of a line of `limits_of`."""
    if limit["unit"] == "share":
        return percent_text(number)
    return bound_text(Decimal(number)) if limit["unit"] == "epsilon" else f"{number}"


def exceeded_text(limit: Mapping[str, Any]) -> str:
    """Return what a plan has beyond a limit, for a person."""
    bound = "at least" if limit["least"] else "at most"
    return (
        f"exceeds a limit of this organisation: {limit['what']} {limit_text(limit, limit['found'])}, "
        f"policy.{limit['rule']} allows {bound} {limit_text(limit, limit['limit'])}"
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """A number of records or persons whose shares are shown as numbers, too."""

    n: int | None
    """None where the exact number is not known."""
    noun: str

    def share(self, share: Any) -> str:
        """Return a share as people read it: "6.5 % of persons, about 1,160 of 18,000"."""
        of = f"{percent_text(share)} of {self.noun}"
        return of if self.n is None else f"{of}, {about_text(share, self.n)}"

    def number(self, share: Any) -> int | None:
        """Return how many a share is."""
        return None if self.n is None else number_of(share, self.n)


def unusable_text(problem: str) -> str:
    """Return what follows for a plan that waits if its data cannot be used; empty without a problem."""
    if not problem:
        return ""
    return (
        f"the data could not be used as planned ({problem}): none of its effects on them is known, and "
        "linking will end the release unless that passes"
    )


def verdict_of(plan: Mapping[str, Any], policy: PolicyConfig) -> dict[str, Any]:
    """Return what a plan comes down to.

    Args:
        plan: The plan, as `request_view` returns it, with `problem` and `attacks` where they are known.

    Returns:
        `{unusable, exceeded, attributes, records, co_owners, unchanged, intruder, others, mostly_lost,
        worthless, loss, limits, unset, unset_says}`. `unchanged` and `intruder` are null where they are not
        known. Texts for people are `unusable`, `exceeded`, `says` of a part, `loss` and `unset_says`.
    """
    n = plan["records"].get("exact")
    persons = _Counted(n, "persons" if plan["max_records_per_person"] == 1 else "records")
    forecast = _forecast_of(plan)
    limits = limits_of(plan, policy)
    names = [attribute["name"] for attribute in plan["attributes"]]
    return {
        "unusable": unusable_text(plan.get("problem", "")),
        "exceeded": [exceeded_text(line) for line in limits if line["kept"] is False],
        "attributes": names,
        "records": n,
        "co_owners": [owner["id"] for owner in plan["co_owners"]],
        "unchanged": None if forecast is None else _unchanged_part(forecast, n, len(names)),
        "intruder": _intruder(forecast, names, policy, persons),
        "others": sorted(
            (_other(risk, persons) for risk in other_linking(plan.get("attacks"))),
            key=lambda other: other["share"],
            reverse=True,
        ),
        "mostly_lost": [] if forecast is None else [attribute.name for attribute in forecast.mostly_lost],
        "worthless": forecast is not None and forecast.worthless,
        "loss": "" if forecast is None else forecast.loss,
        "limits": [line for line in limits if line["limit"] is not None],
        "unset": [line["rule"] for line in limits if line["limit"] is None],
        "unset_says": _unset_text([line["what"] for line in limits if line["limit"] is None]),
    }


def _unchanged_part(forecast: Forecast, n: int | None, n_attributes: int) -> dict[str, Any]:
    values = _Counted(None if n is None else n * n_attributes, "values")
    records = _Counted(n, "records")
    says = (
        f"{values.share(forecast.unchanged_values)}, and {percent_text(forecast.unchanged_records)} of whole "
        f"records{'' if n is None else ', ' + about_text(forecast.unchanged_records, n)}"
    )
    return {
        "values": forecast.unchanged_values,
        "values_number": values.number(forecast.unchanged_values),
        "records": forecast.unchanged_records,
        "records_number": records.number(forecast.unchanged_records),
        "says": says,
        "brief": f"{percent_text(forecast.unchanged_values)} of values, "
        f"{records.share(forecast.unchanged_records)}",
    }


def _intruder(
    forecast: Forecast | None, names: Sequence[str], policy: PolicyConfig, persons: _Counted
) -> dict[str, Any] | None:
    """Return what the policy's intruder finds; None where nobody tried it."""
    most = policy.max_reidentified
    intruder = None if forecast is None else forecast.intruder
    if intruder is None:
        if policy.known and not set(policy.known) & set(names) and forecast is not None:
            # No attribute that the intruder knows is masked: there is nothing to compare with.
            intruder = Reidentification((), "", *[Decimal(0)] * 4)
        elif forecast is None or most is None:
            return None
        else:
            # A forecast of an older version has the share alone.
            share = forecast.reidentified
            known = tuple(name for name in names if name in (policy.known or names))
            intruder = Reidentification(known, "", share, share, share, Decimal(0))
    kept = reidentified_line(policy, intruder.share).kept
    brief = "no limit" if most is None else f"limit {percent_text(most)}: {'kept' if kept else 'exceeded'}"
    unsure = most is not None and intruder.low <= most < intruder.high
    return {
        "known": list(intruder.known),
        "knows": _knows(intruder.known, names),
        "attack": intruder.attack,
        "share": intruder.share,
        "low": intruder.low,
        "high": intruder.high,
        "without": intruder.without,
        "number": persons.number(intruder.share),
        "of": persons.n,
        "persons": persons.noun,
        "limit": most,
        "kept": kept,
        "unsure": unsure,
        "figure": persons.share(intruder.share),
        "judgement": _judgement(most, kept=kept, unsure=unsure),
        "says": _found_text(intruder, names, persons, policy),
        "brief": f"{_found_text(intruder, names, persons, PolicyConfig())}; {brief}",
    }


def _knows(known: Sequence[str], names: Sequence[str]) -> str:
    if len(known) == len(names):
        return "all attributes" if len(names) > 1 else names[0]
    *first, last = known or ("none of these attributes",)
    return f"{', '.join(first)} and {last}" if first else last


def _found_text(
    intruder: Reidentification, names: Sequence[str], persons: _Counted, policy: PolicyConfig
) -> str:
    if not intruder.known:
        return "the intruder that the policy expects knows none of these attributes, so nothing finds persons"
    whose = ", whom the policy expects" if policy.known else ""
    interval = "" if intruder.low == intruder.high else f" ({_range(intruder.low, intruder.high)})"
    return (
        f"{persons.share(intruder.share)}{interval}, by one who knows {_knows(intruder.known, names)}"
        f"{whose}; {percent_text(intruder.without)} without the release"
    )


def _range(low: Any, high: Any) -> str:
    return f"{percent_text(low).removesuffix(' %')} to {percent_text(high)}"


def _judgement(most: Decimal | None, *, kept: bool | None, unsure: bool) -> str:
    if most is None:
        return "this organisation sets no limit for it"
    limit = f"this organisation's limit of {percent_text(most)}"
    if not kept:
        return f"above {limit}"
    return (
        f"{limit} is kept on average, but is within the confidence interval" if unsure else f"{limit} is kept"
    )


def other_linking(attacks: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the best linking of every intruder except the expected one."""
    if not attacks or "problem" in attacks:
        return
    tried = [risk for risk in attacks["risks"] if risk["attack"] in LINKING]
    for knows in dict.fromkeys(risk["knows"] for risk in tried if risk["knows"] != attacks["expected"]):
        yield best_linking(tried, knows)
    yield from attacks["risks_with_earlier"]


def best_linking(risks: Iterable[Mapping[str, Any]], knows: str) -> Mapping[str, Any]:
    """Return the attack that re-identifies most for an intruder with some knowledge; empty without one."""
    tried = (risk for risk in risks if risk["attack"] in LINKING and risk["knows"] == knows)
    return max(tried, key=lambda risk: float(risk["rate"]["mean"]), default={})


def knows_text(words: str) -> str:
    """Return what an intruder knows, `knows` of a risk, as people say it."""
    first, comma, rest = words.partition(", ")
    if first == "all":
        first = "all attributes"
    elif first.startswith("any "):
        first += " attributes"
    return first + (" " if rest == "approximately" else comma) + rest


def _other(risk: Mapping[str, Any], persons: _Counted) -> dict[str, Any]:
    rate, knows = risk["rate"], knows_text(risk["knows"])
    return {
        "knows": risk["knows"], "share": rate["mean"], "low": rate["low"], "high": rate["high"],
        "without": without_release(risk), "number": persons.number(rate["mean"]),
        "says": f"{persons.share(rate['mean'])} by one who knows {knows}",
        "brief": f"{knows} {percent_text(rate['mean'])}",
    }  # fmt: skip


def without_release(risk: Mapping[str, Any]) -> float:
    """Return how often an attack is right without the release: by guessing, or about people not in it."""
    return max(float(risk["baseline"]), float(risk["control"]["mean"]) if risk["control"] else 0.0)


def attack_rows(attacks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every attack for people: of those that re-identify, the best one by each intruder.

    Args:
        attacks: The result of `owner_node.risk.appraisal.attack`.

    Returns:
        `{name, attack, share, low, high, without, without_rank_noise, means}` each; `without_rank_noise` is
        the share of the same attack on a release without rank noise, null where that was not tried.
    """
    risks, bare = attacks["risks"], attacks["risks_without_rank_noise"] or ()
    same: Mapping[str, Any]
    rows = []
    for knows in dict.fromkeys(risk["knows"] for risk in risks if risk["knows"]):
        name = f"re-identified by one who knows {knows_text(knows)}"
        rows.append(_row(name, best_linking(risks, knows), best_linking(bare, knows)))
    rows += [
        _row(f"re-identified by one who knows {knows_text(risk['knows'])}", risk, {})
        for risk in attacks["risks_with_earlier"]
    ]
    for risk in (other for other in risks if not other["knows"]):
        key = risk["attack"], risk["attribute"]
        same = next((match for match in bare if (match["attack"], match["attribute"]) == key), {})
        rows.append(_row(f"{WORDS[risk['attack']].name} {risk['attribute'] or ''}".strip(), risk, same))
    return rows


def _row(name: str, risk: Mapping[str, Any], bare: Mapping[str, Any]) -> dict[str, Any]:
    rate = risk["rate"]
    return {
        "name": name, "attack": risk["attack"], "share": rate["mean"], "low": rate["low"],
        "high": rate["high"], "without": without_release(risk),
        "without_rank_noise": bare["rate"]["mean"] if bare else None, "means": meaning_of(risk),
    }  # fmt: skip


def meaning_of(risk: Mapping[str, Any]) -> str:
    """Return in a line what the result of an attack means, beside what is right without the release."""
    without, rate = without_release(risk), risk["rate"]
    if rate["high"] <= without:
        return "less often right than without the release: it misleads"
    if rate["low"] <= without:
        return "not measurably better than without the release"
    return WORDS[risk["attack"]].better


def _unset_text(what: Sequence[str]) -> str:
    if not what:
        return ""
    *first, last = what
    return f"This organisation sets no limit for {', '.join(first) + ' or ' if first else ''}{last}."
