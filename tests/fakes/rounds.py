"""The rounds of a synthetic release as an aggregator opens them, true or false, for one owner node."""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from secrets import token_bytes
from typing import Any

import numpy as np

from common.arrays import Int64Array
from common.canonical import digest
from common.model.fragment import Addendum, FragmentStatement
from common.model.plan import Plan, Synthesis
from common.model.products import Product
from common.model.rounds import (
    KEY_BYTES,
    N_ZEROS,
    RoundDocument,
    SignedAnswer,
    SignedAnswers,
    SignedKey,
    SumKey,
    chained,
)
from common.model.schema import Attribute, AttributeType
from common.model.task import Modelled
from common.planning.synthetic import design_of
from common.synthesis.schedule import RoundSums, n_numbers, next_round
from common.synthesis.sums import add_answers
from common.trust.identity import fingerprint, load_certificates
from common.trust.signing import Domain, Signer
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey, release_key
from owner_node.release.measuring import Opening
from owner_node.state.answers import LinkAnswer, RoundAnswer
from owner_node.synthesis.masks import Masks, public_key
from tests.fakes.key_proofs import proved
from tests.fakes.offering import N_RECORDS, Offering

ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
)
RECORDS_OF_B = 40
SPLIT = (Decimal("0.4"), Decimal("0.6"))


class SyntheticOffering(Offering):
    """An owner node with two attributes, and an aggregator that asks it for a synthetic release."""

    def __post_init__(self) -> None:
        super().__post_init__()
        (cohort,) = self.config.datasets
        self.config = replace(self.config, datasets=(replace(cohort, attributes=ATTRIBUTES),))
        self.restart()

    def write_source(self, seed: int) -> None:
        """Write the owner's file."""
        ages = np.random.default_rng(seed).integers(0, 100, N_RECORDS).tolist()
        lines = [f"p{position},{age},{'abc'[age // 34]}" for position, age in enumerate(ages)]
        self.source.write_text("\n".join(["person,age,ward", *lines, ""]))

    def synthetic(self, release: str = "r1") -> Plan:
        """Bring a synthetic release to a reservation; return its plan."""
        plan = self.plan(self.node.invitations.describe(release, "cohort"), release)
        modelled = Modelled(tuple(each.name for each in ATTRIBUTES), plan.epsilon)
        tasks = tuple(replace(each, attributes=(), modelled=modelled) for each in plan.tasks)
        plan = replace(plan, tasks=tasks, synthesis=Synthesis(1, SPLIT))
        assert plan.product is Product.SYNTHETIC
        assert self.node.invitations.consent(release, plan.digest, self.offer(plan)) is not None
        return plan


@dataclass
class Rounds:
    """The rounds of one release with owner b, whose answers have no noise."""

    offering: SyntheticOffering
    plan: Plan
    linked: LinkAnswer
    private: bytes = field(default_factory=lambda: token_bytes(KEY_BYTES), repr=False)
    proved: bytes = b""
    """The key for sums of which b shows that it is its own; empty for the one that it uses."""
    documents: list[tuple[RoundDocument, bytes]] = field(default_factory=list)
    """What was opened, with what came with it."""
    sums: list[Int64Array] = field(default_factory=list)
    """Of the rounds that asked something, zeros first."""
    answers: list[dict[str, bytes]] = field(default_factory=list)
    """To all rounds, by owner."""
    shown: bytes = b""
    """All answers to the last round, as owners fetch them."""

    @classmethod
    def unopened(cls, offering: SyntheticOffering) -> "Rounds":
        """Link a release."""
        plan = offering.synthetic()
        return cls(offering, plan, offering.node.production.link("r1", plan.digest))

    @classmethod
    def linked_to(cls, offering: SyntheticOffering) -> "Rounds":
        """Link a release, whose owners then answer the round of zeros."""
        rounds = cls.unopened(offering)
        rounds.next()
        return rounds

    @property
    def addendum(self) -> bytes:
        """What linking found."""
        records = {"a": N_RECORDS, "b": RECORDS_OF_B}
        found = Addendum(self.plan.release, self.plan.digest, "disjoint", records)
        keys = {"a": self.linked.sum_key, "b": self.proved or public_key(self.private)}
        (own, *_) = load_certificates(self.linked.certificate)
        signers = {"a": own, "b": self.offering.co_owner.certificate}
        by = {owner: fingerprint(each.public_key()) for owner, each in signers.items()}
        return proved(found, self.offering.config.owner.state_dir, by, **keys).to_bytes()

    def key_of(self, owner: str, key: bytes, signer: Signer) -> SignedKey:
        """Return a key as it is passed on, signed by whoever signs."""
        stated = SumKey(self.plan.release, owner, self.plan.digest, key.hex())
        signature = signer.sign(Domain.SUM_KEY, stated.to_bytes())
        return SignedKey(owner, key.hex(), signature.hex(), signer.chain_pem)

    @property
    def keys(self) -> tuple[SignedKey, ...]:
        """The keys of both owners."""
        own = SignedKey(
            "a", self.linked.sum_key.hex(), self.linked.signature.hex(), self.linked.certificate.decode()
        )
        return own, self.key_of("b", public_key(self.private), self.offering.co_owner)

    def document(self, **changes: Any) -> tuple[RoundDocument, bytes]:
        """Return what opens the next round, with whatever changes."""
        number = len(self.documents) + 1
        attached = changes.pop("sums", self.sums[-1].astype("<i8").tobytes() if self.sums else self.addendum)
        settings: dict[str, Any] = {
            "release": self.plan.release,
            "plan_digest": self.plan.digest,
            "addendum_digest": digest(self.addendum),
            "round": number,
            "previous": self.documents[-1][0].digest if self.documents else "",
            "attached": digest(attached),
            "keys": () if self.documents else self.keys,
            "answers": digest(self.shown) if self.documents else "",
            "answers_size": len(self.shown),
        }
        return RoundDocument(**(settings | changes)), attached

    def ask(self, document: RoundDocument, attached: bytes, signer: Signer | None = None) -> RoundAnswer:
        """Open a round at the owner, which fetches the answers to the one before."""
        signature = (signer or self.offering.hub).sign(Domain.ROUND, document.to_bytes())
        measuring, opening = self.offering.node.measuring, document.with_attached(attached)
        unchecked, fetched = measuring.unchecked("r1", self.plan.digest, opening), None
        if unchecked is not None:
            fetched = unchecked[1]
            fetched.write_bytes(self.shown)
        return measuring.answer(Opening("r1", self.plan.digest, opening, signature, answers=fetched))

    @property
    def is_over(self) -> bool:
        """Whether the closing round is answered."""
        return len(self.documents) > len(self.sums)

    def next(self) -> RoundAnswer | None:
        """Open the next round, add its answers up, and return the owner's; None after the closing round."""
        if self.is_over:
            return None
        document, attached = self.document()
        answer = self.ask(document, attached)
        self.counted(document, attached, answer)
        return answer

    def counted(self, document: RoundDocument, attached: bytes, answer: RoundAnswer, zero: int = 0) -> None:
        """Add the owner's answer and that of b, which counts one everywhere.

        Args:
            zero: What b answers to the round of zeros.
        """
        asked = self.asked()
        n = 0 if isinstance(asked, RoundSums) else n_numbers(asked) if self.documents else N_ZEROS
        first = self.documents[0][0] if self.documents else document
        public = {each.owner: bytes.fromhex(each.key) for each in first.keys}
        tokens = linkage_key.load(self.offering.config.owner.state_dir).key
        shared = release_key(tokens, self.plan.release, self.plan.digest)
        masks = Masks("b", self.private, public, "r1", shared)
        others = masks.answer(np.full(n, 1 if self.documents else zero), document.digest)
        self.documents.append((document, attached))
        self.answers.append({"a": answer.answer, "b": others})
        self.shown = self.show(self.signed("a"), self.signed("b"))
        if n:
            self.sums.append(add_answers(self.answers[-1], n))

    def signed(self, owner: str, by: Signer | None = None, **changes: Any) -> SignedAnswer:
        """Return what an owner signed about its answers so far, with whatever changes."""
        given, before = [each[owner] for each in self.answers], ""
        for answer in given[:-1]:
            before = chained(before, answer)
        size, n_records = sum(map(len, given)), Addendum.from_bytes(self.addendum).records[owner]
        settings: dict[str, Any] = {
            "release": self.plan.release,
            "owner": owner,
            "plan_digest": self.plan.digest,
            "addendum_digest": self.documents[-1][0].digest,
            "fragment_digest": chained(before, given[-1]),
            "size": size,
            "records": n_records,
        }
        statement, signer = FragmentStatement(**(settings | changes)), by or self.offering.co_owner
        signature = signer.sign(Domain.FRAGMENT, statement.to_bytes()).hex()
        linkage = linkage_key.load(self.offering.config.owner.state_dir)
        key = ReleaseKey(release_key(linkage.key, self.plan.release, self.plan.digest), linkage.generation)
        proof = key.answer_proof(owner, self.documents[-1][0].digest, chained(before, given[-1])).hex()
        return SignedAnswer(owner, before, signature, signer.chain_pem, proof)

    def show(self, *signed: SignedAnswer, **answers: bytes) -> bytes:
        """Return the file of the answers to the last round, with others in the place of some."""
        given = self.answers[-1] | answers
        return SignedAnswers(signed).head() + b"".join(given[each.owner] for each in signed)

    def asked(self) -> Any:
        """Return what the next round asks: nothing in the round of zeros."""
        if not self.documents:
            return ()
        return next_round(design_of(self.plan, N_RECORDS + RECORDS_OF_B), self.sums[1:])


def charged(offering: Offering) -> Decimal:
    """Return what the owner's budget was charged."""
    return offering.records.ledger.balance("cohort", Decimal(3)).spent
