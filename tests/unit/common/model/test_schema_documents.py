"""Limits of a policy as a document, as the aggregator reads them from owners whom it does not trust."""

from typing import Any

import pytest

from common.canonical import canonical
from common.model.schema import Limits


@pytest.mark.parametrize("listed", [None, (), ("idp-joint", "dp-hist")])
def test_an_empty_list_is_not_everything(listed: tuple[str, ...] | None) -> None:
    """A document tells a policy that lists nothing from one that sets no limit."""
    limits = Limits(mechanisms=listed, layouts=listed)
    assert Limits.from_bytes(limits.to_bytes()) == limits


@pytest.mark.parametrize("value", ["oint", "", None, True, ["joint"], {"joint": "joint"}])
def test_another_accounting_is_malformed(value: Any) -> None:
    """It is refused as such: any other error would count as the aggregator's own."""
    document = Limits(min_k=10, accounting="per-centroid").to_document()
    assert Limits.from_bytes(canonical(document)).accounting == "per-centroid"
    with pytest.raises(ValueError, match="not a valid Limits"):
        Limits.from_bytes(canonical(document | {"accounting": value}))
