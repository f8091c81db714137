"""A fragment checked as its bytes arrive, and decoded on the way where it is wanted.

The reader of Arrow is handed one whole message at a time, whose frame has been checked: it never waits, and
nothing is kept but dictionaries and the message that has just arrived.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import IntegrityError, TesseraError
from common.files import read_chunks
from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.task import Assignment
from common.wire.arrow_messages import Messages
from common.wire.encoding import (
    BATCH_RECORDS,
    TOKEN_COLUMN,
    check_schema,
    check_sorted,
    decoded_schema,
    has_tokens,
    size_limit,
    token_array,
    token_view,
)


class FragmentCheck:
    """Checks a fragment piece by piece.

    Args:
        plan: The plan; gives the domains.
        assignment: What its owner masks.
        n_records: How many records the owner stated.
        size: Bytes of the fragment.

    Raises:
        IntegrityError: If no fragment of so many records has this size.
    """

    def __init__(self, plan: Plan, assignment: Assignment, n_records: int, size: int) -> None:
        self._owner = assignment.owner
        self._tokens = has_tokens(plan)
        self._domains = {each.name: _Domain(plan.attribute(each.name)) for each in assignment.attributes}
        self._messages = Messages(n_records, BATCH_RECORDS, len(self._domains))
        self._feed = _Feed()
        self._reader: Any = None
        self._last_token: bytes | None = None
        with self._refusals():
            if not 0 < size <= size_limit(assignment, n_records):
                raise IntegrityError("the size of the fragment does not fit its number of records")

    def update(self, data: bytes | memoryview) -> Iterator[list[pa.Array]]:
        """Check the next bytes; they are checked as far as the batches are asked for.

        Args:
            data: Any number of them; they may change once all batches were asked for.

        Yields:
            The columns of every batch that is whole now, the token first where there is one. They are there
            until the next batch is asked for; only dictionaries may be kept.

        Raises:
            IntegrityError: If the bytes are not exactly such a fragment. Nothing of the data is in the error.
        """
        with self._refusals():
            for message, is_batch in self._messages.update(data):
                # The reader keeps dictionaries.
                self._feed.add(message if is_batch else memoryview(bytes(message)))
                if self._reader is None:
                    self._reader = pa.ipc.open_stream(pa.PythonFile(self._feed, mode="r"))
                    check_schema(self._reader.schema, list(self._domains), tokens=self._tokens)
                elif is_batch:
                    yield self._checked()

    def finish(self) -> None:
        """Check that the fragment is complete.

        Raises:
            IntegrityError: If it is not.
        """
        with self._refusals():
            self._messages.finish()
            if self._feed:
                raise IntegrityError("it has a dictionary that no batch uses")

    def _checked(self) -> list[pa.Array]:
        try:
            batch = self._reader.read_next_batch()
        except StopIteration:
            raise IntegrityError("a dictionary is missing") from None
        batch.validate()
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column in columns.values():
            _validate(column)
        for name, domain in self._domains.items():
            domain.check(columns[name])
        if self._tokens:
            token = columns[TOKEN_COLUMN]
            if token.null_count:
                raise IntegrityError("a token is missing")
            self._last_token = check_sorted(
                token, self._last_token, IntegrityError("the tokens are not sorted, or repeat")
            )
        return list(batch.columns)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say whose fragment cannot be used; Arrow's own words, which can quote values, are left out."""
        try:
            yield
            return
        except TesseraError as error:
            problem = f"used: {error.message}"
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            OverflowError,
            OSError,
            MemoryError,
        ) as e:
            problem = f"read ({type(e).__name__})"
        raise IntegrityError(
            f"the fragment of {self._owner} cannot be {problem}",
            "the owner node must run a compatible version; if it does, its fragment was damaged",
            {"owner": self._owner},
        ) from None


class _Feed:
    """Hands whole messages to Arrow as if they were a file, without copying them."""

    closed = False

    def __init__(self) -> None:
        self._messages: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: memoryview) -> None:
        """Take a message; it must not change until it has been read and is not needed any more."""
        self._messages.append(message.toreadonly())

    def read(self, size: int) -> memoryview:
        """Return the next bytes; nothing if there are no more."""
        if not self._messages or size <= 0:
            return memoryview(b"")
        taken, rest = self._messages[0][:size], self._messages[0][size:]
        if rest:
            self._messages[0] = rest
        else:
            self._messages.popleft()
        return taken

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return the next bytes as Arrow's own."""
        return pa.py_buffer(self.read(size))

    def close(self) -> None:
        """Nothing is open."""


def _validate(column: pa.Array) -> None:
    """Do what `validate(full=True)` does; over indices into a dictionary that takes ten times as long."""
    if not isinstance(column, pa.DictionaryArray):
        column.validate(full=True)
        return
    column.indices.validate(full=True)
    column.dictionary.validate(full=True)
    ends = pc.min_max(column.indices)
    if len(column) > column.null_count and not (
        ends["min"].as_py() >= 0 and ends["max"].as_py() < len(column.dictionary)
    ):
        raise IntegrityError("an index leads outside its dictionary")


class _Domain:
    """Checks an attribute's columns batch by batch; a dictionary that batches share is looked at once.

    Args:
        attribute: Whose values they are.
    """

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._dictionary: pa.Array | None = None

    def check(self, column: pa.Array) -> None:
        """Check that all values are there and within the domain."""
        values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if column.null_count or values.null_count:
            raise IntegrityError(f"attribute {self._attribute.name!r} has missing values")
        if values is not column:
            # It is kept, so that its place is not another's before this comparison.
            if self._dictionary is not None and _place(values) == _place(self._dictionary):
                return
            self._dictionary = values
        if not len(values):
            return
        ends = pc.min_max(values)
        if ends["min"].as_py() < self._attribute.lower or ends["max"].as_py() > self._attribute.upper:
            raise IntegrityError(f"attribute {self._attribute.name!r} has values outside its domain")


def _place(values: pa.Array) -> tuple[int, int, int]:
    return values.buffers()[1].address, values.offset, len(values)


_READ_BYTES = 4 << 20


def decode(path: Path, plan: Plan, assignment: Assignment, n_records: int) -> pa.Table:
    """Read and check a fragment.

    Args:
        path: The file; it must not change meanwhile.
        plan: The plan; gives the domains.
        assignment: What its owner masks.
        n_records: How many records the owner stated.

    Returns:
        int64 columns in plan order, in resolution units, after the column `token` where there is one.

    Raises:
        IntegrityError: If the bytes are not exactly such a fragment. Nothing of the data is in the error.
    """
    schema = decoded_schema([attribute.name for attribute in assignment.attributes], tokens=has_tokens(plan))
    fragment, batches = FragmentCheck(plan, assignment, n_records, path.stat().st_size), []
    for piece in read_chunks(path, chunk_bytes=_READ_BYTES):
        batches += [
            pa.record_batch([_own(column) for column in columns], schema=schema)
            for columns in fragment.update(piece)
        ]
    fragment.finish()
    return pa.Table.from_batches(batches, schema=schema)


def _own(column: pa.Array) -> pa.Array:
    """Return a column as integers, or tokens, in memory of its own."""
    if isinstance(column, pa.FixedSizeBinaryArray):
        return token_array(token_view(column).copy())
    # In numpy's memory: Arrow's pool keeps more than it has been asked for.
    if isinstance(column, pa.DictionaryArray):
        return pa.array(column.dictionary.to_numpy()[column.indices.to_numpy()])
    return pa.array(column.to_numpy().copy())
