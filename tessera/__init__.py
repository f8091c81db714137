"""What analysts use: `tessera.read_release`, and the errors that it raises."""

from common.errors import IntegrityError, TesseraError, UsageError
from common.release.reading import Release, read_release

__all__ = ["IntegrityError", "Release", "TesseraError", "UsageError", "read_release"]
