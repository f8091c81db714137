"""An organisation's own daemon and commands: the only programs that read original data."""

# Before any module of this package imports numpy; see `common.processor`.
import common  # noqa: F401
