"""What analysts use: `tessera.read_release`."""

from common.release.reading import Release, read_release

__all__ = ["Release", "read_release"]
