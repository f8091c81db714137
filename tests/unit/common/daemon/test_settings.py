import re
import tomllib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from common.daemon.settings import Duration, ListenAddress, Name, is_loopback, parse_address
from common.errors import ConfigurationError, ExitCode
from common.settings import FilePath, Listed, Section, locate, read, validate, value_text
from owner_node.config.key_types import Date, DialAddress, Epsilon

DURATION = TypeAdapter(Duration)
EPSILON = TypeAdapter(Epsilon)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Inner(Section):
    name: Annotated[str, Field(min_length=1)]
    size: Annotated[int, Field(ge=3)] = 3
    source: FilePath | None = None
    by_name: dict[str, "Inner"] = field(default_factory=dict)


@dataclass(frozen=True)
class File(Section):
    budget: Annotated[Epsilon, Field(description="a budget such as 2.0")]
    folder: FilePath | None = None
    wait: Duration = timedelta(seconds=5)
    exact: bool = False
    parts: Annotated[Listed[Inner], Field(alias="part")] = ()


def _written(folder: Path, text: str, name: str = "file.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _refused(path: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        validate(File, read(path), path)
    return caught.value


@given(st.integers(1, 999), st.sampled_from(sorted(UNITS)))
def test_durations_are_a_number_and_its_unit(number, unit):
    """A deadline is exactly as long as it says."""
    assert DURATION.validate_python(f"{number}{unit}") == timedelta(seconds=number * UNITS[unit])


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.from_regex(r"[0-9]+[a-zA-Z]+")))
def test_nothing_else_is_a_duration(value):
    """No text without a unit, fraction or number passes for a deadline."""
    assume(not (isinstance(value, str) and re.fullmatch(r"[0-9]+[smhd]", value, re.ASCII)))
    with pytest.raises(ValidationError):
        DURATION.validate_python(value)


@pytest.mark.parametrize("text", ["0s", "9999d", "1.5h", "-1s", "1 h", "\uff11s", "60"])
def test_durations_that_end_at_once_or_never_are_refused(text):
    """A deadline of nothing would cancel every release; one of centuries is a slip of the pen."""
    with pytest.raises(ValidationError):
        DURATION.validate_python(text)


@given(st.decimals("0.000000000001", 1000, places=12))
def test_an_epsilon_is_read_exactly_however_it_is_written(value):
    """A budget written as text, as a TOML number or as a decimal is the same decimal, to its last digit."""
    from_toml = tomllib.loads(f"e = {value:f}", parse_float=Decimal)["e"]
    assert {EPSILON.validate_python(each) for each in (value, format(value, "f"), from_toml)} == {value}


@pytest.mark.parametrize(
    "value", [0.5, True, None, "", "a", "0", "-1", "NaN", "Infinity", "1e9", "1e-13", [], {}]
)
def test_an_epsilon_is_never_a_binary_float_nor_empty_nor_absurd(value):
    """A budget that is not exact, not positive or not finite never enters the ledger."""
    with pytest.raises(ValidationError):
        EPSILON.validate_python(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20))
def test_decimals_of_a_file_keep_every_digit(value):
    """TOML numbers do not pass through binary floats."""
    text = format(value, "f")
    text = text if "." in text else text + ".0"
    assert format(tomllib.loads(f"x = {text}", parse_float=Decimal)["x"], "f") == text


@pytest.mark.parametrize(
    ("kind", "accepted", "wrong"),
    [
        (Name, ["a", "north-1", "a.b_c"], ["", "A", "-a", "a b", "a/b", "ä", 3, "x" * 65]),
        (
            ListenAddress,
            ["0.0.0.0:8443", "[::1]:0", "host.example:1", "10.1.example:1", "node-1:1", "0xfog:1"],
            [
                "host",
                ":1",
                "h:99999",
                "h:x",
                8443,
                "[127.0.0.1]:1",
                "[::x]:1",
                "[:::1]:1",
                "[1]:1",
                "1.2.3:1",
                "1.2.3.400:1",
                "127.0.0.01:1",
                "0x7f.1:1",
                "0X7F000001:1",
                "a.1:1",
                "127.1.:1",
                "..:1",
                "[::1:1",
                "::1:1",
            ],
        ),
        (DialAddress, ["host:8443"], ["host:0", "http://host:8443", "host:00"]),
        (Date, ["2026-12-31"], ["2026-02-30", "", 20260101, datetime(2026, 1, 1)]),  # noqa: DTZ001
    ],
)
def test_names_addresses_and_dates(kind, accepted, wrong):
    """What goes into certificates, sockets and calendars has the one accepted form."""
    adapter = TypeAdapter(kind)
    for value in accepted:
        assert str(adapter.validate_python(value)) == value
    for value in wrong:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    """Nobody has to guess which places are searched."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        locate(None, "owner.toml")
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(tmp_path / "owner.toml") in caught.value.message
    assert "/etc/tessera/owner.toml" in caught.value.message
    with pytest.raises(ConfigurationError, match="elsewhere"):
        locate(tmp_path / "elsewhere.toml", "owner.toml")


def test_the_named_file_wins_over_the_one_in_the_working_directory(tmp_path, monkeypatch):
    """`--config` means that file and no other."""
    monkeypatch.chdir(tmp_path)
    here, other = _written(tmp_path, "", "owner.toml"), _written(tmp_path, "", "other.toml")
    assert (locate(None, "owner.toml"), locate(other, "owner.toml")) == (here, other)


@pytest.mark.parametrize("content", [b"a = ", b"a = 1\na = 2", b"\xff", b"a = [" * 5000, b"[a]\n[a]"])
def test_what_is_not_toml_is_one_clear_error(tmp_path, content):
    """A damaged file ends in an error that names the file, never in a traceback."""
    path = tmp_path / "file.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"file\.toml"):
        read(path)


def test_an_unreadable_file_is_one_clear_error(tmp_path):
    """A folder in place of the file is the configuration's fault and is said to be."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(tmp_path)


def test_all_problems_are_reported_at_once_with_key_value_and_what_is_accepted(tmp_path):
    """A person corrects a file once, not problem by problem."""
    path = _written(
        tmp_path,
        'budgt = 1\nwait = "soon"\n[[part]]\nname = "first"\nsize = 2\n[[part]]\nsise = 4\n'
        '[part.by_name.x]\nname = "y"\nsize = "4"\n',
    )
    assert list(_refused(path).problems) == [
        "budget: missing; a budget such as 2.0",
        'wait = "soon": expected a duration such as "60s", "5m", "2h" or "7d"',
        "part[first].size = 2: expected at least 3",
        "part[2].name: missing",
        'part[2].by_name.x.size = "4": expected a whole number',
        "part[2].sise: unknown key; did you mean 'size'?",
        "budgt: unknown key; did you mean 'budget'?",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("exact = 1", "exact = 1: expected true or false"),
        ('exact = "true"', 'exact = "true": expected true or false'),
        ('part = [{ name = "x", size = 3.0 }]', "part[x].size = 3.0: expected a whole number"),
        ('part = [{ name = "x", size = true }]', "part[x].size = true: expected a whole number"),
        ("part = [{ name = 3 }]", "part[1].name = 3: expected a text in quotes"),
        ('part = [{ name = "" }]', 'part[1].name = "": expected a text that is not empty'),
        ("part = { name = 3 }", "part = a table: expected a list, [...]"),
        ("part = [3]", "part[1] = 3: expected a table"),
        ('part = [{ name = "x", by_name = [] }]', "part[x].by_name = an empty list: expected a table"),
        ("parts = []", "parts: unknown key; did you mean 'part'?"),
    ],
)
def test_values_have_exactly_the_type_that_is_declared(tmp_path, line, problem):
    """Nothing is converted quietly, and the name of a field is no second spelling of its key."""
    assert _refused(_written(tmp_path, f"budget = 1\n{line}\n")).problems == (problem,)


def test_an_unknown_key_that_resembles_nothing_lists_what_is_known(tmp_path):
    """Whoever invents a key learns which ones there are."""
    error = _refused(_written(tmp_path, "budget = 1\nqqq = 1\n"))
    assert error.problems == ("qqq: unknown key; known: budget, folder, wait, exact, part",)


def test_secrets_and_addresses_of_databases_are_not_shown(tmp_path):
    """A password in a configuration does not end up in a terminal or a log."""
    path = _written(tmp_path, 'budget = "postgresql://me:hunter2@host/db"\nwait = "password=hunter2"\n')
    error = _refused(path)
    assert len(error.problems) == 2
    assert "hunter2" not in error.message + str(error.details)
    assert value_text("db_password", "hunter2") == "(not shown)"


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path, monkeypatch):
    """A daemon finds its files wherever it is started from."""
    monkeypatch.chdir("/")
    path = _written(tmp_path, 'budget = 1\nfolder = "a/../b"\n[[part]]\nname = "x"\nsource = "c.csv"\n')
    file = validate(File, read(path), path)
    assert (file.folder, file.parts[0].source) == (tmp_path / "b", tmp_path / "c.csv")


def test_a_home_directory_is_not_guessed(tmp_path):
    """A daemon under another user does not silently use another folder."""
    assert "not expanded" in _refused(_written(tmp_path, 'budget = 1\nfolder = "~/x"\n')).problems[0]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("[0:0:0:0:0:0:0:1]:8443", "[::1]:8443"),
        ("[::0001]:8443", "[::1]:8443"),
        ("[2001:DB8::0]:8443", "[2001:db8::]:8443"),
        ("[::ffff:127.0.0.1]:8443", f"[{IPv6Address('::ffff:127.0.0.1')}]:8443"),
        ("127.0.0.1:08443", "127.0.0.1:8443"),
        ("Host.example:8443", "Host.example:8443"),
        ("0.0.0.0:0", "0.0.0.0:0"),
    ],
)
def test_addresses_have_one_form(written, read):
    """Pages, certificates and loopback checks compare addresses as texts."""
    assert parse_address(written) == read
    assert is_loopback(written) == is_loopback(read)
