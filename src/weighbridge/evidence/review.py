"""Five questions about a bundle, each answered for itself, and what differs between two; no proof of honesty."""

import contextlib
import enum
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from weighbridge.contract.resolved import check_limits, contract_to_json, digests
from weighbridge.core import BundleError, Json, UsageError, WeighbridgeError, dumps, loads, model, nearest, plain
from weighbridge.core.errors import FAULTS, PluginError, SubjectError
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.local_files import is_file, is_folder
from weighbridge.core.plugins import changed, here
from weighbridge.evidence import manifest, signatures, statement
from weighbridge.evidence.bundle import Bundle, Opened, decode, open_bundle, whole
from weighbridge.evidence.codec import finding_to_json, findings_from_json, findings_to_bytes
from weighbridge.evidence.disk import digest_regular
from weighbridge.evidence.statement import CLOCK_SKEW_S, DAY_S, Predicate, SubjectFiles, moment
from weighbridge.gates import KINDS
from weighbridge.judging.judging import judge_contract

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


class State(enum.StrEnum):
    """What an answer comes to."""

    HOLDS = "holds"
    BROKEN = "broken"
    CANNOT_SAY = "cannot say"
    NONE = "none"


Read: TypeAlias = Callable[[Path, Collection[str]], SubjectFiles]  # of the files beside it, those of these names
HOLDS, BROKEN, CANNOT_SAY = State.HOLDS, State.BROKEN, State.CANNOT_SAY


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: what it comes to, in one line, with the places behind it."""

    state: State
    says: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answers:
    """The five answers about one bundle, and the bundle where it could be read."""

    id: str
    bundle: Bundle | None
    integrity: Answer
    rederivation: Answer
    authenticity: Answer
    freshness: Answer
    coverage: Answer

    @property
    def exit_code(self) -> int:
        """Return 0 where the bundle holds, 1 where it does not, 3 where it cannot be judged again here."""
        looked = self.integrity.state, self.rederivation.state
        if BROKEN in (*looked, self.authenticity.state):
            return 1
        return 3 if CANNOT_SAY in looked else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What a bundle is checked by beyond itself."""

    now: datetime
    given: str = ""  # the id that the reviewer knows, or its first digits
    recorded: Collection[str] | None = None  # the ids that the ledger names
    contracts: Mapping[str, str] = field(default_factory=dict)  # digests of contracts as they stand now, by id
    anchored: bool = False  # whether `given` or `recorded` must have the id
    keys: "Mapping[str, SSlibKey]" = field(default_factory=dict)  # by the names of their files; one must have signed


UNREAD = Answer(CANNOT_SAY, "not asked: the integrity is broken")


def verify(path: Path, against: Against, folder: manifest.BundleFolder | None = None) -> Answers:
    """Answer for a bundle's folder or archive; `folder` as for `open_bundle`, which raises where there is no bundle."""
    opened = open_bundle(path, against.given, against.recorded or (), folder)
    if opened.problems:
        return _unread(opened.id, opened.problems)
    try:
        bundle = decode(opened)
        problems = tuple(_contradictions(bundle))
    except (WeighbridgeError, RecursionError) as problem:
        return _unread(opened.id, (problem,))
    files = len(opened.files) + 2
    says = f"{files} of {files} files as sealed, id {opened.id[:12]}"
    integrity = Answer(HOLDS, f"{says}; {opened.anchor}")
    if problems:
        integrity = _broken(problems)
    elif not opened.anchor:
        why = "no ledger was given" if against.recorded is None else "the ledger does not name this id"
        says = f"{says}; NOT ANCHORED: {why}, so only the folder's name vouches for it"
        integrity = Answer(BROKEN if against.anchored else HOLDS, says)
    judged, signed = rederivation(bundle), _authenticity(opened, against.keys)
    return Answers(bundle.id, bundle, integrity, judged, signed, freshness(bundle, against), coverage(bundle))


def sound(path: Path, against: Against, folder: manifest.BundleFolder | None = None) -> Opened:
    """Open a bundle to be passed on, or raise `not-whole`: its bytes, verdicts and signatures must hold."""
    answers = verify(path, against, folder)
    for one in (answers.integrity, answers.rederivation, answers.authenticity):
        if one.state is BROKEN:
            raise BundleError("not-whole", one.says, where=str(path), remedy="run: weighbridge evidence verify")
    return whole(path, against.given, folder)


def judged_again(path: Path, code: str, remedy: str) -> Bundle:
    """Return a bundle that holds now, judged again, or raise `code` with the first answer that does not."""
    answers = verify(path, Against(now=datetime.now(UTC)))
    if answers.bundle is not None and not answers.exit_code:
        return answers.bundle
    asked = (answers.integrity, answers.rederivation, answers.authenticity)
    why = next((one.says for one in asked if one.state not in (HOLDS, State.NONE)), "broken")
    raise BundleError(code, why, where=str(path), remedy=remedy)


def _unread(found: str, problems: Collection[WeighbridgeError | RecursionError]) -> Answers:
    return Answers(found, None, _broken(problems), UNREAD, Answer(State.NONE, "NONE: not asked"), UNREAD, UNREAD)


def _broken(problems: Collection[WeighbridgeError | RecursionError]) -> Answer:
    shown = tuple(f"{p.where}: {p.what}" if isinstance(p, WeighbridgeError) else "nested too deep" for p in problems)
    return Answer(BROKEN, f"{len(shown)} problems; the first: {shown[0]}", details=shown)


def _contradictions(bundle: Bundle) -> Iterator[BundleError]:
    """Yield where the statement is not what it states: the contract's identity and digests, and what was judged."""
    stated, found = bundle.statement.contract, digests(bundle.contract)
    differ = (name for name in ("whole", "collect", "judge") if getattr(stated, name) != getattr(found, name))
    others = [f"is not the contract stated ({name} part)" for name in differ]
    if (stated.id, stated.version) != (found.id, found.version):
        others.append("has another id or version than stated")
    if bundle.statement.overridden != bundle.contract.overridden:
        others.append("has other parameters overridden than stated")
    yield from (BundleError("contract-digest", what, where=manifest.CONTRACT_JSON) for what in others)
    wanted = [(gate.id, name) for gate in bundle.contract.gates for name in bundle.statement.instances.get(gate.id, ())]
    if [(finding.gate, finding.instance) for finding in bundle.findings] != wanted:
        yield BundleError("findings", "do not stand for each gate on each instance, in order", where=manifest.VERDICTS)
    if not other_versions(bundle) and (wrong := _as_written(bundle)):
        yield BundleError("contract-digest", wrong, where=manifest.CONTRACT_YAML)


def _as_written(bundle: Bundle) -> str:
    """Return how `contract.yaml` contradicts what was judged; what one extends is not here, so its name must do."""
    from weighbridge.contract.load import read_contract  # only here is YAML read

    judged = bundle.contract
    overrides = {name: judged.params.get(name) for name in judged.overridden}
    try:
        found, version, contract = read_contract(bundle.contract_yaml, manifest.CONTRACT_YAML, overrides)
    except WeighbridgeError as problem:
        return f"is no contract that can be judged ({problem.code})"
    if (found, version) != (judged.id, judged.version):
        return "is another contract or version than was judged"
    same = contract is None or digests(contract).whole == bundle.statement.contract.whole
    return "" if same else "is not the contract that was judged"


def rederivation_once(bundle: Bundle, known: MutableMapping[str, Answer]) -> Answer:
    """Return `rederivation` of a whole bundle, which is judged again where its id is not known yet."""
    if bundle.id not in known:
        known[bundle.id] = rederivation(bundle)
    return known[bundle.id]


def rederivation(bundle: Bundle) -> Answer:
    """Judge again and compare byte for byte; what other versions of kinds or plug-ins give cannot be said here."""
    others, brought = other_versions(bundle), brought_otherwise(bundle)
    not_here = Answer(CANNOT_SAY, f"not re-derivable here: {next(iter(brought), '')}", brought[1:])
    if others and brought:
        return not_here
    if others:
        says = f"not re-derivable here: judged by {', '.join(others)}, which this version does not have"
        return Answer(CANNOT_SAY, says, (f"judge it with weighbridge {bundle.statement.tool.version}",))
    try:
        again = rejudge(bundle)
    except FAULTS as problem:  # crafted measurements may break a judge in any way; none may pass
        if brought:
            return not_here
        what = problem.what if isinstance(problem, WeighbridgeError) else "its measurements break a judge"
        return Answer(BROKEN, f"cannot be judged again: {what}")
    count = len(bundle.findings)
    if again == bundle.verdicts:
        return Answer(HOLDS, f"judged again: {count} of {count} verdicts follow, byte for byte", brought)
    if brought:
        return not_here
    changed = []
    for sealed, now in zip(bundle.findings, findings_from_json(loads(again)), strict=False):
        old, new = finding_to_json(sealed), finding_to_json(now)
        if fields := ", ".join(key for key in old if dumps(old[key]) != dumps(new[key])):
            was, judged = (f"{one.verdict.outcome} ({one.verdict.code})" for one in (sealed, now))
            changed.append(f"{sealed.gate}[{sealed.instance}]: sealed {was}, judged again {judged}; {fields}")
    says = f"{len(changed) or 'some'} of {count} verdicts no longer follow from the measurements"
    return Answer(BROKEN, says, tuple(changed))


def _authenticity(opened: Opened, keys: "Mapping[str, SSlibKey]") -> Answer:
    """Return which of the reviewer's keys signed; a signature that was not checked by a key counts for nothing."""
    assert opened.statement is not None
    stated = statement.to_bytes(opened.statement)
    try:
        found = signatures.signatures_in(opened.folder, stated)
        if not keys:
            unchecked = f"signed, {len(found)} signatures not checked: name a key by --key"
            return Answer(State.NONE, f"NONE: {unchecked if found else 'not signed; who measured is not shown'}")
        signed = signatures.check(found, stated, keys)
    except BundleError as refused:
        return Answer(BROKEN, f"{refused.where}: {refused.code} {refused.what}", details=(refused.remedy,))
    named = {key.keyid for key in keys.values()}
    absent = [f"not signed by {file}" for file in keys if file not in signed]
    others = [f"not checked: {keyid[:16]}, whose key was not named" for keyid in found if keyid not in named]
    by = ", ".join(f"{file} ({keys[file].keyid[:16]})" for file in signed)
    return Answer(HOLDS, f"signed by {by}", details=(*absent, *others))


def freshness(bundle: Bundle, against: Against) -> Answer:
    """Return how old the evidence is, against its gates' own limits, and whether the contract has changed since."""
    age_s = (against.now - moment(bundle.statement.finished)).total_seconds()
    if age_s < -CLOCK_SKEW_S:
        return Answer(BROKEN, f"finished {bundle.statement.finished}, which is in the future")
    days = age_s / DAY_S
    limits = ((gate.id, gate.max_age_days) for gate in bundle.contract.gates if gate.max_age_days is not None)
    stale = tuple(f"{gate}: at most {most:g} days old, is {days:.1f}" for gate, most in limits if days > most)
    current, was = against.contracts.get(bundle.contract.id), bundle.statement.contract.whole
    if bundle.contract.overridden:  # the contract says something else than what was judged
        was, current = (digests(one).whole, current) if (one := _written(bundle)) is not None else (was, None)
    if current is not None and current != was:
        stale = ("the contract has changed since", *stale)
    if stale:
        return Answer(BROKEN, f"STALE: {days:.1f} days old; {stale[0]}", details=stale)
    unknown = "" if current is not None else "; whether the contract changed since was not asked"
    return Answer(HOLDS, f"{days:.1f} days old{unknown}")


def coverage(bundle: Bundle) -> Answer:
    """Return how many of the contract's required gates were counted, PASS or FAIL, and what was left out or changed."""
    contract = bundle.contract
    required = [finding for finding in bundle.findings if finding.severity is model.Severity.REQUIRED]
    outcomes = [finding.verdict.outcome for finding in required]
    apart = outcomes.count(model.Outcome.NOT_APPLICABLE)
    counted = sum(one in (model.Outcome.PASS, model.Outcome.FAIL) for one in outcomes)
    missed = [one for one in required if one.verdict.outcome in (model.Outcome.BLOCKED, model.Outcome.ERROR)]
    left = [gate for gate in contract.gates if not bundle.statement.instances.get(gate.id)]
    demanded = [gate for gate in left if gate.severity is model.Severity.REQUIRED]
    shown = [f"{f.gate}[{f.instance}]: {f.verdict.outcome} ({f.verdict.code})" for f in missed]
    shown += [f"{gate.id}: not judged{'' if gate in demanded else ' (advisory)'}" for gate in left]
    whole = len(required) + len(demanded)
    says = f"{counted} of {whole} required gates counted" + (f", {apart} not applicable" if apart else "")
    if not counted and not missed and not left:
        return Answer(BROKEN, f"{says if required else '0 of 0 required gates'}: nothing was shown")
    says += f"; not: {', '.join(shown)}" if shown else ""
    changed = _changed(bundle) if contract.overridden else ()
    says += f"; not the contract as written: {', '.join(changed)}" if changed else ""
    return Answer(BROKEN if missed or demanded or changed else HOLDS, says, details=tuple(shown))


def _changed(bundle: Bundle) -> tuple[str, ...]:
    """Return the overrides, unless the contract says the same; one that extends another does not show what it says."""
    written = _written(bundle)
    return () if written is not None and written.params == bundle.contract.params else bundle.contract.overrides


def _written(bundle: Bundle) -> model.Contract | None:
    """Return the contract without its overrides; None where it extends another, or is none, as integrity says."""
    from weighbridge.contract.load import read_contract

    with contextlib.suppress(WeighbridgeError):
        return read_contract(bundle.contract_yaml, manifest.CONTRACT_YAML, {})[2]
    return None


def _as_file(path: Path, was: Collection[str]) -> SubjectFiles:
    if is_folder(path):
        return SubjectFiles({name: digest_regular(path / name) for name in was if is_file(path / name)})
    return SubjectFiles({path.name: digest_regular(path)})


def subject(stated: Predicate, name: str, path: Path, read: Read = _as_file) -> Answer:
    """Return whether a file, or a folder, is a subject or an input as it was measured; `read` opens a checkpoint."""
    inputs = {one.role: SubjectFiles({one.name: one.sha256}) for one in stated.companions}
    bound: dict[str, tuple[SubjectFiles, Read]] = {role: (files, _as_file) for role, files in inputs.items()}
    for one in stated.subjects:
        bound[f"{one.name}@{one.instance}"] = one, read if one.kind is model.SubjectKind.CHECKPOINT else _as_file
    wanted = {key: looked for key, looked in bound.items() if name in (key, key.partition("@")[0])}
    if not wanted:
        known = {word for key in bound for word in (key, key.partition("@")[0])}
        raise UsageError("unknown-subject", f"the bundle has no subject {name!r}{nearest(name, known)}")
    answers = [_subject(key, path, *looked) for key, looked in wanted.items()]
    return min(answers, key=lambda one: (HOLDS, CANNOT_SAY, BROKEN).index(one.state))


def _subject(key: str, path: Path, was: SubjectFiles, read: Read) -> Answer:
    try:
        here = read(path, was.digests)
    except SubjectError as problem:
        if is_folder(path):
            return Answer(BROKEN, f"{path} is not {key} as it was measured: {problem.what}")
        here = _as_file(path, was.digests)  # a file beside the tensors, perhaps
    unlike, count = here.unlike(was), len(was.digests)
    said = tuple(f"{file}: {why}" for file, why in unlike.items())
    shared = {*here.digests.values()} & {*was.digests.values()}
    if not unlike and shared:
        shown = f", {count} files" if count > 1 else f" (sha256 {min(shared)[:12]}…)"
        return Answer(HOLDS, f"{path} is {key} as it was measured{shown}")
    if shared and not is_folder(path) and unlike.keys() <= was.digests.keys() - here.digests.keys():
        what = f"one of the {count} files of {key}; the others were not looked at, so name the folder that holds them"
        return Answer(CANNOT_SAY, f"{path} is {what}", said)
    shown = "; ".join(said[:3]) or "it has no file that was measured"
    return Answer(BROKEN, f"{path} is not {key} as it was measured: {shown}", said[3:])


def rejudge(bundle: Bundle) -> bytes:
    """Return what `verdicts.json` would hold had the bundle been judged here and now."""
    check_limits(bundle.contract)
    findings = judge_contract(bundle.contract, bundle.statement.instances, bundle.measured, bundle.canaries)
    return findings_to_bytes(findings)


def other_versions(bundle: Bundle) -> tuple[str, ...]:
    """Return what judged this bundle and is not here: kinds in that version, as `kind/version`, and quantities."""
    used = sorted({(finding.kind, finding.kind_version) for finding in bundle.findings})
    kinds = (f"{name}/{version}" for name, version in used if _version_here(name) != version)
    return (*kinds, *(str(one) for one in bundle.plugins if one.what == "quantity" and here(one) is None))


def _version_here(kind: str) -> int | None:
    with contextlib.suppress(PluginError):  # one that cannot be used is as good as none, and says nothing of a bundle
        return getattr(KINDS.get(kind), "version", None)
    return None


def brought_otherwise(bundle: Bundle) -> tuple[str, ...]:
    """Return which plug-ins that judging again needs are not here as they were sealed, and what to install."""
    return tuple(said for one in bundle.plugins if one.what in ("kind", "quantity") and (said := changed(one)))


FIGURES = ("measured", "limit", "enough", "counted", "of", "figures")
ABSENT = "absent"


def differences(one: Bundle, other: Bundle) -> dict[str, dict[str, tuple[Json, Json]]]:
    """Return what differs, by subject matter and place; what one of the two does not have is `absent` there."""
    here, there = _matters(one), _matters(other)
    found: dict[str, dict[str, tuple[Json, Json]]] = {}
    for matter, left in here.items():
        old, new = dict(_leaves(left, "")), dict(_leaves(there[matter], ""))
        places = [place for place in {**old, **new} if dumps(old.get(place, ABSENT)) != dumps(new.get(place, ABSENT))]
        found |= {matter: {at: (old.get(at, ABSENT), new.get(at, ABSENT)) for at in places}} if places else {}
    return found


def _matters(bundle: Bundle) -> dict[str, Any]:
    findings = {f"{one.gate}[{one.instance}]": finding_to_json(one) for one in bundle.findings}
    stated: Any = plain(bundle.statement)
    contract = dict(contract_to_json(bundle.contract)["contract"])
    return {
        "outcomes": {name: " ".join(filter(None, (one["outcome"], one["code"]))) for name, one in findings.items()},
        "figures": {name: {key: one[key] for key in FIGURES} for name, one in findings.items()},
        "subjects": {f"{one['name']}@{one['instance']}": one for one in stated["subjects"]}
        | {one["role"]: one["sha256"] for one in stated["companions"]},
        "environment": {**bundle.environment, "host": stated["host"], "tool": stated["tool"]},
        "contract": contract | {"gates": {gate["id"]: gate for gate in contract["gates"]}},
    }


def _leaves(value: Json, at: str) -> Iterator[tuple[str, Json]]:
    """Yield every value that holds no other, by its place; an empty list or mapping is one, too."""
    if isinstance(value, (Mapping, Sequence)) and value and not isinstance(value, str):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(item, f"{at}/{key}" if at else str(key))
    else:
        yield at, value
