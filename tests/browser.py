"""A real browser that opens a page and tells what happened: headless Chromium, driven over a pipe.

The browser reaches this machine alone: every name fails to resolve. What a page asks
for is listed all the same.
"""

import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.needs import BROWSERS

_READ = 1 << 16
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update"),
    *("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.*", "--hide-scrollbars"),
)
_AXE = files("axe_core_python").joinpath("axe.min.js")
_RULES = {"light": "", "dark": "runOnly: ['color-contrast', 'link-in-text-block'], "}
"""What axe checks: the two schemes differ in colours alone."""
_ASKED = "resultTypes: ['violations']"
"""Describing every element that passes takes a quarter of axe's time."""
_VIOLATIONS = "JSON.stringify(found.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
Message = Mapping[str, Any]


@dataclass
class Page:
    """An open page."""

    browser: "Browser"
    session: str
    asked_for: list[str] = field(default_factory=list)
    """Addresses that were requested, the page's own first."""
    complaints: list[str] = field(default_factory=list)
    """Everything that was written to the console or its log, exceptions included."""

    def do(self, method: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol and return its result."""
        return self.browser.do(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of the page's own script engine gives."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a condition of the page's own script engine holds, frame by frame."""
        waiting = f"""new Promise(done => {{
            const holds = () => {{ try {{ return {condition} }} catch {{ return false }} }}
            const look = () => holds() ? done(true) : setTimeout(look, 20)
            look()
        }})"""
        self.do("Runtime.evaluate", expression=waiting, awaitPromise=True)

    def go(self, address: str) -> None:
        """Open another address in this page, bring it to the front and wait until it is loaded."""
        # Timers of a page behind another one run once a minute.
        self.do("Page.bringToFront")
        self.leads_to_page(lambda: self.do("Page.navigate", url=address))

    def leads_to_page(self, action: Callable[[], object]) -> None:
        """Do something that loads another page, and wait for that."""
        self.browser.await_load(self.session, action)

    def press(self, key: str, code: int) -> None:
        """Press a key and let it go."""
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            shown = {"text": text} if text and kind == "keyDown" else {}
            self.do(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **shown
            )

    def fill(self, name: str, text: str) -> None:
        """Write a text into the field of a form with this name, in place of what is there."""
        field = f"document.querySelector('[name={name}]')"
        self.evaluate(f"{field}.focus(); {field}.select(); 0")
        self.do("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on the first element that a selector of CSS finds, where it is."""
        at = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView(); "
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def resize(self, width: int) -> None:
        """Make the page this wide, in pixels."""
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Take "light" or "dark" for what the reader prefers."""
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def faults(self) -> list[str]:
        """Return what axe finds in light and dark, and whether anything is wider than the window."""
        found = []
        self.evaluate(f"{_AXE.read_text()}; 0")
        for scheme, rules in _RULES.items():
            self.prefer(scheme)
            asked = f"{{{rules}{_ASKED}}}"
            self.evaluate(
                f"delete window.found; axe.run({asked}).then(found => {{ window.found = found }}); 0"
            )
            self.wait_for("window.found")
            violations = self.evaluate(_VIOLATIONS)
            if violations != "[]":
                found.append(f"{scheme}: {violations}")
        if self.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append("wider than the window")
        return found

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.do("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """Return the page as PDF."""
        return base64.b64decode(
            self.do("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
        )

    def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of everything that a screen reader meets, in its order."""
        nodes = self.do("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def heard(self, message: Message) -> None:
        """Note what the browser tells about the page."""
        said = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                self.asked_for.append(said["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(said["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str([each.get("value") for each in said["args"]]))
            case "Runtime.exceptionThrown":
                self.complaints.append(said["exceptionDetails"]["text"])


class Browser:
    """A running browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing, self._rest, self._number = reading, writing, b"", 0
        self._pages: dict[str, Page] = {}
        self._loaded: set[str] = set()
        self._context: dict[str, str] = {}

    @contextmanager
    def separate(self) -> Iterator[None]:
        """Open pages without the cookies, caches and stores of the others, and close them in the end."""
        outer, self._context = self._context, self.do("Target.createBrowserContext")
        try:
            yield
        finally:
            self.do("Target.disposeBrowserContext", **self._context)
            self._context = outer

    def open(self, file: Path | str, width: int = 1100) -> Page:
        """Open a file or an address and wait until it is loaded."""
        target = self.do("Target.createTarget", url="about:blank", **self._context)["targetId"]
        session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            page.do(f"{domain}.enable")
        page.resize(width)
        page.go(file if isinstance(file, str) else file.resolve().as_uri())
        return page

    def await_load(self, session: str, action: Callable[[], object]) -> None:
        """Do something and wait until the page of a session has loaded after it."""
        self._loaded.discard(session)
        action()
        while session not in self._loaded:
            self._take(self._next())

    def do(self, method: str, session: str = "", **parameters: Any) -> Any:
        """Give a command and return its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters} | (
            {"sessionId": session} if session else {}
        )
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writing, data) :]
        while (answer := self._next()).get("id") != number:
            self._take(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _take(self, message: Message) -> None:
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.heard(message)
            if message["method"] == "Page.loadEventFired":
                self._loaded.add(page.session)

    def _next(self) -> Message:
        while b"\0" not in self._rest:
            data = os.read(self._reading, _READ)
            assert data, "the browser has ended"
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        message: Message = json.loads(line)
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """Return the browser of this process, started if it is not running, with nothing of earlier pages."""
    running = _started()
    with running.separate():
        yield running


@cache
def _started() -> Browser:
    """Start a browser with a profile of its own, which ends with this process."""
    program = next(found for name in BROWSERS if (found := shutil.which(name)))
    to_browser, from_browser = os.pipe(), os.pipe()
    ours = (to_browser[1], from_browser[0])
    # The browser reads commands from descriptor 3 and answers on 4.
    connect = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    profile = tempfile.mkdtemp()
    process = subprocess.Popen(
        ["bash", "-c", connect, "bash", program, *_ARGUMENTS, f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_browser[0], from_browser[1]),
        start_new_session=True,
    )

    def end() -> None:
        for each in ours:
            os.close(each)
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(profile, ignore_errors=True)

    os.close(to_browser[0])
    os.close(from_browser[1])
    atexit.register(end)
    return Browser(*reversed(ours))
