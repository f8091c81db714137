"""Pages for people: one self-contained HTML file each, without script and without network.

A page is a template of the package that makes it, built on `templates/page.html` (structure and style) and
`templates/charts.html` (drawings of `common.charts`). Everything that comes from outside is escaped.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from common.shown_bounds import bound_text


def render(package: str, template: str, values: Mapping[str, Any]) -> str:
    """Return a page.

    Args:
        package: The package whose folder `templates` holds the page's template.
        template: Name of the template.
        values: What it shows. Every text is escaped.

    Returns:
        HTML that asks for nothing else: styles and drawings are inside, and a content security policy forbids
        all the rest.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("common")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["grouped"] = grouped
    environment.filters["bound"] = _bound
    return environment.get_template(template).render(values)


def _bound(value: Decimal | None) -> str:
    return bound_text(value, "not bounded")


def grouped(value: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{value:,}"
