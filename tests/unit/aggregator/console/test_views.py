"""What the aggregator's pages say of a release."""

from aggregator.console.views import owner_lines
from common.wire.v1.control_pb2 import OwnerProgress, ReleaseView


def test_a_rounded_number_of_records_is_written_as_an_exact_one_is():
    """Until owners have linked it is a lower bound; thousands are grouped as elsewhere on the page."""
    owners = [
        OwnerProgress(id="a", state="invited", records=4000),
        OwnerProgress(id="b", state="sealed", records=4200, records_exact=True),
    ]
    lines = owner_lines(ReleaseView(release="r1", state="masking", owners=owners))
    assert [each["records"] for each in lines] == ["≥ 4,000", 4200]
