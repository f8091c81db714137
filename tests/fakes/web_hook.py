"""A web server of this machine that takes messages."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue


@contextmanager
def web_hook(answers: Sequence[int] = ()) -> Iterator[tuple[str, Queue[tuple[bytes, str]]]]:
    """Serve at a free port; every request gets the next of the answers, and 200 when there is no more.

    Yields:
        The address, and body and signature of every request that was answered with 200.
    """
    taken: Queue[tuple[bytes, str]] = Queue()
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = left.pop(0) if left else 200
            if code == 200:
                taken.put((body, self.headers["X-Tessera-Signature"]))
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
