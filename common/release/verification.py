"""Re-check a release folder offline, at the times that its manifest states.

The checks go from the outside in: the manifest's own signature; the plan and the addendum under the
aggregator's name; every owner's consent and fragment statement under the owner's name; the numbers and
promises that the manifest shows, which must follow from what was signed; the digest of every file; and the
data files, which are read as untrusted input (columns, number of records, values). The error names the first
check that fails. The manifest's own certificate must be valid when it was published; those of the other
documents at some moment between plan and publication, since keys are renewed while a release is made.

Verification cannot show a third party that the joined data are those of the fragments (the fragments are not
in the folder). Each owner can check this for its own data (`owner-node verify`).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any

import pyarrow as pa
from cryptography import x509

from common import __version__
from common.canonical import adds_to, canonical, digest, parse_json
from common.errors import IntegrityError, UsageError, did_you_mean
from common.files import explaining_disk
from common.model.fragment import Addendum, bounds_of_person, contradictions, n_records
from common.model.matches import fit
from common.model.plan import Plan
from common.model.rounds import RoundDocument, SumKey
from common.progress import Progress
from common.release.column_summary import ColumnSummaries, ColumnSummary
from common.release.companion_files import companion_files
from common.release.counts import PresentPersons, presence_in, presence_text
from common.release.data_files import (
    DATA_FILES,
    PARQUET_FILE,
    PIECE_RECORDS,
    check_descriptions,
    check_footer,
    check_values,
    data_pieces,
    open_parquet,
)
from common.release.description import DESCRIPTION_FILE, describe
from common.release.events import event_files
from common.release.evidence import Evidence, OwnerEvidence, Signed
from common.release.step import step
from common.release.summary import manifest_document, of_synthesis, stated_promises, summary
from common.release.table import events_schema, in_pieces, release_schema
from common.trust.identity import (
    Party,
    PartyKind,
    Purpose,
    check_purpose,
    fingerprint,
    load_certificates,
    party_of_certificate,
    valid_moment,
    verify_chain,
)
from common.trust.signing import Domain, load_chain, verify, verify_document
from common.words.guarantee import composition, trial, trusted
from common.words.linking import linking_result
from common.words.numbers import bound_text, delta_text, moment_text
from common.workspace import Workspace, temporary_workspace


def check_derived(manifest: Mapping[str, Any], evidence: Evidence) -> None:
    """Compare what a manifest shows with what follows from what was signed."""
    plan = evidence.plan
    derived = json.loads(canonical({**summary(plan, evidence.addendum), **of_synthesis(evidence)}))
    shown_owners = [
        {key: value for key, value in owner.items() if key not in ("consent", "fragment")}
        for owner in manifest["owners"]
    ]
    shown = {**{key: manifest[key] for key in derived}, "owners": shown_owners}
    # Later versions may show more.
    same = manifest["version"] == __version__
    for key, value in derived.items():
        if shown[key] != value and (same or not adds_to(value, shown[key], frozenset())):
            raise IntegrityError(f"it differs from the plan in its {key}")
    named = (manifest["release"], manifest["layout"], manifest["purpose"], manifest["times"]["planned"])
    if named != (plan.release, plan.layout, plan.purpose, plan.created):
        raise IntegrityError("it describes another release than its plan")
    if manifest["aggregator"]["id"] != plan.aggregator:
        raise IntegrityError("it names another aggregator than its plan")
    _check_linking(evidence)
    if not all(manifest[key] and _are_texts(manifest[key]) for key in ("guarantee", "invariants")):
        raise IntegrityError("it promises nothing, or hides what is not hidden")
    # The wording may change between versions, what it says may not: only the same version can compare it.
    if manifest["version"] == __version__ and not _has_derived_texts(manifest, evidence):
        raise IntegrityError("it promises something else than its plan")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and text for text in value)


def _has_derived_texts(manifest: Mapping[str, Any], evidence: Evidence) -> bool:
    """Whether guarantee, invariants and composition are, word by word, what this version derives."""
    guarantee, not_hidden = stated_promises(evidence)
    shown = manifest["guarantee"], manifest["invariants"], manifest["composition"]
    return bool(shown == (guarantee, not_hidden, composition(evidence.plan)))


def _check_linking(evidence: Evidence) -> None:
    """Compare what linking is said to have found with what the plan and the owners' statements allow."""
    plan, addendum = evidence.plan, evidence.addendum
    for contradiction in contradictions(plan, addendum):
        raise IntegrityError(contradiction)
    if len({signed.consent.key_check for signed in evidence.owners.values()}) > 1:
        raise IntegrityError("its owners linked with different linkage keys")
    if not fit(addendum.matches, plan, addendum.records):
        raise IntegrityError("linking cannot have found these matches under this plan")


MANIFEST_FILE = "manifest.json"
SIGNATURE_FILE = "manifest.sig"
REPORT_FILE = "report.html"
_OF_A_RELEASE = (MANIFEST_FILE, SIGNATURE_FILE, *DATA_FILES, REPORT_FILE, DESCRIPTION_FILE)
_Period = tuple[datetime, datetime]
"""Since when, and until when, a release was made."""
_LARGEST_MANIFEST = 1 << 26
"""Bytes; a manifest of 1,000 owners takes about 6 MB."""
_MOST_VALUES = 1 << 22
"""In a manifest: anybody can write one, and a value of three bytes takes seventy in memory."""
_HINT = "do not use this folder; get the release again from the aggregator or from an owner"
_step = partial(step, hint=_HINT)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found to hold."""

    plan: Plan
    """The plan that the owners consented to."""
    addendum: Addendum
    """What linking found."""
    owners: Mapping[str, OwnerEvidence]
    """What every owner signed."""
    manifest_digest: str
    published: datetime
    n_records: int
    files: tuple[str, ...]
    """Names of the files that the manifest vouches for."""
    identities_checked: bool
    """Whether all certificates lead to the given CA; without a CA the names in them are only claims."""
    pinned: tuple[str, ...]
    """Owners whose key was compared with a given fingerprint."""
    guarantee: tuple[str, ...]
    """What is promised, derived from plan and addendum and not from the manifest."""
    invariants: tuple[str, ...]
    """What is not hidden, likewise."""
    words_of: str
    """Version whose wording manifest or data file have, if it is not what follows here; empty if it is."""
    report_of: str
    """Another version that wrote report and description, which were not compared then; else empty."""
    rounds: tuple[RoundDocument, ...] = ()
    """What opened the rounds of a synthetic release, and the one that closed the last."""
    presence: tuple[PresentPersons, ...] = ()
    """How many persons are estimated to be where, where the release is of everybody."""

    @property
    def plan_digest(self) -> str:
        """Digest of the plan."""
        return self.plan.digest

    @property
    def caveats(self) -> tuple[str, ...]:
        """That it is a trial, then what was not checked, in plain words."""
        return (*trial(self.plan), *self._unchecked_parts())

    def _unchecked_parts(self) -> Iterator[str]:
        if self.words_of:
            yield (
                f"version {self.words_of} wrote manifest, report and descriptions of columns, and other "
                f"sentences about privacy than version {__version__} derives from the plan: rely on those of "
                "verify --json"
            )
        if self.report_of:
            yield (
                f"report and description are of version {self.report_of} and not compared with the manifest: "
                "rely on the manifest"
            )
        if self.identities_checked:
            return
        unpinned = [owner for owner in self.plan.owners if owner not in self.pinned]
        yield (
            "identities were not checked against a CA: the aggregator"
            + (f" and {', '.join(unpinned)} are" if unpinned else " is")
            + " named by certificates that anyone could have made; name the CA's file (--ca; ca= in Python)"
        )

    def to_document(self) -> dict[str, Any]:
        """Return what `verify --json` shows."""
        return {
            "release": self.plan.release,
            "holds": True,
            "aggregator": self.plan.aggregator,
            "owners": [{"id": owner, "records": self.addendum.records[owner]} for owner in self.plan.owners],
            "records": self.n_records,
            "linking": list(linking_result(self.plan, self.addendum)),
            **({"presence": [asdict(each) for each in self.presence]} if self.presence else {}),
            **bounds_of_person(self.plan, self.addendum),
            "published": self.published.isoformat(),
            "plan_digest": self.plan_digest,
            "manifest_digest": self.manifest_digest,
            "files": list(self.files),
            "identities_checked": self.identities_checked,
            "pinned": list(self.pinned),
            "guarantee": list(self.guarantee),
            "invariants": list(self.invariants),
            "caveats": list(self.caveats),
        }

    def _bounds_in_words(self) -> str:
        bounds = bounds_of_person(self.plan, self.addendum)
        unit = "person" if self.plan.linking.tokens else "record"
        as_found = ", as linking found" if self.addendum.multiples else ""
        texts = [f"ε of one {unit}{as_found}: {bound_text(bounds['epsilon_person'])}"]
        if self.plan.delta:
            texts.append(f"δ {delta_text(self.plan.delta)}")
        texts.append(f"joint {bound_text(bounds['epsilon_joint'])}")
        if "epsilon_table" in bounds:
            texts.append(f"table {bound_text(bounds['epsilon_table'])}")
        return ", ".join(texts)

    def to_lines(self) -> tuple[str, ...]:
        """Return the lines that `verify` prints."""
        owners = ", ".join(f"{owner} ({self.addendum.records[owner]:,})" for owner in self.plan.owners)
        return (
            *trial(self.plan),
            f"release {self.plan.release}: signatures, consents, digests and numbers hold",
            *(["every owner signed that all owners' answers add up to these counts"] if self.rounds else ()),
            f"{self.n_records:,} records of {owners}",
            *(f"linking found: {line}" for line in linking_result(self.plan, self.addendum)),
            *filter(None, [presence_text(self.presence)]),
            self._bounds_in_words(),
            *trusted(self.plan),
            f"published {moment_text(self.published, seconds=True)} by {self.plan.aggregator}",
            f"plan {self.plan_digest}, manifest {self.manifest_digest}",
            *(f"note: {caveat}" for caveat in self._unchecked_parts()),
        )


def verify_release(
    folder: Path,
    ca: Path | None = None,
    owners: Mapping[str, str] | None = None,
    *,
    written: bool = False,
    workspace: Workspace | None = None,
    progress: Progress | None = None,
) -> Verified:
    """Re-check everything that can be checked offline, in pieces, whatever the number of records.

    Args:
        folder: A release folder.
        ca: PEM file with the CA certificates that all identities must lead to; None leaves them unchecked.
        owners: Fingerprints that owners' keys must have, by owner id.
        written: Whether this process has just written the folder: then the first data file is read alone, and
            the report is not made again. Reading a CSV file takes longer than everything else together.
        workspace: Memory and scratch folder; None for half of the machine's memory and a temporary folder.
        progress: Shows how many records have been checked.

    Raises:
        IntegrityError: Naming the first thing that does not hold.
        UsageError: If there is no such folder, or it holds no file of a release.
        ConfigurationError: If the CA file, a file of the release, or the scratch folder cannot be used.
    """
    with explaining_disk(), nullcontext(workspace) if workspace else temporary_workspace() as used:
        return _verify(folder, ca, dict(owners or {}), used, progress or Progress(), written=written)


def _verify(
    folder: Path,
    ca: Path | None,
    owners: Mapping[str, str],
    workspace: Workspace,
    progress: Progress,
    *,
    written: bool,
) -> Verified:
    _check_is_release(folder)
    judge = _Judge(tuple(load_chain(ca)) if ca is not None else None, owners)
    data, manifest = _read_manifest(folder)
    with _step("the manifest's signature"):
        chain = load_certificates(manifest["aggregator"]["certificates"].encode())
        verify(chain[0], Domain.MANIFEST, data, _read(folder, SIGNATURE_FILE))
    with _step(MANIFEST_FILE):
        evidence = Evidence.from_manifest(manifest)
        published = datetime.fromisoformat(manifest["times"]["published"])
        planned = datetime.fromisoformat(evidence.plan.created)
        if published.tzinfo is None or planned.tzinfo is None:
            raise IntegrityError("its time has no time zone")
    period = (min(planned, published), published)
    judge.aggregator(evidence, chain, period)
    for owner in evidence.plan.owners:
        judge.owner(evidence, owner, period)
    judge.rounds(evidence, chain, period)
    if unknown := sorted(set(judge.pins) - set(evidence.plan.owners)):
        raise IntegrityError(f"{', '.join(unknown)} took no part in this release", _HINT)
    with _step(MANIFEST_FILE):
        check_derived(manifest, evidence)
        files = {name: (str(f["digest"]), int(f["size"])) for name, f in manifest["files"].items()}
        pages = {REPORT_FILE, DESCRIPTION_FILE} & files.keys()
        report_of = "" if manifest["version"] == __version__ or not pages else str(manifest["version"])
        worded = _has_derived_texts(manifest, evidence)
    n_records, described = _check_files(
        folder, files, evidence, manifest, workspace, progress, written=written
    )
    words_of = "" if worded and described else str(manifest["version"])
    guarantee, not_hidden = stated_promises(evidence)
    return Verified(
        evidence.plan, evidence.addendum, evidence.owners, digest(data), published, n_records,
        tuple(files), ca is not None, tuple(judge.pins), tuple(guarantee), tuple(not_hidden), words_of,
        report_of, tuple(document for document, _ in evidence.rounds), _presence(folder, evidence, n_records),
    )  # fmt: skip


def _presence(folder: Path, evidence: Evidence, n_records: int) -> tuple[PresentPersons, ...]:
    counts = companion_files(evidence.plan).counts(folder, evidence.plan) if evidence.plan.presence else None
    return () if counts is None else presence_in(evidence.plan, n_records, counts)


def _check_is_release(folder: Path) -> None:
    """Check that a path is a release folder, complete or not: anything else is a mistake, not a damage."""
    hint = "name the folder of one release: release_dir/ID of the aggregator, or a copy of it"
    if not folder.exists():
        near = folder.parent.iterdir() if folder.parent.is_dir() else ()
        raise UsageError(
            f"there is no folder {folder}", did_you_mean(folder.name, (p.name for p in near)) or hint
        )
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint)
    if not any((folder / name).is_symlink() or (folder / name).exists() for name in _OF_A_RELEASE):
        raise UsageError(f"{folder} is not a release folder: it has no {MANIFEST_FILE}", hint)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Checks who signed what."""

    ca: tuple[x509.Certificate, ...] | None
    pins: Mapping[str, str]

    def aggregator(self, evidence: Evidence, chain: list[x509.Certificate], period: _Period) -> None:
        plan, addendum = evidence.plan, evidence.addendum
        with _step("the aggregator's certificate"):
            party = Party.parse(plan.aggregator)
            if party.kind is not PartyKind.AGGREGATOR:
                raise IntegrityError("the plan was not made by an aggregator")
            self._identity(chain, party, "server", (period[1], period[1]))
        with _step("the plan's signature"):
            self._check_signed(evidence.plan_signed, Domain.PLAN, plan.to_document(), party, "server", period)
        with _step("the addendum's signature"):
            self._check_signed(
                evidence.addendum_signed, Domain.ADDENDUM, addendum.to_document(), party, "server", period
            )
        with _step("the addendum"):
            if (addendum.release, addendum.plan_digest) != (plan.release, plan.digest):
                raise IntegrityError("it belongs to another plan")
            if set(addendum.records) != set(plan.owners) or set(evidence.owners) != set(plan.owners):
                raise IntegrityError("it does not name the owners of the plan")

    def owner(self, evidence: Evidence, owner: str, period: _Period) -> None:
        plan, addendum, signed = evidence.plan, evidence.addendum, evidence.owners[owner]
        party = Party(PartyKind.OWNER, owner, Party.parse(plan.aggregator).trust_domain)
        consent, statement = signed.consent, signed.statement
        with _step(f"the consent of {owner}"):
            self._check_signed(
                signed.consent_signed, Domain.CONSENT, consent.to_document(), party, "client", period
            )
            if (consent.release, consent.owner, consent.plan_digest) != (plan.release, owner, plan.digest):
                raise IntegrityError("it is for another plan")
            if consent.decision != "accept":
                raise IntegrityError("it refuses the plan")
            if consent.audit_days != plan.audit_days:
                raise IntegrityError("it keeps what an audit needs for another time than the plan says")
        with _step(f"the fragment statement of {owner}"):
            certificate = self._check_signed(
                signed.statement_signed, Domain.FRAGMENT, statement.to_document(), party, "client", period
            )
            if (statement.release, statement.owner, statement.plan_digest, statement.addendum_digest) != (
                plan.release, owner, plan.digest, evidence.answered_digest,
            ):  # fmt: skip
                raise IntegrityError("it is for another plan")
            if statement.records != addendum.records[owner]:
                raise IntegrityError("its number of records is not that of the addendum")
            if owner in self.pins and fingerprint(certificate.public_key()) != self.pins[owner]:
                raise IntegrityError("it was signed with another key than the given fingerprint's")

    def rounds(self, evidence: Evidence, chain: Sequence[x509.Certificate], period: _Period) -> None:
        """Check what opened the rounds of a synthetic release, and the keys that masked the answers."""
        with _step("the rounds"):
            companion_files(evidence.plan).check_rounds(evidence)
            party = party_of_certificate(chain[0])
            for document, signed in evidence.rounds:
                self._check_signed(signed, Domain.ROUND, document.to_document(), party, "server", period)
            for key in evidence.rounds[0][0].keys if evidence.rounds else ():
                stated = SumKey(evidence.plan.release, key.owner, evidence.plan.digest, key.key)
                by = Signed(bytes.fromhex(key.signature), key.certificate)
                owner = Party(PartyKind.OWNER, key.owner, party.trust_domain)
                signer = self._check_signed(by, Domain.SUM_KEY, stated.to_document(), owner, "client", period)
                if key.owner in self.pins and fingerprint(signer.public_key()) != self.pins[key.owner]:
                    raise IntegrityError(f"the key of {key.owner} was signed with another key than the given")

    def _check_signed(
        self,
        signed: Signed,
        domain: Domain,
        document: Mapping[str, Any],
        party: Party,
        purpose: Purpose,
        period: _Period,
    ) -> x509.Certificate:
        chain = load_certificates(signed.certificates.encode())
        self._identity(chain, party, purpose, period)
        verify_document(chain[0], domain, document, signed.signature)
        return chain[0]

    def _identity(
        self, chain: Sequence[x509.Certificate], party: Party, purpose: Purpose, period: _Period
    ) -> None:
        named = party_of_certificate(chain[0])
        if named != party:
            raise IntegrityError(f"the certificate is {named.uri}'s, not {party.uri}'s")
        at = valid_moment(chain[0], *period)
        if self.ca is not None:
            verify_chain(chain[0], chain[1:], self.ca, at, purpose)
        check_purpose(chain[0], purpose)


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        # Reading a pipe or device may never end.
        if path.is_symlink() or not S_ISREG(path.stat().st_mode) or path.stat().st_size > _LARGEST_MANIFEST:
            raise IntegrityError(f"{name} is not a file of a release", _HINT)
        return path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{name} cannot be read: {error.strerror}", _HINT) from None


def _read_manifest(folder: Path) -> tuple[bytes, dict[str, Any]]:
    data = _read(folder, MANIFEST_FILE)
    with _step(MANIFEST_FILE):
        if data.count(b",") + data.count(b"[") + data.count(b"{") > _MOST_VALUES:
            raise IntegrityError("it has more values than a manifest can have")
        manifest = parse_json(data)
        if not isinstance(manifest, dict):
            raise IntegrityError("it is not a manifest")
        if manifest["format"] != "1":
            raise IntegrityError("its form is of another version of the software")
    return data, manifest


def _check_files(
    folder: Path,
    files: Mapping[str, tuple[str, int]],
    evidence: Evidence,
    manifest: Mapping[str, Any],
    workspace: Workspace,
    progress: Progress,
    *,
    written: bool,
) -> tuple[int, bool]:
    """Check that the folder holds exactly the listed files, unchanged.

    Returns:
        The number of records, and whether the data are described as this version does.
    """
    held = _check_listed(folder, files, evidence.plan)
    n_released = n_records(evidence.plan, evidence.addendum)
    described = True
    if PARQUET_FILE in held:
        with _step(PARQUET_FILE):
            schema = check_footer(folder / PARQUET_FILE, evidence.plan, n_released)
            described = check_descriptions(schema, release_schema(evidence.plan), evidence.plan, manifest)
        if evidence.plan.events is not None:
            (name,) = event_files(evidence.plan.events, [PARQUET_FILE])
            with _step(name, others=(OSError, pa.ArrowException)), open_parquet(folder / name) as file:
                expected = events_schema(evidence.plan.events)
                described &= check_descriptions(file.schema_arrow, expected, evidence.plan, manifest)
    compared = REPORT_FILE in files and manifest["version"] == __version__ and not written
    read = held[:1] if written else held
    with ColumnSummaries(evidence.plan.released if compared else (), workspace) as summaries:
        progress.begin("verifying", n_released)
        streams = [_stream(folder / name, evidence.plan, n_released) for name in read]
        start, records = 0, companion_files(evidence.plan).records(evidence)
        for pieces in zip(*streams, strict=True):
            with _step("the data"):
                units = check_values(dict(zip(read, pieces, strict=True)), evidence.plan, start)
            summaries.add(units)
            records.add(units)
            start += pieces[0].num_rows
            progress.advance(pieces[0].num_rows)
        records.check(folder, _HINT, lambda: progress.advance(0))
        if compared:
            _check_report(folder, files[REPORT_FILE][0], evidence, manifest, summaries.finish(), held)
    if DESCRIPTION_FILE in files and manifest["version"] == __version__ and not written:
        others = {name: stated for name, stated in files.items() if name != DESCRIPTION_FILE}
        with _step(DESCRIPTION_FILE):
            if digest(describe(manifest, evidence, others)) != files[DESCRIPTION_FILE][0]:
                raise IntegrityError("it is not the description of this manifest and these files")
    return n_released, described


def _check_listed(folder: Path, files: Mapping[str, tuple[str, int]], plan: Plan) -> list[str]:
    """Check that a folder holds the listed files, unchanged, and no other; return its data files."""
    held = [name for name in DATA_FILES if name in files]
    others = (*companion_files(plan).files, *event_files(plan.events, held))
    described = (DESCRIPTION_FILE,) if plan.described else ()
    if unknown := sorted(set(files) - {*DATA_FILES, REPORT_FILE, *described, *others}):
        raise IntegrityError(f"the manifest lists {', '.join(unknown)}, which no release has", _HINT)
    present = {path.name for path in folder.iterdir()} - {MANIFEST_FILE, SIGNATURE_FILE}
    if missing := sorted(set(files) - present):
        raise IntegrityError(f"{', '.join(missing)} is missing from the folder", _HINT)
    if extra := sorted(present - set(files)):
        raise IntegrityError(f"{', '.join(extra)} does not belong to the release", _HINT)
    for name, (expected, size) in files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
            raise IntegrityError(f"{name} was changed: its size is not that of the manifest", _HINT)
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != expected:
                raise IntegrityError(f"{name} was changed: its digest is not that of the manifest", _HINT)
    # A release may lack its report: data are not kept back for a page that could not be made.
    if not held:
        raise IntegrityError("the release has no data file", _HINT)
    if lacking := [name for name in others if name not in files]:
        raise IntegrityError(f"the release has no {lacking[0]}", _HINT)
    return held


def _stream(path: Path, plan: Plan, n_records: int) -> Iterator[pa.Table]:
    """Read a data file in pieces that have as many records as those of any other data file."""
    with _step(path.name):
        yield from in_pieces(data_pieces(path, plan, n_records), PIECE_RECORDS)


def _check_report(
    folder: Path,
    expected: str,
    evidence: Evidence,
    manifest: Mapping[str, Any],
    summaries: Mapping[str, ColumnSummary | None],
    held: Sequence[str],
) -> None:
    """Check that the report is the page that manifest and data make."""
    from common.release.report import render_report

    published = datetime.fromisoformat(manifest["times"]["published"])
    document = manifest_document(evidence, manifest["aggregator"]["certificates"], published)
    counts = companion_files(evidence.plan).counts(folder, evidence.plan)
    if digest(render_report(document, evidence, summaries, held, counts).encode()) != expected:
        raise IntegrityError(f"{REPORT_FILE} is not the report of this manifest and these data", _HINT)
