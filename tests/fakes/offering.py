"""An aggregator reduced to what it signs: plans, addenda and receipts, true or false, for one owner node."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.model.fragment import Addendum, Consent, Receipt
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, Schema
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.settings import TlsSection
from common.trust.identity import Party, PartyKind
from common.trust.signing import Domain, Signer, load_chain
from deploy.development_ca import DevelopmentCa
from owner_node.config import (
    DatasetConfig,
    KnownAggregator,
    OwnerConfig,
    OwnerSection,
    PolicyConfig,
)
from owner_node.linking import linkage_key
from owner_node.linking.tokens import key_check, release_key
from owner_node.release.co_owners import CoOwner
from owner_node.release.invitations import Offer
from owner_node.release.node import Node
from owner_node.release.records import Records
from owner_node.trust import Trust
from tests.fakes.key_proofs import proved

DOMAIN = "node.test"
N_RECORDS = 60


@dataclass
class Offering:
    """One owner node on real state, real keys and a real file, and the aggregator that asks it.

    `node` is made anew by `restart`, as after a crash: everything it knows then comes from the disk.
    """

    folder: Path
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    later: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        ca = DevelopmentCa(DOMAIN)
        for name, issued in (("owner", ca.owner("a")), ("hub", ca.aggregator("hub", ["localhost"]))):
            issued.write(self.folder, name)
        ca.aggregator("other", ["localhost"]).write(self.folder, "other")
        self.ca = ca
        (self.folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
        self.hub = Signer.load(self.folder / "hub.key", self.folder / "hub.pem")
        ca.owner("b").write(self.folder, "co-owner")
        self.co_owner = Signer.load(self.folder / "co-owner.key", self.folder / "co-owner.pem")
        self.other = Signer.load(self.folder / "other.key", self.folder / "other.pem")
        self.source = self.folder / "cohort.csv"
        self.write_source(seed=1)
        state = self.folder / "state"
        attribute = Attribute("age", AttributeType.INTEGER, 0, 120)
        cohort = DatasetConfig(
            name="cohort", source=str(self.source), budget="cohort", total_epsilon=Decimal(3),
            identifier=("person",), normalise=("trim",), attributes=(attribute,),
        )  # fmt: skip
        tls = TlsSection(self.folder / "ca.pem", self.folder / "owner.pem", self.folder / "owner.key")
        self.config = OwnerConfig(
            path=self.folder / "owner.toml", owner=OwnerSection("a", DOMAIN, state),
            aggregators=(KnownAggregator("hub", "localhost:1"),), tls=tls, policy=self.policy,
            datasets=(cohort,),
        )  # fmt: skip
        self.records = Records.open(state, self.now)
        linkage_key.new(state)
        self.restart()

    def now(self) -> datetime:
        """Return the owner's time."""
        return datetime.now(UTC) + self.later

    def restart(self) -> None:
        """Forget everything that is not on the disk."""
        self.records.db.close()
        self.records = Records.open(self.config.owner.state_dir, self.now)
        signer = Signer.load(self.config.tls.key, self.config.tls.cert)
        authorities = load_chain(self.config.tls.ca)
        self.trust = Trust(lambda: authorities, DOMAIN, "a", "hub", self.now)
        self.node = Node(self.config, "hub", self.records, signer, self.trust, self.now)

    def write_source(self, seed: int) -> None:
        """Write the owner's file."""
        ages = np.random.default_rng(seed).integers(0, 100, N_RECORDS)
        lines = [f"p{position},{age}" for position, age in enumerate(ages.tolist())]
        self.source.write_text("\n".join(["person,age", *lines, ""]))

    def plan(
        self,
        schema: bytes,
        release: str = "r1",
        epsilon: str = "1",
        k: str = "5",
        mechanism: str = "idp-joint",
        dataset: str = "cohort",
        purpose: str = "",
    ) -> Plan:
        """Return the plan of a horizontal release with another owner that has the same schema."""
        import json

        own = Schema.from_document(json.loads(schema))
        request = parse_arguments(
            release=release, dataset=dataset, layout="horizontal", groups=[("a", "b")], epsilon=epsilon, k=k,
            mechanism=mechanism, purpose=purpose,
        )  # fmt: skip
        aggregator = Party(PartyKind.AGGREGATOR, "hub", DOMAIN).uri
        return make_plan(
            request,
            {"a": own, "b": own},
            aggregator=aggregator,
            created="2026-01-01T00:00:00Z",
            version="0.1.0",
        )

    def offer(self, plan: Plan, signer: Signer | None = None) -> Offer:
        """Return a plan as it is sent."""
        by = signer or self.hub
        data = plan.to_bytes()
        return Offer(data, by.sign(Domain.PLAN, data), by.chain_pem.encode())

    def consent_of(self, signer: Signer, plan: Plan, linkage: bytes | None = None) -> CoOwner:
        """Return the consent of owner b as the aggregator shows it, signed by whoever signs.

        `linkage` is b's linkage key, if it is not the one that this owner has.
        """
        secret = linkage or linkage_key.load(self.config.owner.state_dir).key
        value = key_check(release_key(secret, plan.release, plan.digest))
        signature = signer.sign(
            Domain.CONSENT, Consent(plan.release, "b", plan.digest, value, "accept").to_bytes()
        )
        return CoOwner("b", value, signature, signer.chain_pem.encode())

    def addendum(
        self, plan: Plan, records: int = N_RECORDS, linking: str = "disjoint"
    ) -> tuple[bytes, bytes]:
        """Return what linking found, and its signature."""
        found = Addendum(plan.release, plan.digest, linking, {"a": records, "b": 9})
        return self.signed(found)

    def signed(self, addendum: Addendum) -> tuple[bytes, bytes]:
        """Return what linking found with the proofs of both owners, and its signature."""
        data = proved(addendum, self.config.owner.state_dir).to_bytes()
        return data, self.hub.sign(Domain.ADDENDUM, data)

    def receipt(self, plan: Plan, fragment_digest: str) -> tuple[bytes, bytes]:
        """Return the receipt of a fragment, and its signature."""
        data = Receipt(
            plan.release, "a", plan.digest, fragment_digest, "2026-01-01T00:00:00+00:00"
        ).to_bytes()
        return data, self.hub.sign(Domain.RECEIPT, data)

    def kinds(self) -> list[str]:
        """Return the kinds of all ledger entries."""
        return [str(entry.kind) for entry in self.records.ledger.entries()]
