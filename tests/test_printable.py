from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.printable import bare, scheme_of
from weighbridge.storage.local_files import local_path


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://host/a/model.gguf", "https://host/a/model.gguf"),
        ("https://ada:word@host:8443/a", "https://host:8443/a"),
        ("https://token@host/a", "https://host/a"),
        ("https://host/a?sig=x&se=1", "https://host/a"),
        ("https://host/a#token=x", "https://host/a"),
        ("https://host?sig=x", "https://host"),
        ("https://ada:wo/rd@host/a", "https://host/a"),
        ("https://ada:wo?rd@host/a", "https://host/a"),
        ("https://host:8443/pkg@1.0/a", "https://host:8443/pkg@1.0/a"),
        ("https://host/pkg@1.0/a:b@c", "https://host/pkg@1.0/a:b@c"),
        ("http://[::1]:8000/a@b", "http://[::1]:8000/a@b"),
        ("HTTPS://Ada:Word@host/a", "HTTPS://host/a"),
        ("source=s3://key:word@bucket/a import=gs://b/c?x", "source=s3://bucket/a import=gs://b/c"),
        ('{"source":"https://u:p@h/x?t=1","import":"b@c?d"}', '{"source":"https://h/x","import":"b@c?d"}'),
        ("a:b@c/d?e", "a:b@c/d?e"),
        ("s3://@@", "s3://"),
        ("s3://a@b@bucket/c", "s3://bucket/c"),
        ("https://a@h:word/b@host/c", "https://host/c"),
        ("https://host/http://ada:word@inner/a", "https://host/http://inner/a"),
    ],
)
def test_a_url_is_shown_without_what_opens_a_door(given: str, shown: str) -> None:
    assert bare(given) == shown


@given(st.one_of(st.text(max_size=200), st.text('ab1:/@?#[] "', max_size=40)).map(lambda text: f"x http://{text}"))
def test_showing_twice_changes_nothing_more(text: str) -> None:
    assert bare(bare(text)) == bare(text)


@given(st.from_regex(r"[A-Za-z0-9._~-]{6,30}", fullmatch=True), st.sampled_from(["{}@", "ada:{}@", ":{}@"]))
def test_no_user_or_password_is_left(secret: str, form: str) -> None:
    assert (
        bare(f"error: https://{form.format('Q' + secret)}host.example/a: 403") == "error: https://host.example/a: 403"
    )


def test_a_scheme_needs_two_letters_and_two_strokes() -> None:
    assert [scheme_of(word) for word in ("S3://a", "c://a", "a:/b", "model:v2.gguf", "://x", "")] == ["s3"] + [""] * 5


def test_what_exists_under_a_name_like_a_url_is_that_file(workplace: Path) -> None:
    assert local_path("https://host/model.gguf") is None
    (workplace / "https:" / "host").mkdir(parents=True)
    (workplace / "https:" / "host" / "model.gguf").touch()
    assert local_path("https://host/model.gguf") == Path("https:/host/model.gguf")


def test_a_colon_in_a_path_is_only_a_colon(workplace: Path) -> None:
    assert workplace.is_dir()
    assert local_path("model:v2.gguf") == Path("model:v2.gguf")
    assert local_path("a/b:c://d") == Path("a/b:c:/d")


@pytest.mark.parametrize("scheme", ["file", "FILE", "local"])
def test_a_url_of_this_machine_is_its_path(scheme: str) -> None:
    assert local_path(f"{scheme}:///models/a b.gguf") == Path("/models/a b.gguf")
