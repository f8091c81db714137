"""What the aggregator's pages say of a release."""

from aggregator.api.views import event_view
from aggregator.console.views import event_line, owner_lines
from aggregator.protocol.events import EVENTS, Ending, Opened, OwnerEvent
from aggregator.protocol.release import apply
from aggregator.protocol.states import State
from aggregator.protocol.work import work_for
from common.wire.v1.control_pb2 import EventView, OwnerProgress, ReleaseView
from tests.fakes.protocol_peers import aggregator_step, answer_to, synthetic


def test_a_rounded_number_of_records_is_written_as_an_exact_one_is():
    """Until owners have linked it is a lower bound; thousands are grouped as elsewhere on the page."""
    owners = [
        OwnerProgress(id="a", state="invited", records=4000),
        OwnerProgress(id="b", state="sealed", records=4200, records_exact=True),
    ]
    lines = owner_lines(ReleaseView(release="r1", state="masking", owners=owners))
    assert [each["records"] for each in lines] == ["≥ 4,000", 4200]


def test_every_event_is_said_in_words():
    """No page shows the name of an event."""
    for name, kind in EVENTS.items():
        owner = "a" if issubclass(kind, OwnerEvent) else ""
        if not issubclass(kind, Ending | Opened):  # these bring their words
            assert event_line(EventView(event=name, owner=owner))["text"] not in (name, f"a {name}")


def test_rounds_are_numbered():
    """Who looks at a release that takes long sees how far it is."""
    release, said = synthetic("a", "b"), []
    while release.state is not State.JOINING:
        event = aggregator_step(release)
        if isinstance(event, Opened):
            said.append(event_line(event_view(event))["text"])
        due = ((owner, work_for(release, owner)) for owner in release.request.owners)
        release = apply(
            release, event or next(answer_to(release, owner, work) for owner, work in due if work)
        )
    assert said == ["Round 1 began", "Round 2 began", "Round 3 began", "All rounds are answered"]
