"""The files that this owner proves its identity with, checked before anything leans on them."""

from datetime import datetime

from common.errors import ConfigurationError
from common.identity import PartyKind
from common.signing import Signer, load_chain
from owner_node.config import OwnerConfig


def own_signer(config: OwnerConfig, now: datetime) -> Signer:
    """Load the owner's key and certificate.

    Args:
        config: The owner's configuration.
        now: The present moment.

    Raises:
        ConfigurationError: If a file cannot be used, or the certificate is another party's.
        IdentityError: If the certificate is not valid now.
    """
    owner, tls = config.owner, config.tls
    signer = Signer.load(tls.key, tls.cert)
    signer.check_validity(now)
    load_chain(tls.ca)
    party = signer.party
    if (party.kind, party.name, party.trust_domain) != (PartyKind.OWNER, owner.id, owner.trust_domain):
        raise ConfigurationError(
            f"{tls.cert} is the certificate of {party.uri}",
            hint=f"this is owner {owner.id} of {owner.trust_domain}: name its certificate",
        )
    return signer
