"""Calls of a sign-in provider, bounded in size and in time however slowly it answers."""

import io
import os
import socket
import threading
from contextlib import suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

MOST_BYTES = 256 * 1024
"""Of one answer; key sets and descriptions of providers have some kilobytes."""


class Exchange(HTTPAdapter):
    """Carries the requests of one exchange with a provider, through a proxy that the environment names.

    Time-outs of sockets restart with every byte. So every connection of the exchange is ended when its time
    is over.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._watched: list[socket.socket] = []
        self._lock, self._over = threading.Lock(), False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Send a request, and read the whole answer.

        Raises:
            requests.RequestException: If that fails, takes too long or has too many bytes.
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
        if self._over:
            raise requests.Timeout
        if len(content) > MOST_BYTES:
            raise requests.exceptions.ContentDecodingError
        response.raw = io.BytesIO(content)
        return response

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        """Return the connections to a host, each of which is watched from its beginning."""
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        kind, watch = type(pool).ConnectionCls, self._watch

        class Watched(kind):  # type: ignore[misc, valid-type]
            def _new_conn(self) -> socket.socket:
                # Before the handshake of TLS, which can take as long as everything else.
                return watch(super()._new_conn())

        pool.ConnectionCls = Watched
        return pool

    def close(self) -> None:
        """Forget all connections."""
        self._timer.cancel()
        with self._lock:
            while self._watched:
                self._watched.pop().close()
        super().close()

    def _watch(self, connection: socket.socket) -> socket.socket:
        # TLS takes the descriptor away; another one of the same connection can still end it.
        twin = socket.socket(connection.family, connection.type, fileno=os.dup(connection.fileno()))
        with self._lock:
            self._watched.append(twin)
            over = self._over
        if over:
            self._end()
        return connection

    def _end(self) -> None:
        with self._lock:
            self._over = True
            for connection in self._watched:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
