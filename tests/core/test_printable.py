from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.core.local_files import local_path
from weighbridge.core.printable import bare, scheme_of


@each(
    "given, shown",
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


@pytest.mark.slow
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


@pytest.mark.parametrize("user", ["anne", "anne@example.org", ""])
@given(password=st.text("aZ09-._~!$&'()*+,;=:%", max_size=12))
def test_no_legal_password_of_a_url_is_shown(user: str, password: str) -> None:
    for text in (f"https://{user}:{password}SECRET@host/m", f"see 'https://{user}:{password}SECRET@host/m?token=1'"):
        assert "SECRET" not in bare(text)
        assert bare(bare(text)) == bare(text)


SIGNS = st.text(""" aZ09-._~!$&'()*+,;=:%/?#[]@"<>\\é""", max_size=12).filter(lambda text: "//" not in text)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["host.example", "[::1]:8443", "h:80"])
@pytest.mark.parametrize("name", ["", "source=", "import@a="])
@given(user=st.sampled_from(["anne", "anne@example.org", "a%40b"]), before=SIGNS, after=SIGNS)
def test_of_a_url_alone_no_part_of_any_password_is_shown(
    name: str, host: str, user: str, before: str, after: str
) -> None:
    assert bare(f"{name}https://{user}:-{before}SECRET{after}@{host}/m") == f"{name}https://{host}/m"


@pytest.mark.parametrize("user", ["anne", "anne@example.org"])
@given(passwords=st.lists(st.text("""aZ09-._~!$&()*+;:%/?#[]é""", max_size=12), min_size=2, max_size=3))
def test_several_urls_in_one_text_are_each_shown_without_a_password(user: str, passwords: list[str]) -> None:
    urls = [f"https://{user}:-{word}SECRET@host/{at}" for at, word in enumerate(passwords)]
    shown = [f"https://host/{at}" for at in range(len(urls))]
    assert bare("error: " + " -> ".join(urls)) == "error: " + " -> ".join(shown)


@pytest.mark.parametrize("sign", ['"', " ", "<", "\\", "'"])
def test_a_password_in_the_middle_of_a_text_may_hold_what_no_url_may(sign: str) -> None:
    assert bare(f"error: https://anne:my{sign}SECRET@host/m: 403") == "error: https://host/m: 403"


@given(st.text("""ab1:/@?#[] "'<>\\=,&%.-""", max_size=60))
def test_showing_any_text_twice_changes_nothing_more(text: str) -> None:
    assert bare(bare(text)) == bare(text)
    assert bare(bare(f"ab://{text}")) == bare(f"ab://{text}")


@pytest.mark.slow
def test_a_long_text_of_urls_takes_no_longer_than_its_length() -> None:
    for hostile in ("ab://", "<ab://", "ab://a:b@c ", "ab://@"):
        assert len(bare(hostile * 20_000)) >= 5
