"""Calls of a sign-in provider, bounded in size and in time however slowly it answers."""

import io
import socket
import time
from contextlib import ExitStack
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from common.canonical import parse_json
from common.daemon.process import deadline

MOST_BYTES = 256 * 1024
"""Of one answer; key sets and descriptions of providers have some kilobytes."""


class Exchange(HTTPAdapter):
    """Carries the requests of one exchange with a provider, through a proxy that the environment names.

    Time-outs of sockets restart with every byte. So every connection of the exchange is ended when its time
    is over.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._ends = time.monotonic() + seconds
        self._deadlines = ExitStack()

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Send a request, and read the whole answer, which is JSON.

        Raises:
            requests.RequestException: If that fails, takes too long, has too many bytes or is no JSON.
        """
        options |= {"stream": True, "proxies": get_environ_proxies(request.url or "", no_proxy=None)}
        response = super().send(request, **options)
        try:
            # As it is: a compressed answer, which nobody asked for, cannot grow.
            content = response.raw.read(MOST_BYTES + 1, decode_content=False)
        except (HTTPError, OSError) as error:
            raise requests.ConnectionError(type(error).__name__) from None
        finally:
            response.close()
        if time.monotonic() >= self._ends:
            raise requests.Timeout
        if len(content) > MOST_BYTES:
            raise requests.exceptions.ContentDecodingError
        try:
            parse_json(content)
        except ValueError:
            response.raise_for_status()
            raise requests.exceptions.InvalidJSONError from None
        response.raw = io.BytesIO(content)
        return response

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        """Return the connections to a host, each of which has the deadline from its beginning."""
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        kind, deadlines, ends = type(pool).ConnectionCls, self._deadlines, self._ends

        class Bounded(kind):  # type: ignore[misc, valid-type]
            def _new_conn(self) -> socket.socket:
                # Before the handshake of TLS, which can take as long as everything else.
                connection: socket.socket = super()._new_conn()
                deadlines.enter_context(deadline(connection, max(ends - time.monotonic(), 0.0)))
                return connection

        pool.ConnectionCls = Bounded
        return pool

    def close(self) -> None:
        """Forget all connections."""
        self._deadlines.close()
        super().close()
