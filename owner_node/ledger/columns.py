"""Keyed digests of the columns of a data set, by which a copy of the data is recognised.

Every column has two digests, of its values in record order and in any order, under a key that stays in
owner.db: anyone who reads a ledger learns nothing about the data from them. A number is digested without its
trailing zeros and a category by its label, so that a copy declared with more decimals or with another order
of categories is still recognised. An edited copy is not. Identifiers are digested as texts, since equal ones
are the same persons, unless they are serial numbers, which are equal everywhere.
"""

import hmac
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.model.schema import Attribute
from owner_node.ledger.budget_terms import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 2**15
"""Values that are hashed at a time, so that they stay in the processor's cache."""
_SAMPLE = 4096
"""Values from which the weight of a column is computed."""
_DIGITS = 32
_DIGITS_OF_INT64 = 18
_MOST_ZEROS = 20
"""More trailing zeros than a 64-bit integer has."""
_Values = TypeVar("_Values", bound=Sized)
_Values_co = TypeVar("_Values_co", covariant=True)


def columns_of(
    values: Mapping[str, Int64Array],
    attributes: Sequence[Attribute],
    key: bytes,
    identifiers: Mapping[str, Any] | None = None,
) -> tuple[Column, ...]:
    """Return the digests and weights of columns.

    Args:
        values: Original values in resolution units by attribute, each of shape (n_records,).
        identifiers: Identifiers by column, each an Arrow string array of shape (n_records,).

    Returns:
        One for every column of `values` and of `identifiers`.
    """
    return streamed_columns_of(
        {name: Whole(column) for name, column in values.items()},
        attributes,
        key,
        {name: Whole(texts) for name, texts in (identifiers or {}).items()},
    )


class Chunks(Protocol[_Values_co]):
    """A column that is read some records at a time, as often as needed."""

    def __len__(self) -> int:
        """Return the number of values."""

    def __iter__(self) -> Iterator[_Values_co]:
        """Read the values."""


class Whole(Generic[_Values]):
    """A column in memory: all of its records at a time."""

    def __init__(self, values: _Values) -> None:
        self._values = values

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __iter__(self) -> Iterator[_Values]:
        """Read the values."""
        yield self._values


class _Present:
    """The values of a column that are not missing, as where records without a value are left out."""

    def __init__(self, column: Chunks[Int64Array], upper: int) -> None:
        self._column, self._upper = column, upper

    def __len__(self) -> int:
        return sum(map(len, self))

    def __iter__(self) -> Iterator[Int64Array]:
        return (some[some <= self._upper] for some in self._column)


def streamed_columns_of(
    values: Mapping[str, Chunks[Int64Array]],
    attributes: Sequence[Attribute],
    key: bytes,
    identifiers: Mapping[str, Chunks[Any]],
) -> tuple[Column, ...]:
    """Return the digests and weights of columns that are read some records at a time.

    The arguments are those of `columns_of`.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    columns = []
    for name, whole in values.items():
        attribute = by_name[name]
        column = _Present(whole, attribute.upper) if attribute.keeps_missing else whole
        exponent, plain = _plain(attribute, column, key)
        columns.append(_column(name, exponent, len(column), plain, key))
    for name, chunks in identifiers.items():
        codes = (_codes(texts, key) for texts in chunks)
        columns.append(_column(name, 0, len(chunks), codes, key, _numbers(_first(chunks), key)))
    return tuple(columns)


def _column(
    name: str,
    exponent: int,
    n_values: int,
    plain: Iterable[Int64Array],
    key: bytes,
    sample: Int64Array | None = None,
) -> Column:
    """Return the digests of a column; its first values weigh it where no sample is given."""
    ordered = hmac.new(key, struct.pack("<qq", exponent, n_values), "sha256")
    sums, first = [0, 0], np.zeros(0, dtype=np.int64)
    for some in plain:
        ordered.update(np.ascontiguousarray(some, dtype="<i8").data)
        sums = [
            (total + _hash_sum(some, seed)) % 2**64 for total, seed in zip(sums, _seeds(key), strict=True)
        ]
        if first.size < _SAMPLE:
            first = np.concatenate([first, some[: _SAMPLE - first.size]])
    weighed = first if sample is None else sample
    unordered = hmac.new(key, struct.pack("<qqQQ", exponent, n_values, *sums), "sha256")
    return Column(
        name,
        unordered.hexdigest()[:_DIGITS],
        ordered.hexdigest()[:_DIGITS],
        _changes(np.sort(weighed)),
        _changes(weighed),
    )


def _plain(
    attribute: Attribute, column: Iterable[Int64Array], key: bytes
) -> tuple[int, Iterator[Int64Array]]:
    """Return values in a normal form that depends as little as possible on how they were declared."""
    if attribute.is_categorical:
        written = [hmac.digest(key, label.encode(), "sha256")[:8] for label in attribute.labels]
        codes = np.frombuffer(b"".join(written), dtype="<i8").astype(np.int64)
        return 0, (codes[some] for some in column)
    exponent = min((_trailing_zeros(some * attribute.step) for some in column), default=_MOST_ZEROS)
    if exponent == _MOST_ZEROS:
        exponent = 0
    power = 10**exponent
    return exponent - (attribute.decimals or 0), (some * attribute.step // power for some in column)


def _trailing_zeros(values: Int64Array) -> int:
    """Return how often ten divides all values; the most possible if all are 0."""
    zeros = 0
    if not values.any():
        return _MOST_ZEROS
    while not (values % 10).any():
        values, zeros = values // 10, zeros + 1
    return zeros


def _seeds(key: bytes) -> tuple[int, int]:
    first, second = struct.unpack("<QQ", hmac.digest(key, b"seeds", "sha256")[:16])
    return first, second


def _hash_sum(values: Int64Array, seed: int) -> int:
    """Return the sum of the hashes of all values (modulo 2^64), which does not depend on their order.

    References:
        Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators, figure 14: the hash.
    """
    total = 0
    for start in range(0, len(values), _BLOCK):
        block: NDArray[np.uint64] = values[start : start + _BLOCK].view(np.uint64) + np.uint64(seed)
        _mix(block)
        total += int(block.sum(dtype=np.uint64))
    return total % 2**64


def _mix(block: "NDArray[np.uint64]") -> None:
    """Replace integers by their hashes, in place."""
    block ^= block >> np.uint64(30)
    block *= np.uint64(0xBF58476D1CE4E5B9)
    block ^= block >> np.uint64(27)
    block *= np.uint64(0x94D049BB133111EB)
    block ^= block >> np.uint64(31)


def _codes(texts: Any, key: bytes) -> Int64Array:
    """Return a hash of every text: the sum of the hashes of its bytes with their positions (modulo 2^64)."""
    _, offsets, data = texts.buffers()
    codes = np.zeros(len(texts), dtype=np.int64)
    if data is None or not len(texts):
        return codes
    letters, (seed, _) = np.frombuffer(data, dtype=np.uint8), _seeds(key)
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)
    for start in range(0, len(texts), _BLOCK):
        cuts = ends[start : start + _BLOCK + 1]
        places = np.arange(cuts[0], cuts[-1]) - np.repeat(cuts[:-1], np.diff(cuts))
        mixed = (letters[cuts[0] : cuts[-1]] + 256 * places).astype(np.uint64) + np.uint64(seed)
        _mix(mixed)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        # Differences modulo 2^64 are exact, however often the sums overflowed.
        codes[start : start + _BLOCK] = np.diff(sums[cuts - cuts[0]]).view(np.int64)
    return codes


def _first(texts: Iterable[Any]) -> Any:
    """Return the first values of an identifier column, as many as weigh it."""
    pieces: list[Any] = []
    for some in texts:
        pieces.append(some.slice(0, _SAMPLE - sum(map(len, pieces))))
        if sum(map(len, pieces)) == _SAMPLE:
            break
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())


def _numbers(texts: Any, key: bytes) -> Int64Array:
    """Return the numbers in identifiers, by which they are weighed, so that serial numbers weigh nothing.

    `P-0001`, `P-0002` and so on occur in many data sets, and are no evidence of the same persons.
    """
    digits = pc.replace_substring_regex(texts, r"[^0-9]", "")
    length = pc.binary_length(digits)
    numbered = pc.and_(pc.greater(length, 0), pc.less_equal(length, _DIGITS_OF_INT64))
    numbers = pc.if_else(numbered, digits, "0").cast("int64").to_numpy()
    weighed: Int64Array = np.where(numbered.to_numpy(zero_copy_only=False), numbers, _codes(texts, key))
    return weighed


def _changes(values: Int64Array) -> int:
    """Count the non-zero second differences of a column; constants and serial numbers have none.

    Each of them would have to be equal by chance in a column of other data, so it is about one bit of
    evidence.
    """
    return int(np.count_nonzero(np.diff(values, n=2)))
