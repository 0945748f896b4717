"""Every code that a contract can be refused or warned with: what it means, an example, and what to do.

`weighbridge explain CODE` prints one; the page `spec/contract.md` lists all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One code: what was found, an example of it, what to do; `warning` for what stops nothing."""

    means: str
    example: str
    remedy: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.means}\nExample: {self.example}\nWhat to do: {self.remedy}"


_FILE: Final = {
    "file-missing": Code(
        means="There is no file of that name.",
        example="weighbridge lint contract.yaml, where the file is contracts/contract.yaml.",
        remedy="Check the path; relative paths start at the current folder.",
    ),
    "file-kind": Code(
        means="The name is that of a directory, FIFO, socket or device. Only regular files are read, so nothing hangs.",
        example="weighbridge lint contracts/ instead of contracts/*.yaml.",
        remedy="Name the file itself.",
    ),
    "file-size": Code(
        means="The file is larger than a contract can be (1 MiB), and was not read further.",
        example="A checkpoint named where a contract belongs.",
        remedy="Check that the right file was named.",
    ),
    "file-unreadable": Code(
        means="The operating system refused to open or read the file; its reason is told.",
        example="A file of another user, without permission to read.",
        remedy="Check the path and the permissions.",
    ),
    "unknown-builtin": Code(
        means="No contract of that name ships with weighbridge.",
        example="builtin:checkpoint-imports; there is builtin:checkpoint-import.",
        remedy="Take one of the names that are listed, or name a file.",
    ),
}

_YAML: Final = {
    "yaml-size": Code(
        means="The text has more than 1 MiB.",
        example="A log pasted into a contract.",
        remedy="Check that it is the right file; split it where it really is that large.",
    ),
    "yaml-depth": Code(
        means="Lists and mappings are nested deeper than 64. Reading stops there.",
        example="A hundred thousand opening brackets.",
        remedy="Flatten the document.",
    ),
    "yaml-values": Code(
        means="The document holds more than 20,000 values.",
        example="Measurements written into a contract.",
        remedy="Split the file; measurements belong into evidence.",
    ),
    "yaml-encoding": Code(
        means="The file is not UTF-8; the first byte that is not is told with its offset.",
        example="A file saved as UTF-16 or Latin-1, or a binary file.",
        remedy="Save it as UTF-8 text.",
    ),
    "yaml-character": Code(
        means="A character that has no place in a contract: a tab, a NUL, a byte order mark, a control character, a"
        " line end that editors count differently, half a surrogate pair.",
        example="A line indented with a tab.",
        remedy="Use spaces and plain line ends; inside a quoted text write the character as an escape.",
    ),
    "yaml-empty": Code(
        means="There is nothing in the file but comments or white space.",
        example="A file that was touched but never written.",
        remedy="Write the document, or delete the file.",
    ),
    "yaml-syntax": Code(
        means="The text is not YAML; where the parser gave up is told. The slip is often a little before that place.",
        example="title: Loss: below the baseline, which needs quotes because of the second colon.",
        remedy="Check indentation, quotes, brackets and colons up to that place.",
    ),
    "yaml-documents": Code(
        means="A second document follows in the same file.",
        example="Two contracts with --- between them.",
        remedy="Keep one document in a file.",
    ),
    "yaml-directive": Code(
        means="A line that starts with % directs the YAML parser, and contracts have one form only.",
        example="%YAML 1.1",
        remedy="Delete the line.",
    ),
    "yaml-doubled-key": Code(
        means="A key is given twice in one mapping. Most YAML readers silently keep the last; a limit could vanish so.",
        example="below_ms: 500 and, further down in the same mapping, below_ms: 5000.",
        remedy="Keep one of the two; the line of the first is told.",
    ),
    "yaml-key": Code(
        means="A key is not a text but a number, true, null, a list or a mapping.",
        example="1: first",
        remedy='Quote it, as "1": first. The words on, off, yes and no are texts already.',
    ),
    "yaml-merge-key": Code(
        means="The merge key << is refused: it hides what a gate really says, and can blow a small file up.",
        example="<<: *defaults",
        remedy="Write the keys out, or use extends: for a whole contract.",
    ),
    "yaml-alias": Code(
        means="Anchors and aliases are refused: a contract is read by people, and aliases can blow a small file up.",
        example="with: &limits {below_ms: 500}, and later with: *limits.",
        remedy="Write the value out, or use a parameter.",
    ),
    "yaml-tag": Code(
        means="Tags are refused: they ask the reader to make another type, or even to run code.",
        example="below_ms: !!float 500",
        remedy="Delete the tag; quote what is meant as a text.",
    ),
    "yaml-leading-zero": Code(
        means="A number starts with a zero. Some readers take it for octal, some for decimal.",
        example="steps: [020, 049]",
        remedy="Delete the zero; quote it if a text is meant; write 0o17 if octal is meant.",
    ),
    "yaml-number": Code(
        means="A number has more digits than are read (64), or overflows a 64-bit float.",
        example="below_ms: 1e999",
        remedy="Write a number that exists; quote it if a text, such as a commit, is meant.",
    ),
}

_STRUCTURE: Final = {
    "unknown-key": Code(
        means="A key that does not exist at this place. None is ignored: a typo would switch a rule off.",
        example="severty: required; did you mean 'severity'?",
        remedy="Take the key that is suggested or one of those listed.",
    ),
    "missing-key": Code(
        means="A key that must be there is not.",
        example="A gate without kind.",
        remedy="Add it.",
    ),
    "typed-status": Code(
        means="Nobody types a status: it is folded from the ledger, the ledger from verdicts, verdicts from"
        " measurements. A contract that says DISCHARGED proves nothing.",
        example="status: DISCHARGED",
        remedy="Delete the key, and ask `weighbridge status`.",
    ),
    "wrong-type": Code(
        means="A value is of another type than its place needs.",
        example="version: 1.10, which is the number 1.1; or below_ms: fast.",
        remedy="Give a value of the type that is told; quote texts that look like numbers.",
    ),
    "wrong-length": Code(
        means="A list has too few or too many items.",
        example="steps: [20]",
        remedy="Give as many items as are asked for.",
    ),
    "unknown-choice": Code(
        means="A word is not among those that may stand here.",
        example="statistic: medain; did you mean 'median'?",
        remedy="Take the word that is suggested or one of those listed.",
    ),
    "bad-form": Code(
        means="A text or a name is not of the form that its place needs.",
        example="id: My_Contract; ids are lower-case words joined by hyphens.",
        remedy="Write it in the form that is told.",
    ),
    "out-of-bounds": Code(
        means="A number is not finite, or outside the sane bounds of its limit.",
        example="below_ms: 1e308, a budget that nothing could break.",
        remedy="Give a number inside the bounds that are told.",
    ),
}

_MEANING: Final = {
    "unknown-kind": Code(
        means="There is no gate kind of that name.",
        example="kind: dtype-preservaton",
        remedy="Take the kind that is suggested; `weighbridge explain` lists all.",
    ),
    "unknown-role": Code(
        means="The gate kind has no such role for a subject.",
        example="subjects: {src: a, candidate: b} for byte-identity, whose roles are source and candidate.",
        remedy="Use the kind's own roles, so that order can never swap a promise.",
    ),
    "missing-role": Code(
        means="A role of the gate kind is left empty.",
        example="subjects: {source: a} for byte-identity, which also needs a candidate.",
        remedy="Name a subject for every role.",
    ),
    "unknown-subject": Code(
        means="A gate names a subject that the contract does not declare.",
        example="subjects: {run: rnu}",
        remedy="Declare it under subjects:, or take the name that is suggested.",
    ),
    "subject-kind": Code(
        means="A subject is of another kind than the role takes.",
        example="A checkpoint in the role run.",
        remedy="Name a subject of the right kind.",
    ),
    "inconsistent-limits": Code(
        means="Limits that are sane one by one contradict each other, so that the gate could never pass or never fail.",
        example="steps: [20, 29] with min_samples: 30; the window holds only ten steps.",
        remedy="Change one of them; what contradicts what is told.",
    ),
    "requires-on-record": Code(
        means="requires: says what this host needs to measure a live model or command. A recorded run or a checkpoint"
        " is judged the same on every host, so it must not be excused.",
        example="requires: {cuda: true} on no-silent-cpu-fallback.",
        remedy="Delete requires.",
    ),
    "executed-path": Code(
        means="A command or a model is code. A contract file alone never makes anything run.",
        example="subjects: {trainer: {kind: command, path: train.sh}}",
        remedy="Delete the path, and bind it on the command line: --subject trainer=./train.sh",
    ),
    "absolute-path": Code(
        means="A path in a contract is relative to the contract, so that it means the same on every machine.",
        example="path: /home/me/runs/a",
        remedy="Write it relative to the contract, or bind it with --subject.",
    ),
    "path-and-glob": Code(
        means="A subject has both a path, which is one thing, and for_each, which is many.",
        example="path: a.gguf and for_each: models/*.gguf",
        remedy="Keep one of the two.",
    ),
    "doubled-gate": Code(
        means="Two gates have one id. Letter case does not tell them apart, because the ledger's folders bear them.",
        example="GATE-A and, further down, gate-a.",
        remedy="Give every gate an id of its own.",
    ),
    "unknown-gate": Code(
        means="depends_on names a gate that the contract does not have.",
        example="depends_on: [GATE-9]",
        remedy="Take the id that is suggested, or delete it.",
    ),
    "circular-gate": Code(
        means="A gate depends on one that depends on it in turn.",
        example="A depends on B, and B on A.",
        remedy="Delete one of the two dependencies.",
    ),
    "unresolved": Code(
        means="A reference in ${…} names no parameter of the contract.",
        example="below_ms: ${params.budget} where the parameter is called budget_ms.",
        remedy="Write ${params.NAME} for a name under params:.",
    ),
    "unknown-param": Code(
        means="--param names a parameter that the contract does not have.",
        example="--param budget=400 where the parameter is called budget_ms.",
        remedy="Take the name that is suggested.",
    ),
    "extends-itself": Code(
        means="A contract extends itself, directly or in turn, or the chain is longer than eight.",
        example="a.yaml extends b.yaml, which extends a.yaml.",
        remedy="Extend a contract that stands on its own.",
    ),
    "loosened": Code(
        means="A contract may tighten what it extends. Here something is looser, or changed in a way that is not known"
        " to be tighter, and no reason is given.",
        example="below_ms: 800 where the contract that is extended says 500.",
        remedy="Keep the tighter value, or write relax: with the reason beside it, where everyone sees it.",
    ),
    "reused-version": Code(
        means="One id and version stand for two contents: in two files, or in this file and the ledger. Evidence names"
        " contracts by id and version, so each must be one promise for ever.",
        example="A limit changed, and the version still 1.0.0.",
        remedy="Raise the version.",
    ),
}

_WARNINGS: Final = {
    "time-without-where": Code(
        means="A time budget without where: holds for whatever shape the run had. A small batch passes any budget.",
        example="wall-time-budget without where: {tokens_per_step: 2048}.",
        remedy="Say the shape that the budget is for.",
        warning=True,
    ),
    "unused-subject": Code(
        means="No gate looks at a subject that the contract declares.",
        example="A checkpoint declared, and every gate about the run.",
        remedy="Delete it, or write the gate.",
        warning=True,
    ),
    "unused-param": Code(
        means="Nothing refers to a parameter that the contract declares.",
        example="budget_ms declared, and below_ms: 500 typed in the gate.",
        remedy="Use ${params.NAME}, or delete it.",
        warning=True,
    ),
    "needless-relax": Code(
        means="relax: gives a reason for being looser, and the gate is not looser than what it extends.",
        example="relax: on a contract that extends nothing.",
        remedy="Delete relax.",
        warning=True,
    ),
}

CODES: Final[Mapping[str, Code]] = {**_FILE, **_YAML, **_STRUCTURE, **_MEANING, **_WARNINGS}
