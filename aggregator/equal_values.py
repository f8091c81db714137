"""What records that share a released value have in common, in words, by what carries the values."""

from common.plan import Plan
from common.privacy import EXPONENTIAL, MECHANISMS
from common.task import PlannedAttribute

_COUNTS = (
    "{names}: the values come from noisy counts, not from clusters. Records with the same value need not "
    "have had the same original one, and how often a value occurs is a noisy count."
)
_DRAWN = (
    "{names}: a category was drawn for every cluster, and several clusters can have drawn the same one. "
    "Records with the same category need not have shared a cluster."
)
_OWN = (
    "{names}: every record had noise of its own. That records have the same value says only that their noisy "
    "values came out equal."
)
_DIFFERENT = (
    "How many different values there are says how clusters were made, not how many there were in the "
    "original data."
)
_CLUSTERS = (
    "{names}: records of one owner that share a value were in the same cluster, or in clusters whose values "
    f"came out equal; records of different owners were in different ones. {_DIFFERENT}"
)
_MOVED = (
    "{names}: every released value is that of a cluster, or of several whose values came out equal. Because "
    f"of the rank noise the records that have it need not have been in it themselves. {_DIFFERENT}"
)


def equal_values(plan: Plan) -> tuple[str, ...]:
    """Say of all attributes what records with the same released value share, one line per kind of carrier.

    Args:
        plan: The plan; owners can mask the same attribute in different ways, and then it is in several lines.
    """
    names: dict[str, dict[str, None]] = {}
    for task in plan.tasks:
        for each in task.attributes:
            names.setdefault(_line(each), {})[each.name] = None
    return tuple(line.format(names=", ".join(of_line)) for line, of_line in names.items())


def _line(planned: PlannedAttribute) -> str:
    promise = MECHANISMS[planned.mechanism]
    if planned.mechanism == EXPONENTIAL:
        return _DRAWN
    if promise.counts:
        return _COUNTS
    if not promise.clustered:
        return _OWN
    return _MOVED if planned.rank_noise else _CLUSTERS
