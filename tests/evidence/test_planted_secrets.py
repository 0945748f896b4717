"""Secrets of every kind, planted wherever a verification reads: none is sealed, and none is repeated in a refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cases import each
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.evidence import drafts
from tests.evidence.planted import PATHS, PERSONAL, PLANTED

from weighbridge.core.errors import BundleError
from weighbridge.evidence.bundle import seal
from weighbridge.evidence.redact import scan

EVERYWHERE = {**PLANTED, **{name: (path, path) for name, path in PATHS.items()}}


def sealed_bytes(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_secret_of_any_kind_is_sealed_from_arguments_environment_logs_names_or_metadata(
    cli: Cli,  # noqa: F811
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everywhere = {**EVERYWHERE, **{name: (text, text) for name, text in PERSONAL.items()}}
    tensors = {f"layer {secret}": np.arange(4, dtype=np.float32) for secret, _ in everywhere.values()}
    metadata = {f"note_{name}": secret for name, (secret, _) in everywhere.items()}
    save_file(tensors, workplace / "a.safetensors", metadata)
    save_file(dict(list(tensors.items())[::-1]), workplace / "b.safetensors", metadata | {"more": "1"})
    (workplace / "train.log").write_text("\n".join(secret for secret, _ in everywhere.values()))
    for name, (secret, _) in everywhere.items():
        monkeypatch.setenv(f"PLANTED_{name.upper().replace('-', '_').replace(' ', '_')}", secret)
    named = {f"in-{name}": f"of {secret} end" for name, (secret, _) in PLANTED.items() if "/" not in secret}
    for file in named.values():
        (workplace / file).write_text("x")
    words = ("verify", "builtin:checkpoint-import", "--subject", "source=a.safetensors", "--subject",
             "import=b.safetensors", "--attach", "log=train.log",
             *(word for role, file in named.items() for word in ("--input", f"{role}={file}")))  # fmt: skip
    ended = cli(*words)
    assert ended.code == 0, ended.err
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    kept = sealed_bytes(bundle)
    assert [name for name, (_, core) in everywhere.items() if core.encode() in kept] == []
    assert kept.count(b"[withheld:") >= 2 * len(PLANTED)


@each("name", EVERYWHERE)
@each("around", ["{}", "see {} there", "--header={}", '{{"argv":["{}"]}}', "LOG: {}\nnext", "# {}\n"])
def test_a_secret_is_taken_out_wherever_it_stands_in_a_text(name: str, around: str) -> None:
    secret, core = EVERYWHERE[name]
    text = around.format(secret)
    assert scan(text.encode(), drafts.REDACTOR) is not None
    clean = drafts.REDACTOR.text(text)
    assert core not in clean
    assert scan(clean.encode(), drafts.REDACTOR) is None


@each("name", EVERYWHERE)
def test_a_contract_whose_comment_holds_a_secret_is_refused_without_repeating_it(name: str, tmp_path: Path) -> None:
    secret, core = EVERYWHERE[name]
    draft = drafts.draft(contract_yaml=f"# {secret}\n".encode() + drafts.written(drafts.contract()))
    with pytest.raises(BundleError, match="secret-found") as caught:
        seal(draft, tmp_path, drafts.REDACTOR)
    assert core not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@each("name", PERSONAL)
@each("around", ["{}", "layer {}", "see {} there", '{{"argv":["{}"]}}', "LOG: {}\nnext", "host={}"])
def test_who_and_which_machine_is_a_pseudonym_in_what_is_reported_and_no_reason_to_refuse_a_contract(
    name: str, around: str
) -> None:
    text = around.format(PERSONAL[name])
    clean = drafts.REDACTOR.text(text)
    assert PERSONAL[name].partition(":2950")[0] not in clean
    assert "anne" not in clean
    assert drafts.REDACTOR.text(clean) == clean
    assert scan(text.encode(), drafts.REDACTOR) is None
