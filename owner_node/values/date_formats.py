"""Formats of dates, in the directives of `datetime.strptime`: which of them determine one day.

`strptime` fills what a format leaves out from 1 January 1900. So a format is judged before a date is read.
"""

import re
from collections.abc import Mapping

_PARTS: Mapping[str, str] = {
    "Y": "year", "y": "year", "m": "month", "b": "month", "B": "month", "d": "day", "j": "day of the year",
    "G": "ISO year", "V": "ISO week", "a": "weekday", "A": "weekday", "w": "weekday", "u": "weekday",
    "H": "hour", "I": "hour", "p": "half of the day", "M": "minute", "S": "second", "f": "fraction",
    "z": "time zone", "Z": "time zone",
}  # fmt: skip
"""What each directive reads."""
_OTHERS: Mapping[str, str] = {
    "F": "write %Y-%m-%d", "D": "write %d for the day, or %m/%d/%y",
    "T": "write %H:%M:%S", "R": "write %H:%M", "h": "write %b",
    "e": "write %d, which reads one digit, too", "-": "%d and %m read numbers without a leading zero, too",
    "#": "%d and %m read numbers without a leading zero, too", "c": "write the parts of the date",
    "x": "write the parts of the date", "X": "write the parts of the time", "U": "write ISO weeks: %G %V %u",
    "W": "write ISO weeks: %G %V %u",
}  # fmt: skip
"""Directives of other programs, and those whose meaning is not certain, with what to write instead."""
_DAYS = (
    ("year", "month", "day"),
    ("year", "day of the year"),
    ("ISO year", "ISO week", "weekday"),
)
"""Parts that determine one day."""
_WRITTEN = {
    "year": "%Y", "month": "%m", "day": "%d", "day of the year": "%j", "ISO year": "%G", "ISO week": "%V",
    "weekday": "%u",
}  # fmt: skip
_EXAMPLES = 'for example "%Y-%m-%d" or "%d.%m.%Y"'
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)


def check_format(date_format: str) -> str:
    """Return a format of dates if every text that it reads is exactly one day.

    Raises:
        ValueError: If it is none, with what to write.
    """
    directives = [directive for directive in _DIRECTIVE.findall(date_format) if directive != "%"]
    supported = f"directives are {', '.join(f'%{part}' for part in _PARTS)}"
    unsupported = [directive for directive in directives if directive not in _PARTS]
    wrong = [
        f"%{directive} is not supported; {_OTHERS.get(directive, supported)}" for directive in unsupported
    ]
    if "M" in directives and not {"H", "I"} & set(directives):
        wrong.append("%M reads minutes, of no hour; the month is %m")
    if wrong:
        raise ValueError("; ".join(dict.fromkeys(wrong)))
    read: dict[str, list[str]] = {}
    for directive in directives:
        read.setdefault(_PARTS[directive], []).append(f"%{directive}")
    for part, several in read.items():
        if len(several) > 1:
            raise ValueError(f"it reads the {part} more than once ({', '.join(several)})")
    dated = read.keys() & _WRITTEN.keys()
    wanted = max(_DAYS, key=lambda parts: len(dated & set(parts) - {"weekday"}))
    if missing := [f"{part} ({_WRITTEN[part]})" for part in wanted if part not in dated]:
        raise ValueError(f"it determines no day, since it lacks {', '.join(missing)}; {_EXAMPLES}")
    if beside := sorted(dated - {*wanted, "weekday"}):
        known = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
        raise ValueError(f"it reads {' and '.join(beside)} beside {known}; leave out what is not needed")
    if is_without_century(date_format) and "month" not in dated:
        raise ValueError("two digits of a year (%y) go with month and day; write the year in full (%Y)")
    if ("%I" in read.get("hour", ())) != ("half of the day" in read):
        raise ValueError("%I and %p belong together; hours from 0 to 23 are %H")
    return date_format


def is_without_century(date_format: str) -> bool:
    """Return whether a format reads two digits of the year, so that only a domain determines the century."""
    return "y" in _DIRECTIVE.findall(date_format)
