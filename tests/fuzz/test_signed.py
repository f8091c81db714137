"""What is signed, changed: plans signed anew, certificates under their chain, and every file of a release."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.canonical import digest
from common.errors import IntegrityError, TesseraError
from common.model.plan import Plan
from common.release.verification import verify_release
from common.trust.identity import load_certificates, party_of_certificate, verify_chain
from common.trust.signing import Domain
from deploy.development_ca import DevelopmentCa
from owner_node.config import PolicyConfig
from owner_node.release.invitations import Offer
from tests.fakes.offering import Offering
from tests.fakes.published import make_release
from tests.fakes.releases import TRUST_DOMAIN
from tests.fuzz.memory import bounded_memory
from tests.fuzz.mutations import N_MUTATIONS, mutated_bytes
from tests.fuzz.test_documents import change


def test_plans_that_are_changed_and_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner refuses them in words; what it accepts asks no more of it."""
    monkeypatch.setattr("owner_node.release.invitations._MOST_NEW", 10**6)
    offering, n_refused = Offering(tmp_path, PolicyConfig(max_open_releases=10**6)), 0
    n_plans = N_MUTATIONS // 10
    with bounded_memory():
        for seed in range(n_plans):
            release = f"r{seed}"
            honest = offering.plan(offering.node.invitations.describe(release, "cohort"), release, "0.001")
            document = json.loads(honest.to_bytes())
            change(random.Random(seed), document)
            data = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
            signed = Offer(data, offering.hub.sign(Domain.PLAN, data), offering.hub.chain_pem.encode())
            try:
                offering.node.invitations.consent(release, digest(data), signed)
            except TesseraError as error:
                assert error.code != "internal", (seed, error.message)  # noqa: PT017
                n_refused += 1
            else:
                accepted = Plan.from_bytes(data)
                assert accepted.release == release
                own, asked = accepted.assignment_of("a"), honest.assignment_of("a")
                assert own.epsilon <= asked.epsilon, seed
    assert n_refused > n_plans // 2
    offering.records.ledger.verify()
    offering.records.db.close()


def test_certificates_that_are_changed() -> None:
    """One that still leads to its authority is the one that this issued."""
    ca = DevelopmentCa(TRUST_DOMAIN)
    issued, now = ca.owner("a"), datetime.now(UTC)
    n_refused = 0
    with bounded_memory():
        for seed in range(N_MUTATIONS):
            try:
                leaf, *others = load_certificates(mutated_bytes(issued.certificate_pem, seed))
                verify_chain(leaf, others, [ca.certificate], now, "client")
                assert party_of_certificate(leaf).name == "a"
            except TesseraError:
                n_refused += 1
            else:
                assert leaf == issued.certificate
    assert n_refused > N_MUTATIONS // 2


def test_bits_that_flip_in_a_release(tmp_path: Path) -> None:
    """Whichever bit of whichever file it is, verification finds it."""
    groups = [(("age", "ward"), ("a",)), (("income", "smoker"), ("b",))]
    folder = make_release(tmp_path, groups, n_records=12).folder
    files = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    draw = random.Random(1)
    with bounded_memory():
        for _ in range(N_MUTATIONS // 4):
            path, data = draw.choice(list(files.items()))
            changed = bytearray(data)
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(IntegrityError):
                verify_release(folder)
            path.write_bytes(data)
    verify_release(folder)
