"""People without a common identifier, and what another organisation writes of them."""

from collections.abc import Callable

import numpy as np
import pandas as pd

FORENAMES = (
    "Anna", "Björn", "Carmen", "David", "Elena", "François", "Greta", "Hugo", "Ingrid", "Jakub", "Katharina",
    "Luis", "Marta", "Nikolaj", "Olga", "Pietro", "Quentin", "Rosa", "Stefan", "Teresa", "Ulrich", "Vera",
    "Wim", "Xavier", "Yvonne", "Zoë",
)  # fmt: skip
SURNAMES = (
    "Abendroth", "Bianchi", "Castellanos", "Dubois", "Eriksson", "Fernández", "Gruber", "Hoffmann", "Ivanova",
    "Jørgensen", "Kowalczyk", "Lindström", "Moreau", "Novák", "O'Sullivan", "Papadopoulos", "Quispe", "Rossi",
    "Schneider", "Tkachenko", "Usher", "Van der Berg", "Weiß", "Xiong", "Yilmaz", "Zimmermann",
)  # fmt: skip
COLUMNS = ("forename", "surname", "born", "postcode")


def population(n: int, seed: int) -> pd.DataFrame:
    """Return people with names, dates of birth and postcodes, numbered in the column `truth`."""
    draw = np.random.default_rng(seed)
    days = pd.to_timedelta(draw.integers(0, 30_000, n), unit="D")
    return pd.DataFrame(
        {
            "forename": draw.choice(FORENAMES, n),
            "surname": draw.choice(SURNAMES, n),
            "born": (pd.Timestamp(1930, 1, 1) + days).strftime("%Y-%m-%d"),
            "postcode": [f"{code:05d}" for code in draw.integers(10_000, 99_999, n)],
            "truth": np.arange(n),
        }
    )


def misspelt(people: pd.DataFrame, seed: int, share: float = 0.4) -> pd.DataFrame:
    """Return the same people as another organisation writes them: `share` of them have one mistake.

    Every mistake leaves a way to recognise the person: a sound, an initial, another order, or other columns.
    """
    draw = np.random.default_rng(seed)
    written = people.copy()
    for row in np.flatnonzero(draw.random(len(people)) < share).tolist():
        column, change = MISTAKES[draw.integers(len(MISTAKES))]
        if column == "names":
            written.loc[row, ["forename", "surname"]] = people.loc[row, ["surname", "forename"]].to_numpy()
        else:
            written.loc[row, column] = change(str(people.loc[row, column]))
    return written


MISTAKES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("surname", lambda name: name[:2] + name[3:]),
    ("surname", str.upper),
    ("forename", lambda name: name[0] + "."),
    ("forename", lambda name: name[0] + name[0].lower() + name[1:]),
    ("born", lambda day: f"{day[:4]}-{day[8:]}-{day[5:7]}" if day[8:] <= "12" else day),
    ("postcode", lambda code: code[:3] + code[4] + code[3]),
    ("names", str),
)
"""A column, and how its value is written wrongly."""
