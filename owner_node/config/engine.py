"""The table `[engine]` of `owner.toml`: what holds the records of a release while they are masked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, cast

from pydantic import PlainValidator

from common.daemon.settings import EngineSection
from common.settings import FilePath, Listed, value_text
from common.workspace import Workspace
from owner_node.sources.spark_session import SparkSettings

_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]{0,3})\])?|spark://[A-Za-z0-9._-]+:[0-9]{1,5}(,[A-Za-z0-9._-]+:[0-9]{1,5})*|yarn|k8s://\S+"
)
_KEY = re.compile(r"spark\.[A-Za-z0-9_.-]+")
_OURS = ("spark.master", "spark.jars", "spark.app.name")


class EngineKind(StrEnum):
    """What holds the records."""

    AUTO = "auto"
    """Memory while the table fits, else disk."""
    MEMORY = "memory"
    """Arrays in memory."""
    DISK = "disk"
    """Files in scratch, sorted there."""
    SPARK = "spark"
    """Files in scratch that a Spark cluster sorts and masks."""


def _kind(value: object) -> EngineKind:
    if value == "duckdb":
        # The name of `disk` in configurations from when a library of that name sorted the files.
        return EngineKind.DISK
    try:
        return EngineKind(cast("str", value))
    except ValueError:
        raise ValueError("expected one of " + ", ".join(f'"{kind}"' for kind in EngineKind)) from None


def _master(value: object) -> str:
    if isinstance(value, str) and _MASTER.fullmatch(value):
        return value
    raise ValueError('expected a Spark master: "local[4]", "spark://host:7077", "yarn" or "k8s://..."')


def _conf(value: object) -> Mapping[str, str]:
    """Read settings of Spark as texts; whole numbers, decimals and booleans are written as Spark does."""
    if not isinstance(value, Mapping):
        raise ValueError("expected a table of Spark's settings")
    conf = {}
    for key, setting in value.items():
        if not _KEY.fullmatch(key):
            raise ValueError(
                f'{value_text("", key)}: expected keys such as "spark.executor.memory", in quotes'
            )
        if key in _OURS:
            raise ValueError(
                f"{key} is not set here: the keys master and extra_jars of [engine] are for that"
            )
        if not isinstance(setting, str | int | Decimal):
            raise ValueError(f"{key}: expected a text, a number or a boolean")
        conf[key] = str(setting).lower() if isinstance(setting, bool) else str(setting)
    return conf


@dataclass(frozen=True, slots=True)
class OwnerEngineSection(EngineSection):
    """The table `[engine]` of an owner node."""

    kind: Annotated[EngineKind, PlainValidator(_kind)] = EngineKind.AUTO
    """What holds the records of a release while they are masked."""
    master: Annotated[str, PlainValidator(_master)] | None = None
    """Where Spark runs; without it on this machine, with `threads`."""
    conf: Annotated[Mapping[str, str], PlainValidator(_conf)] = field(default_factory=dict)
    """Further settings of Spark."""
    extra_jars: Listed[FilePath] = ()
    """Archives of Java classes that sources of Spark need."""

    def spark(self, workspace: Workspace) -> SparkSettings:
        """Return how the Spark session is started."""
        master = self.master or f"local[{workspace.threads}]"
        return SparkSettings(master, workspace, self.conf, self.extra_jars)
