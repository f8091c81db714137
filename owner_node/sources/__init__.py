"""Sources of original records: the table of their kinds, and each kind with what opens and reads it."""

from owner_node.sources.file_source import FileSource
from owner_node.sources.objects import ObjectSource
from owner_node.sources.query import Query
from owner_node.sources.source import Source
from owner_node.sources.spark import SparkSource

KINDS: tuple[type[Source], ...] = (SparkSource, ObjectSource, Query, FileSource)
"""The first whose beginning matches an address is its kind; `formats.FORMATS` has the formats of files."""


def kind_of(address: str) -> type[Source]:
    """Return the kind of source that an address is of."""
    return next(kind for kind in KINDS if kind.begins.match(address))
