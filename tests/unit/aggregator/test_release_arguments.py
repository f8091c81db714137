"""Command line, form and request have the arguments of the table of release arguments, and no others."""

import pytest

from aggregator.cli import application
from aggregator.console.form import empty_form, form_values, request_of
from common.errors import ConfigurationError
from common.planning.arguments import ARGUMENTS, Kind
from common.planning.facts import parse_facts
from common.wire.v1.control_pb2 import StartRequest

NOT_ARGUMENTS = {"confirmed", "dry_run"}
"""Fields that say how far a release goes."""


def test_the_request_has_every_argument() -> None:
    """Owners are stated by group; nothing is in the request that the table does not know."""
    fields = set(StartRequest.DESCRIPTOR.fields_by_name)
    assert fields - NOT_ARGUMENTS == set(ARGUMENTS) - {"owners"}


def test_the_command_line_has_every_argument() -> None:
    """`plan` and `release` show the options of the table first, in its order, with its words."""
    for name in ("plan", "release"):
        options = application().commands[name].params[: len(ARGUMENTS)]
        assert [(each.name, each.opts, each.help) for each in options] == [
            (argument, [stated.option_of(argument)], stated.help) for argument, stated in ARGUMENTS.items()
        ]


def test_the_form_has_every_argument() -> None:
    """Every text and tick of the form is in the request; a copy is not made from the pages."""
    form = empty_form("d", "2026-01-01", "ab")
    texts = {name for name, each in ARGUMENTS.items() if each.kind is not Kind.FLAG}
    assert {*form.texts, "owners", "formats", "out"} == texts
    assert set(form.listed) < texts
    assert all(form.arguments[name].label for name in form.listed)
    ticked = dict.fromkeys(form.offered_flags, "on")
    sent = form_values({**form.texts, "owner:a": "on", "format:csv": "on", "min_common": "7", **ticked})
    request = request_of(sent)
    assert all(getattr(request, name) for name in form.offered_flags)
    assert (request.min_common, list(request.formats), request.confirmed) == ("7", ["csv"], False)


def test_the_form_takes_the_text_of_a_file() -> None:
    """A file of facts is pasted, and is read as that of the command line; an empty field states none."""
    form = empty_form("d", "2026-01-01", "ab")
    facts = 'structural_zeros = [\r\n  { age = { max = 15 }, job = ["nurse"] },\r\n]'
    request = request_of(form_values({**form.texts, "owner:a": "on", "facts": facts}))
    (rule,) = parse_facts(request.facts).structural_zeros
    assert rule.names == ("age", "job")
    assert not request_of(form_values({**form.texts, "owner:a": "on"})).facts
    with pytest.raises(ConfigurationError, match="facts has 1 problem"):
        request_of(form_values({**form.texts, "owner:a": "on", "facts": "zeros = 1"}))
