"""Match keys: values that stay the same when a name, a date or a postcode is written a little differently.

A pass of `[[dataset.match]]` lists keys such as "surname:soundex": a column, or several joined by "+", and
the building block that makes its key. Two persons match in a pass if all its keys are equal. The meaning of
a building block never changes under `common.model.schema.MATCH_VERSION`. Nothing here quotes a value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.errors import did_you_mean
from owner_node.values.normal_forms import ISO_DATE, parse_dates

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_BLOCK = "fold"
"""The building block of a key that names none."""
_SEVERAL = "+"
_FIRST = re.compile(r"first-([1-9][0-9]?)")
_NOT_ASCII_WORDS = "[^A-Z0-9]+"


@dataclass(frozen=True, slots=True)
class MatchKey:
    """One key of a pass."""

    columns: tuple[str, ...]
    """The columns whose texts it is made from, joined by blanks."""
    block: str = DEFAULT_BLOCK
    """Name of its building block."""

    def __str__(self) -> str:
        return f"{_SEVERAL.join(self.columns)}:{self.block}"


def parse_key(text: str) -> MatchKey:
    """Parse a key as it is written in a configuration.

    Raises:
        ValueError: If it names no column or an unknown building block.
    """
    named, colon, block = text.rpartition(":")
    if not colon:
        named, block = text, DEFAULT_BLOCK
    columns = tuple(named.split(_SEVERAL))
    if not all(columns) or any(column != column.strip() for column in columns):
        raise ValueError('expected a column, or "column:block"; for example "surname:soundex"')
    if block not in BLOCKS and not _FIRST.fullmatch(block):
        known = [*BLOCKS, "first-3"]
        raise ValueError(did_you_mean(block, known) or f"building blocks are {', '.join(known)}")
    return MatchKey(columns, block)


class KeyColumns:
    """Makes the keys of the passes of one data set; what several passes share is computed once.

    Args:
        columns: Text columns by name, each of shape (n_records,); null or blank means missing.
        date_format: Format of this source's dates, as in `strptime`.
    """

    def __init__(self, columns: Mapping[str, "pa.Array"], date_format: str = ISO_DATE) -> None:
        self._columns, self._date_format = columns, date_format
        self._encoded: dict[tuple[str, ...], Any] = {}
        self._made: dict[MatchKey, pa.Array] = {}

    def key(self, key: MatchKey) -> "pa.Array":
        """Return a key of all records, each with its length in front so that keys can be concatenated.

        Returns:
            Large binary array, shape (n_records,): the number of bytes as eight big-endian bytes, then
            UTF-8; null where the value is missing or the building block makes nothing of it.
        """
        if key not in self._made:
            encoded = self._of_columns(key.columns)
            made = prefix_lengths(make_block(key.block, encoded.dictionary, self._date_format))
            self._made[key] = made.take(encoded.indices)
        return self._made[key]

    def _of_columns(self, columns: tuple[str, ...]) -> Any:
        """Return the joined columns, dictionary-encoded, so that building blocks see every text once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if columns not in self._encoded:
            nothing = pa.scalar(None, pa.large_string())
            texts = [self._columns[name].cast(pa.large_string()) for name in columns]
            texts = [pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), nothing, text) for text in texts]
            joined = texts[0]
            if len(texts) > 1:
                joined = pc.binary_join_element_wise(*texts, pa.scalar(" ", pa.large_string()))
            self._encoded[columns] = joined.dictionary_encode()
        return self._encoded[columns]


class NumberedPersons(KeyColumns):
    """Keys of simulated persons: the number of the person, whatever the columns and the building block."""

    def __init__(self, first: int, n_records: int) -> None:
        super().__init__({})
        self._numbers = range(first, first + n_records)

    def key(self, key: MatchKey) -> "pa.Array":
        """Return the numbers of the persons, shape (n_records,)."""
        import pyarrow as pa

        return prefix_lengths(pa.array(map(str, self._numbers), pa.large_string()))


def make_block(block: str, texts: "pa.Array", date_format: str = ISO_DATE) -> "pa.Array":
    """Apply a building block.

    Args:
        texts: Large strings, shape (n_texts,); best without repetitions.
        date_format: Format of dates, as in `strptime`.

    Returns:
        Large strings, shape (n_texts,); null where nothing is made of a text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if block in DATES:
        made = DATES[block](_iso_dates(texts, date_format))
    elif match := _FIRST.fullmatch(block):
        made = pc.utf8_slice_codeunits(_compact(texts), 0, int(match[1]))
    else:
        made = BLOCKS[block](texts)
    made = made.cast(pa.large_string())
    return pc.if_else(pc.equal(made, ""), pa.scalar(None, made.type), made)


def prefix_lengths(texts: "pa.Array") -> "pa.Array":
    """Return the texts, `(n_texts,)`, each after its number of bytes as eight big-endian bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = texts.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(">u8")
    prefixes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(lengths.itemsize), len(values), [None, pa.py_buffer(lengths.tobytes())]
    ).cast(pa.large_binary())
    return join_keys([prefixes, values])


def join_keys(keys: Sequence["pa.Array"]) -> "pa.Array":
    """Concatenate the keys of every record; null if one of them is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    separator = pa.scalar(b"", pa.large_binary())
    return keys[0] if len(keys) == 1 else pc.binary_join_element_wise(*keys, separator)


# --- building blocks ---------------------------------------------------------------------------------------


def _exact(texts: Any) -> Any:
    """The text as it is written, in Unicode NFKC, without white space at its ends."""
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(pc.utf8_normalize(texts, form="NFKC"))


def _upper(texts: Any) -> Any:
    """The same in upper case, with single blanks."""
    import pyarrow.compute as pc

    return pc.utf8_upper(pc.replace_substring_regex(_exact(texts), r"\s+", " "))


def _fold(texts: Any) -> Any:
    """Latin letters and digits in upper case, transliterated; all else is blanks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = _exact(texts)
    is_other = pc.fill_null(pc.invert(pc.string_is_ascii(plain)), False)
    if pc.any(is_other).as_py():
        from anyascii import anyascii

        others = pc.filter(plain, is_other)
        plain = pc.replace_with_mask(plain, is_other, pa.array(map(anyascii, others.to_pylist()), plain.type))
    # An apostrophe joins: O'Neil and ONeil are one name, and one word.
    joined = pc.replace_substring_regex(pc.ascii_upper(plain), "['`]", "")
    words = pc.replace_substring_regex(joined, _NOT_ASCII_WORDS, " ")
    return pc.utf8_trim_whitespace(words)


def _compact(texts: Any) -> Any:
    """The folded text without blanks."""
    import pyarrow.compute as pc

    return pc.replace_substring(_fold(texts), " ", "")


def _initial(texts: Any) -> Any:
    """The first letter or digit of the folded text."""
    import pyarrow.compute as pc

    return pc.utf8_slice_codeunits(_compact(texts), 0, 1)


def _sorted_words(texts: Any) -> Any:
    """The words of the folded text in alphabetical order."""
    import pyarrow as pa

    words = _fold(texts).to_pylist()
    return pa.array((None if text is None else " ".join(sorted(text.split())) for text in words), texts.type)


def _phonetic(name: str) -> Callable[[Any], Any]:
    def code(texts: Any) -> Any:
        import jellyfish
        import pyarrow as pa
        import pyarrow.compute as pc

        # Many texts have the same letters; these libraries take one word at a time.
        letters = pc.replace_substring_regex(_fold(texts), "[^A-Z]", "").dictionary_encode()
        function = getattr(jellyfish, name)
        codes = pa.array(map(function, letters.dictionary.to_pylist()), pa.large_string())
        return codes.take(letters.indices)

    return code


def _district(texts: Any) -> Any:
    """The postcode without its last three characters; of digits alone, without the last two."""
    import pyarrow.compute as pc

    compact = _compact(texts)
    shorter = pc.if_else(
        pc.match_substring_regex(compact, "[A-Z]"),
        pc.replace_substring_regex(compact, "^(.{2,}).{3}$", r"\1"),
        pc.replace_substring_regex(compact, "^(.{2,}).{2}$", r"\1"),
    )
    return pc.if_else(pc.equal(shorter, compact), "", shorter)


def _digits(texts: Any) -> Any:
    """The digits alone; nothing if all of them are zero."""
    import pyarrow.compute as pc

    digits = pc.replace_substring_regex(_exact(texts), "[^0-9]", "")
    return pc.if_else(pc.match_substring_regex(digits, "[1-9]"), digits, "")


_MOST_DIGITS = 40


def _with_check_digit(is_valid: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a building block of digits whose check digit is right; numbers with another make no key.

    Args:
        is_valid: Takes digits, shape (n_texts, n_digits), aligned at the right with zeros before them.
    """

    def digits_with_check(texts: Any) -> Any:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        digits = pc.fill_null(_digits(texts), "")
        digits = pc.if_else(pc.greater(pc.binary_length(digits), _MOST_DIGITS), "", digits)
        aligned = pc.utf8_lpad(digits, _MOST_DIGITS, "0").to_numpy(zero_copy_only=False)
        matrix = aligned.astype(f"S{_MOST_DIGITS}").view(np.uint8).reshape(len(digits), _MOST_DIGITS)
        return pc.if_else(pa.array(is_valid(matrix.astype(np.int64) - ord("0"))), digits, "")

    return digits_with_check


def _luhn(digits: Any) -> Any:
    """ISO/IEC 7812: every second digit from the right is doubled, and its digits are added."""
    doubled = digits[:, -2::-2] * 2
    return (digits[:, ::-2].sum(axis=1) + (doubled // 10 + doubled % 10).sum(axis=1)) % 10 == 0


def _mod11(digits: Any) -> Any:
    """Weights 1, 2, 3, … from the right, modulo 11, as in NHS numbers."""
    import numpy as np

    return (digits * np.arange(digits.shape[1], 0, -1)).sum(axis=1) % 11 == 0


def _mod97(digits: Any) -> Any:
    """ISO/IEC 7064, MOD 97-10: the whole number leaves 1."""
    import numpy as np

    rest = np.zeros(len(digits), dtype=np.int64)
    for place in range(digits.shape[1]):
        rest = (rest * 10 + digits[:, place]) % 97
    return rest == 1


def _iso_dates(texts: Any, date_format: str) -> Any:
    """Return dates as YYYY-MM-DD, null for every text that is no date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written, is_date = parse_dates(_exact(texts), date_format)
    return pc.if_else(is_date, written, pa.scalar(None, texts.type))


def _cut(dates: Any, length: int) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_slice_codeunits(dates, 0, length)


def _any_order(dates: Any) -> Any:
    """The same key for a date and for the one with day and month exchanged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    year, month, day = (pc.utf8_slice_codeunits(dates, *ends) for ends in ((0, 4), (5, 7), (8, 10)))
    ordered = pc.less_equal(month, day)
    low, high = pc.if_else(ordered, month, day), pc.if_else(ordered, day, month)
    return pc.binary_join_element_wise(year, low, high, pa.scalar("-", pa.large_string()))


BLOCKS: Mapping[str, Callable[[Any], Any]] = {
    "exact": _exact,
    "upper": _upper,
    "fold": _fold,
    "sorted": _sorted_words,
    "soundex": _phonetic("soundex"),
    "metaphone": _phonetic("metaphone"),
    "nysiis": _phonetic("nysiis"),
    "initial": _initial,
    "district": _district,
    "digits": _digits,
    "digits-luhn": _with_check_digit(_luhn),
    "digits-mod11": _with_check_digit(_mod11),
    "digits-mod97": _with_check_digit(_mod97),
    # Dates are parsed first: see `DATES`.
    "date": lambda dates: dates,
    "year-month": lambda dates: _cut(dates, 7),
    "year": lambda dates: _cut(dates, 4),
    "date-any-order": _any_order,
}
"""The building blocks by name, beside `first-N`; their meaning is fixed by the version."""
DATES = {name: BLOCKS[name] for name in ("date", "year-month", "year", "date-any-order")}
"""The building blocks that read dates."""


SUGGESTED: Mapping[str, tuple[str, ...]] = {
    "names+birth": ("forename:fold", "surname:fold", "born:date"),
    "sounds+birth": ("forename:soundex", "surname:soundex", "born:date-any-order"),
    "initial+surname+birth": ("forename:initial", "surname:soundex", "born:date"),
    "swapped+birth": ("forename+surname:sorted", "born:date-any-order"),
    "forename+birth+district": ("forename:soundex", "born:date", "postcode:district"),
    "surname+birth+district": ("surname:soundex", "born:date", "postcode:district"),
    "sounds+postcode": ("forename:soundex", "surname:soundex", "postcode:fold"),
    "sounds+month+district": (
        "forename:soundex",
        "surname:soundex",
        "born:year-month",
        "postcode:district",
    ),
    "prefixes+birth": ("forename:first-3", "surname:first-3", "born:date-any-order"),
    "swapped+postcode": ("forename+surname:sorted", "postcode:fold"),
    "prefixes+postcode": ("forename:first-3", "surname:first-3", "postcode:fold"),
    "birth+postcode": ("born:date", "postcode:fold"),
}
"""Passes for people, the most reliable first; a national id goes before them where there is one."""
