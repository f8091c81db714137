"""The system's clock. Objects take a clock as an argument; programs and commands pass this one."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)
