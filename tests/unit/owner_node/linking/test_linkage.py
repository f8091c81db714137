"""Normalisation and linkage tokens against the naive definition, one record at a time."""

import hmac
import unicodedata
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest

from common.errors import ConfigurationError, DataError
from common.model.schema import NORMALISATION_VERSION
from owner_node.linking.tokens import ReleaseKey, key_check, release_key, tokens
from owner_node.values.normal_forms import STEPS, NormalForm, missing, normalise

KEY = bytes(range(32))


def _normal(values: list[str | None], *steps: str) -> list[str | None]:
    [column] = normalise([pa.array(values, pa.string())], [NormalForm(steps)])
    return column.to_pylist()


def _naive_token(key: bytes, *parts: str) -> bytes:
    message = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hmac.new(key, message, "sha256").digest()[:16]


def test_release_key_is_hkdf() -> None:
    """The release key is RFC 5869's HKDF-SHA256 with the release as salt and the plan's digest as info."""
    digest = sha256(b"plan").hexdigest()
    extracted = hmac.new(b"release-1", KEY, "sha256").digest()
    expanded = hmac.new(extracted, bytes.fromhex(digest) + b"\x01", "sha256").digest()
    assert release_key(KEY, "release-1", digest) == expanded


def test_release_keys_differ() -> None:
    """Tokens of two releases, two plans or two linkage keys cannot be matched."""
    one, other = sha256(b"1").hexdigest(), sha256(b"2").hexdigest()
    keys = {
        release_key(key, release, digest)
        for key in (KEY, KEY[::-1])
        for release in ("a", "b")
        for digest in (one, other)
    }
    assert len(keys) == len({key_check(key) for key in keys}) == 8


def test_a_proof_is_hmac_under_a_key_of_its_own() -> None:
    """HKDF-SHA256 of the release key without a salt, and HMAC-SHA256 of what is proved."""
    extracted = hmac.new(bytes(32), KEY, "sha256").digest()
    key = hmac.new(extracted, b'{"purpose":"proof of the linkage key"}\x01', "sha256").digest()
    fingerprint, sum_key = "ab" * 32, "cd" * 32
    about = f'{{"fingerprint":"{fingerprint}","owner":"a","sum_key":"{sum_key}"}}'.encode()
    found = ReleaseKey(KEY, 1).proof("a", fingerprint, bytes.fromhex(sum_key))
    expected = hmac.new(key, about, "sha256").hexdigest()
    assert (found.owner, found.fingerprint, found.sum_key) == ("a", fingerprint, sum_key)
    assert found.proof == expected


def test_tokens_are_the_naive_ones() -> None:
    """Vectorised messages are those of the definition, over several columns and any Unicode."""
    columns = [pa.array(["a", "Ünal", "x", "名前"]), pa.array(["1", "22", "333", "y"])]
    found = tokens(columns, KEY)
    expected = [_naive_token(KEY, a, b) for a, b in zip(*(c.to_pylist() for c in columns), strict=True)]
    assert found.shape == (4, 16)
    assert found.dtype == np.uint8
    assert [bytes(token) for token in found] == expected


def test_columns_do_not_run_together() -> None:
    """("ab", "c") and ("a", "bc") are two persons."""
    one, other = tokens([pa.array(["ab", "a"]), pa.array(["c", "bc"])], KEY)
    assert bytes(one) != bytes(other)


def test_no_records() -> None:
    """An empty table has no tokens."""
    assert tokens([pa.array([], pa.string())], KEY).shape == (0, 16)


def test_missing_identifiers_are_counted() -> None:
    """A record without one of its identifier columns has no token; the error tells how many, not which."""
    trimmed = [NormalForm(("trim",))] * 2
    columns = normalise([pa.array(["a", None, " ", "d"]), pa.array(["1", "2", "3", None])], trimmed)
    assert missing(columns).tolist() == [False, True, True, True]
    with pytest.raises(DataError) as caught:
        tokens(columns, KEY)
    assert caught.value.details == {"count": 3}


@pytest.mark.parametrize(
    ("step", "value", "expected"),
    [
        ("nfkc", "\uff11\uff12\ufb01", "12fi"),
        ("nfkc", "e\u0301", "é"),
        ("trim", "\u00a0 a b \t\n", "a b"),
        ("casefold", "Müller-STRASSE", "müller-strasse"),
        ("casefold", "Straße", "strasse"),
        ("digits-only", "12 34-56/X", "123456"),
        ("strip-leading-zeros", "000120", "120"),
        ("strip-leading-zeros", "000", "0"),
        ("date", "20240229", "2024-02-29"),
        ("date", "1899-12-31", "1899-12-31"),
        ("date", "0001-01-01", "0001-01-01"),
        ("date", "9999-12-31", "9999-12-31"),
    ],
)
def test_steps(step: str, value: str, expected: str) -> None:
    """Each step does what its name promises."""
    assert _normal([value, None], step) == [expected, None]


def test_steps_run_in_declared_order() -> None:
    """Full-width digits survive "digits-only" only if "nfkc" comes first."""
    assert _normal(["\uff112"], "nfkc", "digits-only") == ["12"]
    assert _normal(["\uff112"], "digits-only", "nfkc") == ["2"]


def test_what_is_empty_is_missing() -> None:
    """An identifier of which nothing is left identifies nobody."""
    assert _normal(["", "--", "7"], "digits-only") == [None, None, "7"]


@pytest.mark.parametrize(
    "value",
    ["2024-02-30", "2023-02-29", "2024-13-01", "2024-2-9", "24-01-01", "2024-01-31 ", "31.01.2024", "x"],
)
def test_no_date(value: str) -> None:
    """What is no date of the calendar is refused with a count and without being quoted."""
    with pytest.raises(DataError) as caught:
        _normal([value, "2024-01-31", None, ""], "date")
    assert caught.value.details == {"count": 1}
    assert value not in str(caught.value)


def test_unknown_step() -> None:
    """A step that this version does not know is named together with those it knows."""
    with pytest.raises(ConfigurationError, match="'soundex'") as caught:
        _normal(["a"], "soundex")
    assert "casefold" in caught.value.hint


def test_steps_of_version_1() -> None:
    """Another set of names needs another version: owners compare names and version, not what they do."""
    assert NORMALISATION_VERSION == 1
    assert tuple(STEPS) == ("nfkc", "trim", "casefold", "digits-only", "strip-leading-zeros", "date")


def test_columns_of_other_types() -> None:
    """Dictionary-encoded, chunked and number columns give the tokens of their texts."""
    plain = tokens(normalise([pa.array(["7", "8", "7"])], [NormalForm()]), KEY)
    others = [
        pa.array(["7", "8", "7"]).dictionary_encode(),
        pa.chunked_array([["7"], ["8", "7"]]),
        pa.array([7, 8, 7]),
    ]
    for column in others:
        assert np.array_equal(tokens(normalise([column], [NormalForm()]), KEY), plain)


def test_steps_of_one_column() -> None:
    """A name and a birth date are brought into their own forms, and their order counts."""
    forms = [NormalForm(("trim", "casefold")), NormalForm(("trim", "date"), "%d.%m.%Y")]
    there = normalise([pa.array([" Ann", "BOB"]), pa.array(["31.01.1980", " 1.2.1990 "])], forms)
    assert [column.to_pylist() for column in there] == [["ann", "bob"], ["1980-01-31", "1990-02-01"]]
    here = normalise(
        [pa.array(["ann", "bob "]), pa.array(["1980-01-31", "19900201"])],
        [NormalForm(("trim", "casefold")), NormalForm(("trim", "date"))],
    )
    assert np.array_equal(tokens(here, KEY), tokens(there, KEY))
    assert not np.array_equal(tokens(here[::-1], KEY), tokens(there, KEY))


@pytest.mark.parametrize("value", ["1980-01-31", "31.02.1980", "01.31.1980", "x", "31.01.80"])
def test_dates_written_otherwise_than_declared(value: str) -> None:
    """Where one way is declared another is refused, with a count: no 1.2. is taken for a 2.1."""
    with pytest.raises(DataError, match=r"1 of 3 identifiers are no dates written %d\.%m\.%Y") as caught:
        normalise([pa.array([value, "31.01.1980", None])], [NormalForm(("date",), "%d.%m.%Y")])
    assert value not in str(caught.value)


def test_leading_zeros_and_accents() -> None:
    """Zeros before a number, or é in two characters, tell persons apart unless a step says otherwise."""
    pairs = {
        "strip-leading-zeros": ["007", "7"],
        "nfkc": ["Ren\u00e9", "Rene\u0301"],
        "casefold": ["ß", "SS"],
    }
    for step, (one, other) in pairs.items():
        assert _normal([one, other]) == [one, other]
        assert len(set(_normal([one, other], step))) == 1


def test_arrow_and_python_agree_on_unicode() -> None:
    """NFKC is the standard library's, for every character of the two lowest planes both know.

    Owners run different versions; a step that meant something else elsewhere would lose links.
    """
    known = [
        chr(code) for code in range(0x20000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
    ]
    arrow = _normal([f"x{character}" for character in known], "nfkc")
    differing = [
        character
        for character, found in zip(known, arrow, strict=True)
        if found != unicodedata.normalize("NFKC", f"x{character}")
    ]
    assert differing == []
