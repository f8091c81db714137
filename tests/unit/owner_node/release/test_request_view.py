"""What a person reads of a plan that waits: of a synthetic release, what leaves in which layout."""

from dataclasses import replace
from decimal import Decimal

from common.model.plan import Layout, Synthesis
from common.model.task import Modelled
from owner_node.release import request_view
from owner_node.views.details import charge_text
from tests.fakes.consent_plans import PLAN, task

SYNTHESIS = Synthesis(0, (Decimal("0.4"), Decimal("0.6")))


def leaves(*tasks) -> list[str]:
    """Return what leaves owner north."""
    layout = Layout.VERTICAL if tasks[-1].group else Layout.HORIZONTAL
    plan = replace(PLAN, layout=layout, tasks=tasks, synthesis=SYNTHESIS)
    return request_view._leaves(plan, plan.assignment_of("north"))


def test_counts_leave_under_masks_or_encrypted() -> None:
    """Owners of the same attributes mask their counts; others encrypt the bins of their records."""
    modelled = Modelled(("age", "ward"), Decimal(1))
    same = leaves(*(task(owner, attributes=(), modelled=modelled) for owner in ("north", "south")))
    assert same[-1].endswith(
        "round by round under masks, of which the aggregator sees the sums of all owners"
    )
    others = leaves(
        task("north", attributes=(), modelled=Modelled(("age",), Decimal(1))),
        task("south", group=1, attributes=(), modelled=Modelled(("ward",), Decimal(1))),
    )
    assert "under masks" not in " ".join(others)
    assert others[-2] == "noisy counts of age, and of pairs of them, round by round"
    assert others[-1].startswith("for pairs with attributes of south: the bins of every record under this")


def test_a_plan_says_what_a_person_in_every_release_has_spent():
    """Who decides sees what all releases of the data protect together, before and after this one."""
    document = {
        "charge": Decimal("0.5"), "delta": Decimal(0), "budget": "people", "accounting": "joint",
        "linking": [], "state": "invited", "remaining": Decimal(1), "remaining_after": Decimal("0.5"),
        "balance": {"spent": Decimal("1.5")},
    }  # fmt: skip
    assert charge_text(document).endswith(
        "which has 1 left: 0.5 after it; a person in every release from it has spent 1.5 in all, 2 after it"
    )
