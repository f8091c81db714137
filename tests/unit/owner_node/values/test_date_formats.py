"""Formats of dates: each is one day, or is refused where the configuration is read."""

import string
from datetime import date, datetime

import pyarrow as pa
import pytest

from owner_node.values.date_formats import check_format, is_without_century
from owner_node.values.dates import days

EPOCH = date(1970, 1, 1).toordinal()
DAY = date(2024, 2, 29)
ACCEPTED = {
    "Y": "%Y-%m-%d", "m": "%Y-%m-%d", "d": "%d.%m.%Y", "y": "%d.%m.%y", "b": "%d-%b-%Y", "B": "%d %B %Y",
    "j": "%Y%j", "G": "%G-W%V-%u", "V": "%G-W%V-%u", "u": "%u %d.%m.%Y", "a": "%a %d.%m.%Y",
    "A": "%A, %d %B %Y", "w": "%w %d.%m.%Y", "H": "%Y-%m-%d %H:%M:%S", "M": "%Y-%m-%d %H:%M",
    "S": "%Y-%m-%d %H:%M:%S", "f": "%Y-%m-%d %H:%M:%S.%f", "I": "%m/%d/%Y %I:%M %p", "p": "%m/%d/%Y %I:%M %p",
    "z": "%Y-%m-%dT%H:%M:%S%z", "Z": "%Y-%m-%d %H:%M:%S %Z", "%": "%d%%%m%%%Y",
}  # fmt: skip
"""A format by the directive that it shows."""


@pytest.mark.parametrize("directive", sorted({*string.ascii_letters, *"%-#+:1 "}))
def test_every_directive(directive):
    """A directive is read as `strptime` reads it, or its formats are refused with a hint."""
    if directive not in ACCEPTED:
        with pytest.raises(ValueError, match=f"^%{directive.replace('+', '[+]')} is not supported; "):
            check_format(f"%Y-%m-%d %{directive}")
        return
    date_format = check_format(ACCEPTED[directive])
    assert f"%{directive}" in date_format
    moment = datetime.fromisoformat(f"{DAY}T00:00:00+00:00")
    values, known = days(pa.array([moment.strftime(date_format)]), date_format, DAY.toordinal() - EPOCH - 900)
    assert known.tolist() == [True]
    assert values.tolist() == [DAY.toordinal() - EPOCH]


@pytest.mark.parametrize(
    ("date_format", "problem"),
    [
        ("", "lacks year (%Y), month (%m), day (%d)"),
        ("a", "lacks year (%Y), month (%m), day (%d)"),
        ("%d.%m", "lacks year (%Y)"),
        ("%H:%M", "lacks year (%Y), month (%m), day (%d)"),
        ("%Y-%m", "lacks day (%d)"),
        ("%Y", "lacks month (%m), day (%d)"),
        ("%b %d", "lacks year (%Y)"),
        ("%a %H", "lacks year (%Y), month (%m), day (%d)"),
        ("%G-%V", "lacks weekday (%u)"),
        ("%V-%u", "lacks ISO year (%G)"),
        ("%j", "lacks year (%Y)"),
        ("%Y-%m-%d %d", "reads the day more than once (%d, %d)"),
        ("%Y-%m-%b-%d", "reads the month more than once (%m, %b)"),
        ("%Y %y-%m-%d", "reads the year more than once (%Y, %y)"),
        ("%a %w %Y-%m-%d", "reads the weekday more than once (%a, %w)"),
        ("%Y-%m-%d %H %I", "reads the hour more than once (%H, %I)"),
        ("%Y-%m-%d %j", "reads day of the year beside year, month and day"),
        ("%Y-%m-%d %G", "reads ISO year beside year, month and day"),
        ("%G-%V-%u %m", "reads month beside ISO year, ISO week and weekday"),
        ("%y%j", "write the year in full (%Y)"),
        ("%Y-%m-%d %I", "%I and %p belong together"),
        ("%Y-%m-%d %H %p", "%I and %p belong together"),
        ("%Y-%m-%d %", "% is not supported"),
        ("%Y-%U-%w", "%U is not supported; write ISO weeks"),
        ("%F", "%F is not supported; write %Y-%m-%d"),
        ("%-d.%m.%Y", "%- is not supported; %d and %m read"),
        ("%c", "%c is not supported; write the parts"),
        ("%D.%M.%Y", "%D is not supported; write %d for the day, or %m/%d/%y; %M reads minutes, of no hour"),
        ("%e-%U-%e", "%e is not supported; write %d, which reads one digit, too; %U is not supported"),
    ],
)
def test_formats_that_determine_no_day_or_two(date_format, problem):
    """Nothing is filled from the year 1900, and no part contradicts another."""
    with pytest.raises(ValueError) as caught:
        check_format(date_format)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("date_format", "text"),
    [
        ("%Y-%j", "2023-366"),
        ("%Y-%j", "2023-000"),
        ("%G-W%V-%u", "2023-W53-1"),
        ("%a %d.%m.%Y", "Mon 29.02.2024"),
        ("%u %d.%m.%Y", "1 29.02.2024"),
        ("%Y-%m-%d %H:%M", "2024-02-29 00:01"),
        ("%m/%d/%Y %I:%M %p", "02/29/2024 12:00 PM"),
        ("%d.%m.%y", "29.02.23"),
    ],
)
def test_texts_that_are_no_day(date_format, text):
    """Days that a year lacks, weekdays that a date does not have, and times of day."""
    values, known = days(pa.array([text]), check_format(date_format), 0)
    assert (values.tolist(), known.tolist()) == ([0], [False])


@pytest.mark.parametrize(
    ("first", "text", "expected"),
    [
        ("1920-01-01", "01.01.20", "1920-01-01"),
        ("1920-01-01", "31.12.19", "2019-12-31"),
        ("1920-06-15", "14.06.20", "2020-06-14"),
        ("1920-06-15", "15.06.20", "1920-06-15"),
        ("2001-01-01", "01.01.70", "2070-01-01"),
        ("1850-01-01", "01.01.01", "1901-01-01"),
        ("1890-01-01", "29.02.00", "2000-02-29"),
        ("1890-01-01", "28.02.00", "1900-02-28"),
        ("1904-02-29", "29.02.04", "1904-02-29"),
        ("1904-03-01", "29.02.04", "2004-02-29"),
    ],
)
@pytest.mark.parametrize("date_format", ["%d.%m.%y", "%d-%b-%y"])
def test_the_domain_determines_the_century(first, text, expected, date_format):
    """Two digits are the year of the 100 years from the beginning of the domain, not that of the library."""
    assert is_without_century(date_format)
    if "%b" in date_format:
        number, month, year = text.split(".")
        text = f"{number}-{date(2000, int(month), 1):%b}-{year}"
    values, known = days(pa.array([text]), date_format, date.fromisoformat(first).toordinal() - EPOCH)
    assert known.tolist() == [True]
    assert date.fromordinal(values[0] + EPOCH).isoformat() == expected
    assert not days(pa.array([text]), date_format)[1].any()
