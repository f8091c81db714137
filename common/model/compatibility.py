"""What the versions of this software have in common: versions of the protocol, and features that a plan uses.

Both sides state what they run (`Software`) when they connect, and owners again with their schema. The plan
states the newest protocol that all of them speak, and by name the features that it uses. An owner consents
only if it knows all of these. Fields of documents and messages that a version does not know are ignored, so
whatever changes what an owner does, or what a release promises, is a feature here or a new protocol.

A version speaks its own protocol and that of the release before it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from common import __version__
from common.canonical import Document
from common.errors import VersionError
from common.model.schema import PROPERTIES, Property

OLDEST_PROTOCOL = 1
NEWEST_PROTOCOL = 1
"""The newest one is raised when messages or documents mean something else than before."""


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that only some versions know."""

    since: str
    """The first version that knows it."""
    used: Callable[[Any], bool]
    """Whether a `common.model.plan.Plan` uses it."""


def _declares(setting: Property, plan: Any) -> bool:
    return any(map(setting.is_set, plan.columns if setting.of_derived else plan.attributes))


FEATURES: Mapping[str, Feature] = {
    "audit": Feature("0.2.0", lambda plan: plan.audit_days > 0),
    "description": Feature("0.2.0", lambda plan: plan.described),
    "following": Feature("0.2.0", lambda plan: bool(plan.following)),
    "intersect": Feature("0.1.0", lambda plan: plan.linking.intersects),
    "key-proof": Feature("0.2.0", lambda plan: plan.linking.key_proofs),
    "match-keys": Feature("0.1.0", lambda plan: bool(plan.passes)),
    "overlap": Feature("0.1.0", lambda plan: plan.linking.max_overlap > 1),
    "owner-column": Feature("0.1.0", lambda plan: plan.owner_column),
    "permit": Feature("0.2.0", lambda plan: bool(plan.permit or plan.duo)),
    "rank-noise": Feature("0.1.0", lambda plan: plan.has_rank_noise),
    "synthetic-determined": Feature("0.2.0", lambda plan: plan.synthesis is not None),
    "synthetic-linking": Feature(
        "0.2.0",
        lambda plan: plan.synthesis is not None and (plan.linking.intersects or plan.numbers_persons),
    ),
    "synthetic-together": Feature(
        "0.2.0", lambda plan: plan.synthesis is not None and bool(plan.synthesis.together)
    ),
    "union": Feature("0.2.0", lambda plan: plan.linking.unites),
    **{each.feature: Feature(each.since, partial(_declares, each)) for each in PROPERTIES if each.feature},
}
"""Every feature by the name that plans state."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*[a-z0-9.+-]*", re.ASCII)
_PROTOCOL = re.compile(r"[0-9]{1,9}")
_LONGEST_VERSION = 64
_MOST_FEATURES = 256


def _are_features(names: Sequence[str]) -> bool:
    """Whether these can be names of features: so few and so short that they may be shown."""
    return len(names) <= _MOST_FEATURES and all(map(_NAME.fullmatch, names))


def is_version(text: str) -> bool:
    """Whether a text is the number of a version, fit to be shown."""
    return len(text) <= _LONGEST_VERSION and bool(_VERSION.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Software(Document):
    """What one side runs, as it states it."""

    version: str
    oldest: int
    """Oldest version of the protocol that it speaks."""
    newest: int
    """Newest one."""
    features: tuple[str, ...]
    """Names of the features that it knows, those that are not known here included."""

    def __post_init__(self) -> None:
        if not is_version(self.version):
            raise ValueError("the version is not a version number")
        if not 0 < self.oldest <= self.newest:
            raise ValueError("the versions of the protocol are not stated, oldest and newest")
        if not _are_features(self.features):
            raise ValueError("the features are not a list of short names")


HERE = Software(__version__, OLDEST_PROTOCOL, NEWEST_PROTOCOL, tuple(sorted(FEATURES)))
"""What runs here."""


def features_of(plan: Any) -> tuple[str, ...]:
    """Return the names of the features that a `common.model.plan.Plan` uses."""
    return tuple(name for name in HERE.features if FEATURES[name].used(plan))


def common_protocol(side: str, others: Mapping[str, Software], here: Software = HERE) -> int:
    """Return the newest version of the protocol that everybody speaks.

    Args:
        side: Words that name this side.
        others: What the others run, by the words that name them, such as "owner north".
        here: What this side runs.

    Raises:
        VersionError: Naming everybody that has to be upgraded.
    """
    newest = min(each.newest for each in (here, *others.values()))
    oldest = max(each.oldest for each in (here, *others.values()))
    if newest >= oldest:
        return newest
    behind = {name: each for name, each in {side: here, **others}.items() if each.newest < oldest}
    listed = ", ".join(f"{name} (version {each.version})" for name, each in behind.items())
    raise VersionError(
        f"protocol {oldest} is needed, and {newest} is the newest of {listed}",
        f"upgrade {listed}",
        {"behind": list(behind), "newest": newest, "needed": oldest},
    )


def check_features(used: Iterable[str], owners: Mapping[str, Software]) -> None:
    """Check that every owner knows the features that a plan uses.

    Args:
        used: Names of features that are known here.
        owners: What every owner runs, by its id.

    Raises:
        VersionError: Naming every owner that lacks one, its version, and the version that it needs.
    """
    lacking = {
        owner: missing
        for owner, runs in owners.items()
        if (missing := sorted(set(used) - set(runs.features)))
    }
    if lacking:
        lines = "".join(
            f"\n  {owner} (version {owners[owner].version}): "
            + ", ".join(f"{name}, known since {FEATURES[name].since}" for name in missing)
            for owner, missing in lacking.items()
        )
        raise VersionError(
            f"these owners run versions that lack what the release uses:{lines}",
            "no owner was asked and nothing is charged; upgrade them, or leave out what they lack",
            {"owners": lacking},
        )


def check_needs(plan: Mapping[str, Any]) -> None:
    """Check that a plan, given as its document, needs nothing that is not known here.

    Raises:
        VersionError: Naming what is not known.
        ValueError, KeyError, TypeError: If it does not state what it needs.
    """
    stated, used, version = str(plan["protocol"]), plan["features"], plan["version"]
    if not (_PROTOCOL.fullmatch(stated) and isinstance(used, list) and _are_features(used)):
        raise ValueError("the plan does not state what it needs")
    protocol = int(stated)
    maker = f"version {version}" if is_version(version) else "the version that made the plan"
    hint = f"this is version {HERE.version}: upgrade it to {maker} or later"
    if protocol > HERE.newest:
        raise VersionError(
            f"the plan needs protocol {protocol}, and {HERE.newest} is the newest known here", hint
        )
    if protocol < HERE.oldest:
        raise VersionError(
            f"the plan follows protocol {protocol}, and {HERE.oldest} is the oldest known here",
            f"{maker} is older: use a version between the two",
        )
    if unknown := sorted(set(used) - set(HERE.features)):
        raise VersionError(
            f"the plan uses features that are not known here: {', '.join(unknown)}",
            hint,
            {"features": unknown},
        )
