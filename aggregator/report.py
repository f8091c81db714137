"""`report.html`: what a release is, for people; one file without script and without network."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from common.evidence import Evidence


def render_report(document: Mapping[str, Any], evidence: Evidence, data_files: Sequence[str]) -> str:
    """Return the report of a release.

    Args:
        document: The manifest, still without the digests of the files
            (`aggregator.manifest.manifest_document`).
        evidence: What was signed while the release was made.
        data_files: Names of the data files.

    Returns:
        HTML. Every text from a plan (labels, purpose, names) is escaped.
    """
    environment = Environment(
        loader=PackageLoader("aggregator"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        manifest=document,
        plan=evidence.plan,
        linking=_LINKING[evidence.addendum.linking],
        fingerprints=_fingerprints(evidence),
        data_files=data_files,
    )


_LINKING = {
    "disjoint": "Identifiers were compared by keyed tokens: no person is at two owners.",
    "equal": "Identifiers were compared by keyed tokens: the owners' attributes are about the same records.",
    "asserted": "Identifiers were not compared: disjointness asserted by the owners, not checked.",
}


def _fingerprints(evidence: Evidence) -> dict[str, str]:
    """Return the fingerprint of every owner's key, as people compare it."""
    from common.identity import fingerprint, load_certificates, spoken

    chains = {
        owner: load_certificates(signed.statement_signed.certificates.encode())
        for owner, signed in evidence.owners.items()
    }
    return {owner: spoken(fingerprint(chain[0].public_key())) for owner, chain in chains.items()}
