"""What tests of pages rely on: a page that is not accessible has faults."""

import pytest

from tests.browser import browser

pytestmark = pytest.mark.needs("chromium")
_PAGE = """
<!doctype html>
<html lang="en">
<title>Faults</title>
<style>
  :root { color-scheme: light dark; background: white }
  .light { color: #aaa }
  .wide { width: 1000px }
  @media (prefers-color-scheme: dark) {
    :root { background: black } h1, .light { color: white } .dark { color: #333 }
  }
</style>
<main>
  <h1>Faults</h1><p class="light">in light</p><p class="dark">in dark</p>
  <div class="wide"><input name="a"></div>
</main>
"""


def test_every_kind_of_fault_is_found(tmp_path):
    """Pale text in either scheme, a field without a name, and what is wider than the window."""
    path = tmp_path / "page.html"
    path.write_text(_PAGE.lstrip())
    with browser() as chromium:
        light, dark, width = chromium.open(path, width=360).faults()
    assert light.startswith("light: ")
    assert all(each in light for each in ("color-contrast", "in light", '"label"'))
    assert "in dark" not in light
    assert dark.startswith("dark: ")
    assert all(each in dark for each in ("color-contrast", "in dark"))
    assert "in light" not in dark
    assert width == "wider than the window"
