"""The rounds of a synthetic release as an aggregator opens them, true or false, for one owner node."""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from secrets import token_bytes
from typing import Any

import numpy as np

from common.arrays import Int64Array
from common.canonical import digest
from common.model.fragment import Addendum
from common.model.plan import Plan, Synthesis
from common.model.products import Product
from common.model.rounds import KEY_BYTES, RoundDocument, SignedKey, SumKey
from common.model.schema import Attribute, AttributeType
from common.model.task import Modelled
from common.planning.synthetic import design_of
from common.synthesis.schedule import RoundSums, n_numbers, next_round
from common.synthesis.sums import Masks, add_answers, public_key
from common.trust.signing import Domain, Signer
from owner_node.linking import linkage_key
from owner_node.linking.tokens import release_key
from owner_node.state.answers import LinkAnswer, RoundAnswer
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
    documents: list[tuple[RoundDocument, bytes]] = field(default_factory=list)
    """What was opened, with what came with it."""
    sums: list[Int64Array] = field(default_factory=list)

    @classmethod
    def linked_to(cls, offering: SyntheticOffering) -> "Rounds":
        """Link a release."""
        plan = offering.synthetic()
        return cls(offering, plan, offering.node.production.link("r1", plan.digest))

    @property
    def addendum(self) -> bytes:
        """What linking found."""
        return Addendum(
            self.plan.release, self.plan.digest, "disjoint", {"a": N_RECORDS, "b": RECORDS_OF_B}
        ).to_bytes()

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
        }
        return RoundDocument(**(settings | changes)), attached

    def ask(self, document: RoundDocument, attached: bytes, signer: Signer | None = None) -> RoundAnswer:
        """Open a round at the owner."""
        signature = (signer or self.offering.hub).sign(Domain.ROUND, document.to_bytes())
        opening = document.with_attached(attached)
        return self.offering.node.measuring.answer("r1", self.plan.digest, opening, signature)

    def next(self) -> RoundAnswer | None:
        """Open the next round, add its answers up, and return the owner's; None if nothing is left to ask."""
        asked = self.asked()
        if isinstance(asked, RoundSums):
            return None
        document, attached = self.document()
        answer = self.ask(document, attached)
        self.counted(document, attached, answer)
        return answer

    def counted(self, document: RoundDocument, attached: bytes, answer: RoundAnswer) -> None:
        """Add the owner's answer and that of b."""
        asked = self.asked()
        assert not isinstance(asked, RoundSums)
        first = self.documents[0][0] if self.documents else document
        public = {each.owner: bytes.fromhex(each.key) for each in first.keys}
        tokens = linkage_key.load(self.offering.config.owner.state_dir).key
        shared = release_key(tokens, self.plan.release, self.plan.digest)
        masks = Masks("b", self.private, public, "r1", shared)
        others = masks.answer(np.full(n_numbers(asked), 7), document.digest)
        self.sums.append(add_answers({"a": answer.answer, "b": others}, n_numbers(asked)))
        self.documents.append((document, attached))

    def asked(self) -> Any:
        """Return what the next round asks."""
        return next_round(design_of(self.plan, N_RECORDS + RECORDS_OF_B), self.sums)


def charged(offering: Offering) -> Decimal:
    """Return what the owner's budget was charged."""
    return offering.records.ledger.balance("cohort", Decimal(3)).spent
