"""`ro-crate-metadata.json`: a release described for catalogues, crawlers and research environments.

One JSON-LD document that follows from the manifest and the digests of the files: anyone who has the folder
can make it again. It is an RO-Crate 1.2. Terms of the Five Safes profile say who agreed and checked. Crawlers
read schema.org, loaders a record set of Croissant with columns of CSVW, and catalogues a
`dcat:Dataset` of DCAT-AP 3 with terms of HealthDCAT-AP and codes of the DUO. RO-Crate asks for a flat list:
what others nest is an entity here, named by its place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from common.model.permit import DUO, ONTOLOGY, condition_texts
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.release.evidence import Evidence
from common.release.table import events_schema, release_schema
from common.words.numbers import count_text

DESCRIPTION_FILE = "ro-crate-metadata.json"
CROISSANT = "http://mlcommons.org/croissant/1.1"
"""The version of Croissant that the record set follows."""
_CRATE = "https://w3id.org/ro/crate/1.2"
_PREFIXES = {
    "cr": "http://mlcommons.org/croissant/",
    "csvw": "http://www.w3.org/ns/csvw#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "healthdcatap": "http://healthdataportal.eu/ns/health#",
    "obo": ONTOLOGY,
    "shp": "https://w3id.org/shp#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_TYPED = {
    "dcat:byteSize": "xsd:nonNegativeInteger",
    "dct:issued": "xsd:dateTime",
    "healthdcatap:numberOfRecords": "xsd:nonNegativeInteger",
    "spdx:checksumValue": "xsd:hexBinary",
}
_MEDIA = {
    ".csv": "text/csv",
    ".dta": "application/x-stata-dta",
    ".html": "text/html",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".sav": "application/x-spss-sav",
    ".sig": "application/octet-stream",
}
_IANA = "https://www.iana.org/assignments/media-types/"
_FILES = {
    "data": "The released records.",
    "events": "The events of the released persons, one per line, by record and in order.",
    "counts": "The noisy counts that the records follow from.",
    "report": "The release described for people: promises, expected errors, and a summary of every column.",
    "manifest": "Everything that was signed while the release was made, and the digest of every other file.",
}
_OF_TABLES = ("data.", "events.")
_SIGNATURE = "Signature of the aggregator over manifest.json."
_TYPES: Mapping[AttributeType, tuple[str, str]] = {
    AttributeType.INTEGER: ("integer", "Integer"),
    AttributeType.NUMBER: ("decimal", "Float"),
    AttributeType.DATE: ("date", "Date"),
    AttributeType.CATEGORY: ("string", "Text"),
    AttributeType.BOOLEAN: ("boolean", "Boolean"),
}
"""Data types of CSVW and of schema.org, by type of attribute."""
_Entity = dict[str, Any]


def describe(manifest: Mapping[str, Any], evidence: Evidence, files: Mapping[str, tuple[str, int]]) -> bytes:
    """Return the description of a release; the same release gives the same bytes.

    Args:
        manifest: The manifest, with or without the digests of the files.
        files: SHA-256 and bytes of every file beside manifest and signature, by name.
    """
    graph = [
        *_crate(manifest, evidence, sorted(files)),
        *_five_safes(manifest, evidence),
        *_files(files),
        *(each for table in _tables(evidence.plan) for each in _columns(table, sorted(files))),
        *_catalogue(manifest, evidence.plan, files),
    ]
    typed = {term: {"@id": term, "@type": kind} for term, kind in _TYPED.items()}
    document = {"@context": [f"{_CRATE}/context", _PREFIXES | typed], "@graph": graph}
    return json.dumps(document, indent=1, ensure_ascii=False, default=str).encode() + b"\n"


def croissant(description: bytes) -> dict[str, Any]:
    """Return a description as Croissant readers take it: its entities under the context of Croissant.

    They accept one table of terms as context and no address of another, and the version as a text.
    """
    (_, terms), graph = json.loads(description).values()
    names = ("recordSet", "field", "dataType", "source", "fileObject", "extract", "column")
    context = {"@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/", **terms}
    context |= {name: f"cr:{name}" for name in names} | {
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "conformsTo": "dct:conformsTo",
        "citeAs": "cr:citeAs",
    }
    release = next(each for each in graph if each["@id"] == "./")
    terms_of_use = next(each for each in graph if each["@id"] == "#terms")
    kept = ("@id", "@type", "name", "description", "datePublished", "distribution", "cr:recordSet")
    root = {name: release[name] for name in kept} | {
        "conformsTo": CROISSANT,
        "citeAs": release["creditText"],
        "license": terms_of_use["description"],
        "url": release["identifier"],
        "version": "1.0.0",
    }
    parts = [each for each in graph if str(each["@type"]).startswith("cr:")]
    # Croissant gives these two no type and no name.
    for each in parts:
        if each["@type"] in ("cr:Source", "cr:Extract"):
            for name in ("@type", "name", "description"):
                del each[name]
    return {"@context": context, "@graph": [root, *parts]}


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the release as a record set."""

    id: str
    stem: str
    """Beginning of the names of its files."""
    about: str
    schema: pa.Schema
    columns: Mapping[str, Attribute]
    """The attributes among its columns."""

    def at(self, kind: str, name: str) -> str:
        """Return the id of a part of a column's description."""
        return _column_id(kind, name if self.stem == "data" else f"{self.stem}/{name}")


def _tables(plan: Plan) -> Iterator[_Table]:
    """Yield the records, and the events of persons where they are released."""
    columns = {each.name: each for each in plan.columns}
    yield _Table("records", "data", "One record per line, in random order.", release_schema(plan), columns)
    if plan.events is not None:
        columns = {each.name: each for each in plan.events.columns}
        yield _Table("events", "events", _FILES["events"], events_schema(plan.events), columns)


def _refer(ids: Iterable[str]) -> list[dict[str, str]]:
    return [{"@id": each} for each in ids]


def _entity(at: str, kind: str | list[str], name: str, description: str, **more: Any) -> _Entity:
    return {"@id": at, "@type": kind, "name": name, "description": description, **more}


def _column_id(kind: str, name: str) -> str:
    return f"#{kind}-{quote(name, safe='')}"


def _summary(manifest: Mapping[str, Any], plan: Plan) -> str:
    return (
        f"{manifest['totals']['records']} records with {count_text(len(plan.released), 'attribute')} of "
        f"{count_text(len(plan.owners), 'owner')}, {plan.product}. {' '.join(manifest['guarantee'])}"
    )


def _crate(manifest: Mapping[str, Any], evidence: Evidence, files: list[str]) -> Iterator[_Entity]:
    """Yield the descriptor, the release and the disclosure facts."""
    plan, totals = evidence.plan, manifest["totals"]
    sets = _refer(f"#{table.id}" for table in _tables(plan))
    smallest_k = min((owner["k"] for owner in manifest["owners"] if owner["k"] is not None), default=None)
    facts = {
        "product": str(plan.product),
        "layout": str(plan.layout),
        "epsilon": totals["epsilon"],
        "epsilon_joint": "unbounded" if totals["epsilon_joint"] is None else totals["epsilon_joint"],
        "delta": totals.get("delta", 0),
        **({} if smallest_k is None else {"k": smallest_k}),
        "plan_digest": plan.digest,
        "composition": manifest["composition"],
        "guarantee": " ".join(manifest["guarantee"]),
        "not_hidden": " ".join(manifest["invariants"]),
        "how_to_verify": "tessera-release: aggregator verify FOLDER --ca CA.pem",
    }
    yield {
        "@id": DESCRIPTION_FILE,
        "@type": "CreativeWork",
        "name": "Description of the release",
        "conformsTo": {"@id": _CRATE},
        "about": {"@id": "./"},
    }
    yield _entity(
        "./", "Dataset", f"Release {plan.release}", _summary(manifest, plan),
        datePublished=manifest["times"]["published"],
        dateCreated=plan.created,
        version="1",
        identifier=f"urn:sha256:{plan.digest}",
        license={"@id": "#terms"},
        publisher={"@id": "#aggregator"},
        creator=_refer(f"#owner-{owner}" for owner in plan.owners),
        sourceOrganization={"@id": "#project"},
        keywords=["statistical disclosure control", "differential privacy", str(plan.product)],
        creditText=f"{plan.release}: protected release of {totals['records']} records. "
        f"{plan.aggregator}, {manifest['times']['published'][:10]}. Plan SHA-256 {plan.digest}.",
        conformsTo={"@id": CROISSANT},
        hasPart=_refer([*files, "manifest.json", "manifest.sig"]),
        mentions=_refer(["#making", "#check", *(f"#consent-{owner}" for owner in plan.owners)]),
        variableMeasured=_refer(
            table.at("column", name) for table in _tables(plan) for name in table.schema.names
        ),
        additionalProperty=_refer(f"#fact-{name}" for name in facts),
        distribution=_refer(f"#file-{name}" for name in files if name.startswith(_OF_TABLES)),
        about={"@id": "#dcat"},
        **{"cr:recordSet": sets[0] if len(sets) == 1 else sets},
    )  # fmt: skip
    yield _entity(CROISSANT, ["CreativeWork", "Profile"], "Croissant 1.1", "Record sets for loaders.")
    for name, value in facts.items():
        yield {"@id": f"#fact-{name}", "@type": "PropertyValue", "name": name, "value": str(value)}


def _five_safes(manifest: Mapping[str, Any], evidence: Evidence) -> Iterator[_Entity]:
    """Yield the project with its permit, the terms of use, the parties, and what each did."""
    plan, published = evidence.plan, manifest["times"]["published"]
    purpose = plan.purpose or "No purpose was stated."
    permit = f"Data permit {plan.permit}." if plan.permit else "No data permit was stated."
    conditions = condition_texts(plan.duo)
    stated = "; ".join(conditions) or "none were stated"
    yield _entity(
        "#project", "Project", plan.purpose or plan.release, f"{purpose} {permit}",
        **({"identifier": plan.permit} if plan.permit else {}),
    )  # fmt: skip
    yield _entity(
        "#terms", "CreativeWork", "Terms of use",
        f"This file grants no licence. Purpose: {purpose} {permit} Conditions of use: {stated}.",
        **({"about": _refer(f"obo:{code.replace(':', '_')}" for code in plan.duo)} if plan.duo else {}),
    )  # fmt: skip
    for code in plan.duo:
        term = f"obo:{code.replace(':', '_')}"
        yield _entity(term, "DefinedTerm", DUO[code], "A condition of use (DUO).", termCode=code)
    yield _entity("#aggregator", ["Organization", "foaf:Agent"], plan.aggregator, "The aggregator.") | {
        "foaf:name": plan.aggregator
    }
    for owner in manifest["owners"]:
        about = f"Owner of {owner['records']} records; ε {owner['epsilon']}."
        yield _entity(f"#owner-{owner['id']}", "Organization", owner["id"], about)
        yield _entity(
            f"#consent-{owner['id']}", "AssessAction", f"Consent of {owner['id']}",
            "The owner agreed to the plan; its signed consent is in manifest.json.",
            additionalType={"@id": "shp:SignOff"},
            agent={"@id": f"#owner-{owner['id']}"},
            object={"@id": "manifest.json"},
            actionStatus="http://schema.org/CompletedActionStatus",
        )  # fmt: skip
    yield _entity(
        "#check", "AssessAction", "Disclosure check",
        "The bounds follow from the signed plan. The check reads no record: ε, δ and k limit any release.",
        additionalType={"@id": "shp:DisclosureCheck"},
        agent={"@id": "#aggregator"},
        object={"@id": "./"},
        instrument={"@id": "#software"},
        endTime=published,
        actionStatus="http://schema.org/CompletedActionStatus",
    )  # fmt: skip
    yield _entity(
        "#making", "CreateAction", f"Release of {plan.release}",
        "Owners protected their records; the aggregator joined and published them.",
        agent={"@id": "#aggregator"},
        instrument={"@id": "#software"},
        result={"@id": "./"},
        startTime=plan.created,
        endTime=published,
        actionStatus="http://schema.org/CompletedActionStatus",
    )  # fmt: skip
    yield _entity(
        "#software", "SoftwareApplication", "tessera-release", "The program of owners and aggregator.",
        version=manifest["version"], url="https://pypi.org/project/tessera-release/",
    )  # fmt: skip


def _files(files: Mapping[str, tuple[str, int]]) -> Iterator[_Entity]:
    """Yield every file of the folder, and the data files once more as Croissant names them."""
    for name in (*sorted(files), "manifest.json", "manifest.sig"):
        stem, suffix = name.split(".")
        about = _SIGNATURE if suffix == "sig" else _FILES[stem]
        form = {"encodingFormat": _MEDIA[f".{suffix}"]}
        if name not in files:
            yield _entity(name, "File", name, about, **form)
            continue
        sha256, size = files[name]
        yield _entity(name, "File", name, about, **form, contentSize=str(size), sha256=sha256)
        if name.startswith(_OF_TABLES):
            yield _entity(
                f"#file-{name}", "cr:FileObject", name, about, **form, contentSize=f"{size} B",
                sha256=sha256, contentUrl=name,
            )  # fmt: skip


def _columns(table: _Table, files: list[str]) -> Iterator[_Entity]:
    """Yield a record set and, of every column, its measure, its field and where the field is read."""
    yield _entity(f"#{table.id}", "cr:RecordSet", table.id, table.about) | {
        "cr:field": _refer(table.at("field", name) for name in table.schema.names)
    }
    # The file with types first.
    held = [name for name in files if name.startswith(f"{table.stem}.")]
    file = next((name for name in held if name.endswith(".parquet")), held[0])
    for field in table.schema:
        name, said = field.name, field.metadata[b"description"].decode()
        attribute = table.columns.get(name)
        csvw, schema_org = _TYPES[AttributeType.INTEGER if attribute is None else attribute.type]
        yield _entity(
            table.at("column", name), ["PropertyValue", "csvw:Column"], name, said,
            **{
                "csvw:name": name, "csvw:titles": name, "dct:description": said,
                "csvw:datatype": csvw, "csvw:required": not field.nullable,
            },
            **({"csvw:null": ""} if field.nullable else {}),
            **(_domain(attribute) if attribute is not None else {}),
        )  # fmt: skip
        yield _entity(table.at("field", name), "cr:Field", name, said) | {
            "cr:dataType": {"@id": f"https://schema.org/{schema_org}"},
            "cr:source": {"@id": table.at("source", name)},
        }
        yield _entity(table.at("source", name), "cr:Source", name, f"Where {name} is read.") | {
            "cr:fileObject": {"@id": f"#file-{file}"},
            "cr:extract": {"@id": table.at("extract", name)},
        }
        yield _entity(table.at("extract", name), "cr:Extract", name, f"The column {name}.") | {
            "cr:column": name
        }


def _domain(attribute: Attribute) -> _Entity:
    """Return the declared values: labels, or both ends and the unit of resolution."""
    if attribute.is_categorical:
        return {"valueReference": list(attribute.labels)}
    ends = {"minValue": attribute.min, "maxValue": attribute.max}
    return ends | ({"unitText": f"steps of {attribute.resolution}"} if attribute.resolution else {})


def _catalogue(
    manifest: Mapping[str, Any], plan: Plan, files: Mapping[str, tuple[str, int]]
) -> Iterator[_Entity]:
    """Yield the data set and its distributions in terms of DCAT-AP 3 and HealthDCAT-AP."""
    data = [name for name in sorted(files) if name.startswith("data.")]
    summary, title = _summary(manifest, plan), f"Release {plan.release}"
    yield _entity("#dcat", ["CreativeWork", "dcat:Dataset"], title, "The release as catalogues list it.") | {
        "dct:title": title,
        "dct:description": summary,
        "dct:identifier": f"urn:sha256:{plan.digest}",
        "dct:issued": manifest["times"]["published"],
        "dct:publisher": {"@id": "#aggregator"},
        "dct:provenance": {"@id": "#provenance"},
        "dct:rights": {"@id": "#rights"},
        "dcat:keyword": ["statistical disclosure control", "differential privacy"],
        "dcat:distribution": _refer(f"#dcat-{name}" for name in data),
        "healthdcatap:numberOfRecords": str(manifest["totals"]["records"]),
        **({"dpv:hasPurpose": {"@id": "#purpose"}} if plan.purpose else {}),
        **(
            {"obo:DUO_0000001": _refer(f"obo:{code.replace(':', '_')}" for code in plan.duo)}
            if plan.duo
            else {}
        ),
    }
    if plan.purpose:
        yield _entity("#purpose", ["CreativeWork", "dpv:Purpose"], plan.purpose, "The stated purpose.")
    yield _entity(
        "#provenance", ["CreativeWork", "dct:ProvenanceStatement"], "Provenance", manifest["composition"]
    )
    rights = " ".join(
        filter(None, [plan.permit and f"Data permit {plan.permit}.", *condition_texts(plan.duo)])
    )
    yield _entity(
        "#rights", ["CreativeWork", "dct:RightsStatement"], "Rights", rights or "No conditions were stated."
    )
    for name in data:
        sha256, size = files[name]
        yield _entity(f"#dcat-{name}", ["CreativeWork", "dcat:Distribution"], name, _FILES["data"]) | {
            "dct:title": name,
            "dct:description": _FILES["data"],
            "dcat:accessURL": {"@id": name},
            "dcat:mediaType": {"@id": f"{_IANA}{_MEDIA[name.removeprefix('data')]}"},
            "dcat:byteSize": str(size),
            "spdx:checksum": {"@id": f"#checksum-{name}"},
        }
        yield _entity(f"#checksum-{name}", ["CreativeWork", "spdx:Checksum"], "SHA-256", f"Of {name}.") | {
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": sha256,
        }
    for media in sorted({_MEDIA[name.removeprefix("data")] for name in data}):
        yield _entity(f"{_IANA}{media}", ["WebPage", "dct:MediaType"], media, "A media type.")
