"""Documents of `--json` say of a plan what its page says."""

import json

from aggregator.control.documents import document, document_with_plan
from common.wire.v1.control_pb2 import ReleaseView
from common.words.essentials import essentials
from tests.fakes.releases import make_plan


def test_a_document_has_the_plan_and_what_matters_most_about_it():
    """Before there is a plan there is nothing to say."""
    view = ReleaseView(release="r1", state="inviting")
    assert document_with_plan(view) == document(view) | {"plan": None, "essentials": []}
    plan = make_plan([(["age", "income"], ["a", "b"])])
    planned = document_with_plan(ReleaseView(release="r1", state="planned", plan=plan.to_bytes()))
    assert planned["plan"] == json.loads(plan.to_bytes())
    assert planned["essentials"] == list(essentials(plan))
