"""Pages for people: one self-contained HTML file each, without script and without network.

A page is a template of the package that makes it, built on `templates/page.html` (structure and style) and
`templates/charts.html` (drawings of `common.words.charts`). All values are escaped.
"""

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from common.words.numbers import bound_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_COMMAND = re.compile("`([^`]+)`")


def render(package: str, template: str, values: Mapping[str, Any]) -> str:
    """Return a page made of a template in the folder `templates` of a package.

    Returns:
        HTML that loads nothing else: styles and drawings are inline, and a content security policy forbids
        any other source.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> "Environment":
    """Return what compiles a package's templates; it keeps them, since compiling takes 0.1 s for a page."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("common")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["grouped"] = "{:,}".format
    environment.filters["bound"] = partial(bound_text, without="not bounded")
    environment.filters["commands"] = _commands
    return environment


def _commands(text: str) -> "Markup":
    """Return a text whose `commands` are set as code; everything in it is escaped."""
    from markupsafe import Markup, escape

    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before
