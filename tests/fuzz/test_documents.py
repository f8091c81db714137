"""Documents from strangers, mutated: each is read, or refused with the error that its reader promises."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggregator.api.answers import read_schema
from common.canonical import canonical
from common.errors import IntegrityError, TesseraError
from common.model.fragment import Addendum, Consent, FragmentStatement, LedgerHead, Receipt
from common.model.plan import Plan
from common.model.schema import IdentifierRules, Schema, fault_of_cell
from common.release.verification import verify_release
from common.trust.bundle import Bundle
from common.trust.enrolment import make_request, new_key, read_request
from common.trust.identity import Party, PartyKind, load_certificates
from common.trust.signing import Domain
from common.wire.decoding import decode
from deploy.development_ca import DevelopmentCa
from tests.fakes.published import Made, make_release
from tests.fakes.releases import ATTRIBUTES, TRUST_DOMAIN, make_plan
from tests.fuzz.memory import bounded_memory
from tests.fuzz.mutations import N_MUTATIONS, mutated_bytes

DIGEST = "ab" * 32
PLAN = make_plan([(("age", "ward"), ("a",)), (("income", "smoker"), ("b",))])

_DECLARED = tuple(each for each in ATTRIBUTES if not any(map(fault_of_cell, each.categories)))
"""Without the labels that only tests of CSV files have."""


def _certificate() -> bytes:
    return DevelopmentCa(TRUST_DOMAIN).owner("a").certificate_pem


def _bundle() -> bytes:
    ca = DevelopmentCa(TRUST_DOMAIN)
    owner = ca.owner("a").certificate_pem.decode()
    return Bundle(
        Party(PartyKind.OWNER, "a", TRUST_DOMAIN), owner, ca.issued.certificate_pem.decode()
    ).to_bytes()


READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[], bytes], type[Exception]]] = {
    "plan": (Plan.from_bytes, PLAN.to_bytes, ValueError),
    "addendum": (
        Addendum.from_bytes, Addendum("r", DIGEST, "disjoint", {"a": 5, "b": 6}).to_bytes, ValueError,
    ),
    "consent": (Consent.from_bytes, Consent("r", "a", DIGEST, "cd" * 32, "accept").to_bytes, ValueError),
    "statement": (
        FragmentStatement.from_bytes,
        FragmentStatement("r", "a", DIGEST, DIGEST, DIGEST, 500, 40).to_bytes,
        ValueError,
    ),
    "receipt": (
        Receipt.from_bytes,
        Receipt("r", "a", DIGEST, DIGEST, "2026-01-01T00:00:00+00:00").to_bytes,
        ValueError,
    ),
    "ledger head": (LedgerHead.from_bytes, LedgerHead("a", 5, DIGEST).to_bytes, ValueError),
    "schema": (
        read_schema,
        lambda: canonical(Schema(_DECLARED, IdentifierRules(1, ("trim",)), 1, 60).to_document()),
        TesseraError,
    ),
    "certificates": (load_certificates, _certificate, TesseraError),
    "request": (
        read_request,
        lambda: make_request(new_key(), Party(PartyKind.OWNER, "a", TRUST_DOMAIN)),
        TesseraError,
    ),
    "bundle": (Bundle.from_bytes, _bundle, TesseraError),
}  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
def test_documents(kind: str) -> None:
    """Whatever comes instead of a document is refused in words, quickly, and with little memory."""
    read, make, promised = READERS[kind]
    data, refused = make(), 0
    read(data)
    with bounded_memory():
        for seed in range(N_MUTATIONS):
            try:
                read(mutated_bytes(data, seed))
            except promised:
                refused += 1
    assert refused > N_MUTATIONS // 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small release, and the fragments it was made of."""
    groups = [(("age", "ward"), ("a",)), (("income", "smoker"), ("b",))]
    return make_release(tmp_path_factory.mktemp("made"), groups, n_records=12)


@pytest.mark.parametrize("owner", ["a", "b"])
def test_fragments(made: Made, tmp_path: Path, owner: str) -> None:
    """Mutated Arrow bytes are refused before anything touches a value, and never end the process."""
    data, task = made.fragments[owner].read_bytes(), made.plan.assignment_of(owner)
    path, refused = tmp_path / "fragment", 0
    with bounded_memory():
        for seed in range(N_MUTATIONS):
            path.write_bytes(mutated_bytes(data, seed))
            try:
                decode(path, made.plan, task, 12)
            except IntegrityError:
                refused += 1
    assert refused > N_MUTATIONS // 2


def test_manifests_of_strangers(made: Made, tmp_path: Path) -> None:
    """A changed manifest, or another signature, is always found."""
    folder = shutil.copytree(made.folder, tmp_path / "copy")
    for name in ("manifest.json", "manifest.sig"):
        data = (folder / name).read_bytes()
        with bounded_memory():
            for seed in range(N_MUTATIONS):
                changed = mutated_bytes(data, seed)
                (folder / name).write_bytes(changed)
                if changed != data:
                    with pytest.raises(IntegrityError):
                        verify_release(folder)
        (folder / name).write_bytes(data)


def test_manifests_of_a_lying_aggregator(made: Made, tmp_path: Path) -> None:
    """A manifest changed anywhere and signed anew holds only if it still says the same."""
    folder = shutil.copytree(made.folder, tmp_path / "copy")
    honest = json.loads((folder / "manifest.json").read_bytes())
    with bounded_memory():
        for seed in range(N_MUTATIONS // 2):
            manifest = json.loads(json.dumps(honest))
            change(random.Random(seed), manifest)
            data = json.dumps(manifest).encode()
            (folder / "manifest.json").write_bytes(data)
            (folder / "manifest.sig").write_bytes(made.aggregator.sign(Domain.MANIFEST, data))
            try:
                verify_release(folder)
            except IntegrityError:
                continue
            assert _said(manifest) == _said(honest), seed


def _said(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a manifest says, without what only its maker vouches for, or whose form may differ."""
    free = ("version", "times", "composition", "guarantee", "invariants")
    return {key: value for key, value in manifest.items() if key not in free and key in KNOWN}


KNOWN = ("format", "release", "layout", "purpose", "totals", "schema", "files")


def change(draw: random.Random, document: Any) -> None:
    """Change one value somewhere in a JSON document."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(document[key], dict | list) and document[key] and draw.random() < 0.8:
            document = document[key]
            continue
        document[key] = draw.choice((None, "", "x", "-1", "1E+9999", "9" * 5000, [], {}, [[]] * 50, True, 7))
        return
