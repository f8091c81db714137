"""A manifest shows people numbers and promises: do they follow from what owners and aggregator signed?"""

import json
from collections.abc import Mapping
from typing import Any

from common import __version__
from common.canonical import canonical
from common.errors import IntegrityError
from common.evidence import Evidence
from common.guarantee import found, invariants, promises
from common.linking_check import contradictions
from common.matches import fit


def check_derived(manifest: Mapping[str, Any], evidence: Evidence) -> None:
    """Compare what a manifest shows with what follows from what was signed.

    Raises:
        IntegrityError: Naming the first thing that does not.
    """
    from common.release_summary import summary

    plan = evidence.plan
    derived = json.loads(canonical(summary(plan, evidence.addendum)))
    shown_owners = [
        {key: value for key, value in owner.items() if key not in ("consent", "fragment")}
        for owner in manifest["owners"]
    ]
    shown = {"owners": shown_owners, "totals": manifest["totals"], "schema": manifest["schema"]}
    for key, value in derived.items():
        if shown[key] != value:
            raise IntegrityError(f"its {key} are not those of the plan")
    named = (manifest["release"], manifest["layout"], manifest["purpose"], manifest["times"]["planned"])
    if named != (plan.release, plan.layout, plan.purpose, plan.created):
        raise IntegrityError("it describes another release than its plan")
    if manifest["aggregator"]["id"] != plan.aggregator:
        raise IntegrityError("it names another aggregator than its plan")
    _check_linking(evidence)
    # The wording may change between versions, what it says may not: only the same version can compare it.
    told, multiples = (manifest["guarantee"], manifest["invariants"]), evidence.addendum.multiples
    promised = [*promises(plan), *([found(plan, multiples)] if multiples else [])]
    if manifest["version"] == __version__ and told != (promised, list(invariants(plan))):
        raise IntegrityError("it promises something else than its plan")


def _check_linking(evidence: Evidence) -> None:
    """Compare what linking is said to have found with what the plan and the owners' statements allow."""
    plan, addendum = evidence.plan, evidence.addendum
    for contradiction in contradictions(plan, addendum):
        raise IntegrityError(contradiction)
    if len({signed.consent.key_check for signed in evidence.owners.values()}) > 1:
        raise IntegrityError("its owners linked with different linkage keys")
    if not fit(addendum.matches, plan, addendum.records):
        raise IntegrityError("linking cannot have found these matches under this plan")
