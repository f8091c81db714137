"""The texts of a plan, before anything of it is kept: a person reads them, and decides by what is shown."""

from collections.abc import Iterator
from datetime import datetime

from common.errors import ProtocolError
from common.identity import is_name
from common.plan import Plan, is_purpose

_LONGEST_MOMENT = 40
_LONGEST_VERSION = 64
_LONGEST_NAME = 256


def check_texts(plan: Plan) -> None:
    """Refuse a plan whose texts could pass for other lines of what a person is shown, or fill the screen.

    Raises:
        ProtocolError: Saying which text is none; it quotes nothing.
    """
    fault = next(_faults(plan), None)
    if fault is not None:
        raise ProtocolError(fault, "the aggregator must run a compatible version")


def _faults(plan: Plan) -> Iterator[str]:
    if not is_purpose(plan.purpose):
        yield "the purpose of the plan is not one short line of printable text"
    if len(plan.created) > _LONGEST_MOMENT or not _is_moment(plan.created):
        yield "the time of the plan is not in ISO 8601"
    if not _is_line(plan.version, _LONGEST_VERSION):
        yield "the version in the plan is not a short line of printable text"
    if not all(map(is_name, plan.owners)):
        yield "the owners of the plan are not all named by ids"
    names = {each.name for each in plan.attributes}
    names |= {each.name for task in plan.tasks for each in task.attributes}
    if not all(_is_line(name, _LONGEST_NAME) for name in names):
        yield "the names of the plan's attributes are not all short lines of printable text"


def _is_line(text: str, longest: int) -> bool:
    return len(text) <= longest and text.isprintable()


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
