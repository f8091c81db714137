"""The form for a new release: attributes to choose from, and the layout that fits the schemas."""

import pytest

from aggregator.console.form import empty_form, fitting_groups, form_values, request_of
from common.model.plan import Layout


def schema(*names: str, identifier: bool = True):
    """Return a schema as pages show it, reduced to what decides about a layout."""
    return {"attributes": [{"name": each} for each in names], "identifier": identifier}


@pytest.mark.parametrize(
    ("schemas", "layout", "groups"),
    [
        ({}, Layout.HORIZONTAL, ""),
        ({"a": schema("age"), "b": schema("age")}, Layout.HORIZONTAL, ""),
        ({"a": schema("age", "ward"), "b": schema("age")}, Layout.HORIZONTAL, ""),
        ({"a": schema("age"), "b": schema("cost")}, Layout.VERTICAL, ""),
        ({"a": schema("age"), "b": schema("cost", identifier=False)}, Layout.HORIZONTAL, ""),
        ({"b": schema("age"), "c": schema("cost"), "a": schema("age")}, Layout.MIXED, "a,b;c"),
        ({"a": schema("age"), "b": schema("age", "cost"), "c": schema("x")}, Layout.HORIZONTAL, ""),
    ],
)
def test_the_layout_that_fits(schemas, layout, groups) -> None:
    """Owners with different attributes of the same persons are groups; the form begins with that layout."""
    assert fitting_groups(schemas) == (layout, groups)
    form = empty_form("d", "2026-01-01", "ab", *fitting_groups(schemas))
    assert (form.texts["layout"], form.texts["groups"]) == (str(layout), groups)


def test_ticked_attributes_are_asked_for_in_their_order() -> None:
    """Ticks take the place of names that were typed; none ticked are all of them."""
    sent = {
        "dataset": "d", "layout": "horizontal", "epsilon": "1", "owner:a": "on", "attribute:ward": "on",
        "attribute:age": "on", "attributes": "", "what": "plan",
    }  # fmt: skip
    form = form_values(sent)
    assert form.attributes == {"ward", "age"}
    assert list(request_of(form).attributes) == ["ward", "age"]
    assert not form_values({"dataset": "d"}).attributes
