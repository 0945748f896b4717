"""URLs on the command line: read as paths are, and their secrets neither printed nor kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.formats import files
from tests.storage.web import Site, serving

pytest.importorskip("aiohttp")

WEIGHTS = files.safetensors_bytes(
    {"a": ("F32", (64,), bytes(range(1, 129)) * 2), "b": ("BF16", (2,), b"\x01\x3f\x02\x3f")}
)
SECRETS = "user:opensesame@", "?token=alibaba123"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(**{"one.safetensors": WEIGHTS, "two.safetensors": WEIGHTS}) as site:
        yield site


def secret(url: str) -> str:
    return url.replace("//", "//" + SECRETS[0], 1) + SECRETS[1]


def told(text: str) -> list[str]:
    return [word for word in ("opensesame", "alibaba123") if word in text]


def test_compare_reads_both_sides_by_url(cli: Cli, site: Site) -> None:
    ended = cli("compare", f"{site.url}/one.safetensors", f"{site.url}/two.safetensors")
    assert ended.code == 0
    assert ended.lines[0].startswith(f"{site.url}/one.safetensors -> {site.url}/two.safetensors ")


def test_compare_says_that_both_urls_are_one(cli: Cli, site: Site) -> None:
    ended = cli("compare", f"{site.url}/one.safetensors", f"{site.url}/one.safetensors")
    assert "  both paths are the same file, so nothing can differ" in ended.lines


def test_a_damaged_import_elsewhere_differs(cli: Cli, site: Site, workplace: Path) -> None:
    (workplace / "one.safetensors").write_bytes(WEIGHTS)
    site.files["/m/two.safetensors"] = WEIGHTS[:-1] + b"\x40"
    assert cli("compare", "one.safetensors", f"{site.url}/two.safetensors").code == 1


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["compare", "inspect"])
@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("name", ["one.safetensors", "none.safetensors"])
def test_secrets_in_a_url_are_never_printed(cli: Cli, site: Site, verb: str, form: tuple[str, ...], name: str) -> None:
    url = secret(f"{site.url}/{name}")
    ended = cli(verb, *((url, url) if verb == "compare" else (url,)), *form)
    assert ended.code == (0 if name == "one.safetensors" else 4)
    assert f"{site.url}/{name}" in ended.out + ended.err
    assert not told(ended.out + ended.err)


def test_inspect_tells_what_a_url_holds(cli: Cli, site: Site) -> None:
    ended = cli("inspect", f"{site.url}/one.safetensors", "--json")
    assert (ended.code, sorted(json.loads(ended.out)["table"])) == (0, ["a", "b"])


@pytest.mark.parametrize("broken", ["ranges", "breaks", "status"])
def test_a_server_that_breaks_is_exit_4_and_no_verdict(cli: Cli, site: Site, broken: str, workplace: Path) -> None:
    large = files.safetensors_bytes({"a": ("U8", (200_000,), b"\x07" * 200_000)})
    (workplace / "one.safetensors").write_bytes(large)
    site.files["/m/one.safetensors"] = large
    if broken == "ranges":
        site.ranges = False
    elif broken == "breaks":
        site.breaks = 1000
    else:
        site.status["/m/one.safetensors"] = 500
    ended = cli("compare", "one.safetensors", f"{site.url}/one.safetensors")
    assert ended.code == 4
    assert f"UNREADABLE: remote-{'ranges' if broken == 'ranges' else 'unreadable'}: " in ended.out


def test_a_bundle_of_a_url_holds_its_digest_and_size_and_none_of_its_secrets(
    cli: Cli, site: Site, workplace: Path
) -> None:
    urls = secret(f"{site.url}/one.safetensors"), secret(f"{site.url}/two.safetensors")
    binding = [f"--subject=source={urls[0]}", "--subject", f"import={urls[1]}"]
    ended = cli("verify", "builtin:checkpoint-import", *binding)
    assert ended.code == 0, ended.out
    kept = [path.read_bytes() for path in workplace.rglob("*") if path.is_file()]
    assert not told(ended.out + ended.err + repr(kept))
    (statement,) = workplace.glob(".weighbridge/bundles/*/statement.json")
    subjects = json.loads(statement.read_bytes())["predicate"]["subjects"]
    withheld = re.compile(r"//\[withheld:url-credentials-[0-9a-f]{12}\]")
    assert len(set(withheld.findall(repr(subjects)))) == 1  # one secret has one pseudonym
    assert [(withheld.sub("//", one["path"]), one["size"], list(one["digests"])) for one in subjects] == [
        (f"{site.url}/one.safetensors", len(WEIGHTS), ["one.safetensors"]),
        (f"{site.url}/two.safetensors", len(WEIGHTS), ["two.safetensors"]),
    ]
    assert cli("evidence", "verify", statement.parent).code == 0


def test_an_argument_that_binds_nothing_is_reported_without_secrets(cli: Cli, site: Site) -> None:
    ended = cli("verify", "builtin:checkpoint-import", "--subject", secret(f"{site.url}/one.safetensors"))
    assert ended.code == 2
    assert not told(ended.out + ended.err)


def test_a_contract_alone_fetches_nothing(cli: Cli, site: Site, workplace: Path) -> None:
    contract = workplace / "c.yaml"
    contract.write_text(
        "weighbridge: contract/v0\nid: c\nversion: 0.1.0\ntitle: t\nowner: o\nsubjects:\n"
        f"  model: {{kind: checkpoint, path: '{site.url}/one.safetensors'}}\n"
        "gates:\n  - {id: GATE-A-001, kind: checkpoint-integrity, title: t, subjects: {candidate: model}}\n"
    )
    ended = cli("verify", contract)
    assert ended.code == 4
    assert "file-missing" in ended.out
    assert site.asked == []


def test_a_run_is_not_read_by_url(cli: Cli, site: Site) -> None:
    ended = cli("verify", "builtin:training-run", "--subject", "run=" + secret(f"{site.url}/run"))
    assert ended.code == 4
    assert "run-elsewhere" in ended.out
    assert not told(ended.out + ended.err)
    assert site.asked == []


def test_a_file_named_like_a_url_is_read_as_a_file(cli: Cli, site: Site, workplace: Path) -> None:
    name = f"{site.url}/one.safetensors"
    path = workplace / name
    path.parent.mkdir(parents=True)
    path.write_bytes(WEIGHTS)
    assert cli("inspect", name).code == 0
    assert site.asked == []
