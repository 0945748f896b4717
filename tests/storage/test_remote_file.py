"""Files elsewhere: over HTTP from a real server, and from memory; whole, by ranges, and badly served."""

from __future__ import annotations

import importlib.util
import json
import pickle
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.formats import files
from tests.storage.web import Site, serving

from weighbridge.comparison import bytewise
from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement, Origin, Rows
from weighbridge.formats.gguf_file import LongValues
from weighbridge.scheduling.engines import pack_view, unpack_view
from weighbridge.storage import remote_file
from weighbridge.storage.mapped_file import locate
from weighbridge.storage.readable import USUAL
from weighbridge.storage.remote_file import LARGE, SMALL
from weighbridge.verifiers import file_structure, tensor_values
from weighbridge.views.checkpoint import CheckpointView, config_beside, open_checkpoint

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

DATA = Random(7).randbytes(3 * LARGE + 4321)
BIG = files.safetensors_bytes({"a": ("U8", (len(DATA),), DATA), "b": ("F32", (2,), b"12345678")})
TINY = files.safetensors_bytes({"a": ("F32", (2,), b"12345678")})


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        site.files |= {"/m/big.safetensors": BIG, "/m/tiny.safetensors": TINY}
        yield site


@pytest.fixture
def memory() -> Iterator[str]:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    yield "memory://shelf"
    filesystem.store.clear()


def refusal(target: str) -> str:
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(target)
    return str(caught.value)


def walked(view: CheckpointView, name: str, size: int = 1 << 18) -> bytes:
    return b"".join(view.chunks(name, size))


# --- What is there ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_over_http_is_the_one_on_disk(site: Site, tmp_path: Path) -> None:
    (tmp_path / "big.safetensors").write_bytes(BIG)
    here, there = open_checkpoint(tmp_path / "big.safetensors"), open_checkpoint(f"{site.url}/big.safetensors")
    assert there.names() == here.names()
    assert there.digest() == here.digest()
    assert walked(there, "a") == DATA
    assert bytes(there.read("b", 2, 6)) == b"3456"


def test_opening_fetches_the_header_and_not_the_payload(site: Site) -> None:
    open_checkpoint(f"{site.url}/big.safetensors")
    assert site.gets("/m/big.safetensors") == [f"bytes=0-{SMALL - 1}"]


def test_a_walk_fetches_each_byte_once(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    site.asked.clear()
    walked(view, "a")
    assert sorted(site.gets("/m/big.safetensors")) == sorted(
        f"bytes={start}-{min(start + LARGE, len(BIG)) - 1}" for start in range(0, len(BIG), LARGE)
    )


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, len(BIG) + 9), st.integers(0, 3 * LARGE)), max_size=6))
def test_any_range_is_what_the_file_holds_there(ranges: list[tuple[int, int]]) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/ranges/big", BIG)
    file = locate("memory://ranges/big").file
    assert file is not None
    for start, length in ranges:
        assert bytes(file.read(start, start + length)) == BIG[start : start + length]
        assert b"".join(file.windows(start, min(start + length, len(BIG)), 70_001)) == BIG[start : start + length]


def test_two_threads_read_at_once_and_each_gets_its_own_bytes(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda size: walked(view, "a", size) == DATA, (LARGE, 100_003, 70_001, LARGE + 9)))
    assert found == [True] * 4


def test_a_filesystem_with_one_connection_is_asked_one_thing_at_a_time(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem, inside, together = fsspec.filesystem("memory"), list[str](), set[int]()
    filesystem.pipe_file("/shelf/big", BIG)
    whole = type(filesystem).cat_file

    def asked(self: object, path: str, start: int, end: int) -> bytes:
        inside.append(path)
        time.sleep(0.01)
        together.add(len(inside))
        inside.pop()
        return bytes(whole(self, path, start=start, end=end))

    monkeypatch.setattr(type(filesystem), "cat_file", asked)
    view = open_checkpoint(f"{memory}/big")
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda size: walked(view, "a", size) == DATA, (LARGE, 100_003, 70_001)))
    assert together == {1}


def test_what_was_handed_out_is_never_overwritten(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    kept = list(view.chunks("a", LARGE + 17))
    assert b"".join(kept) == DATA
    with pytest.raises(TypeError):
        kept[0][0] = 1


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gguf", "npy", "pt", "npz"])
def test_other_formats_are_read_by_url_too(form: str, site: Site, tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}"
    written(path, form)
    site.files["/m/other"] = path.read_bytes()
    here, there = open_checkpoint(path), open_checkpoint(f"{site.url}/other")
    assert (there.format, there.names()) == (here.format, here.names())
    assert [walked(there, name) for name in there.names()] == [walked(here, name) for name in here.names()]


def written(path: Path, form: str) -> None:
    import gguf
    import numpy as np

    ramp = np.arange(600, dtype=np.float32).reshape(20, 30)
    match form:
        case "gguf":
            writer = gguf.GGUFWriter(path, "llama")
            writer.add_token_list([f"word{number}" for number in range(200_000)])
            writer.add_tensor("ramp", ramp)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        case "npy":
            np.save(path, np.asfortranarray(ramp))
        case "npz":
            np.savez(path, ramp=ramp, other=ramp[::2])
        case "pt":
            torch = pytest.importorskip("torch")
            torch.save({"ramp": torch.from_numpy(ramp).t(), "many": torch.ones(300_000)}, path)


def test_a_large_tensor_in_another_order_is_refused_with_what_to_do(site: Site) -> None:
    import io

    import numpy as np

    stored = io.BytesIO()
    np.save(stored, np.zeros((1 << 13, (1 << 11) + 1), np.uint8, order="F"))
    site.files["/m/turned.npy"] = stored.getvalue()
    view = open_checkpoint(f"{site.url}/turned.npy")
    with pytest.raises(SubjectError) as caught:
        walked(view, view.names()[0])
    assert str(caught.value) == (
        f"{site.url}/turned.npy at byte 128: remote-order a tensor of 16785408 bytes is not in row-major order;"
        " 16777216 are read elsewhere\n  fetch the file first, or save the tensor contiguous"
    )


# --- Folders and shards -----------------------------------------------------------------------------------------------


def sharded(files_of: dict[str, bytes]) -> dict[str, bytes]:
    parts = {
        "model 1.safetensors": files.safetensors_bytes({"a": ("F32", (2,), b"12345678")}),
        "model%2.safetensors": files.safetensors_bytes({"b": ("U8", (3,), b"xyz")}),
    }
    homes = {"a": "model 1.safetensors", "b": "model%2.safetensors"}
    index = json.dumps({"metadata": {"total_size": 11}, "weight_map": homes}).encode()
    return files_of | parts | {"model.safetensors.index.json": index}


@pytest.mark.parametrize("at", ["/model.safetensors.index.json", "/"])
def test_shards_are_found_beside_their_index_over_http(at: str, site: Site) -> None:
    from urllib.parse import unquote

    wanted = sharded({})
    site.files.clear()

    def published(_method: str, path: str) -> None:
        name = unquote(path.removeprefix("/m/"))
        if name in wanted:
            site.files[path] = wanted[name]

    site.before = published
    view = open_checkpoint(f"{site.url}{at}?token=letmein")
    assert (view.format, walked(view, "a"), walked(view, "b")) == ("safetensors-sharded", b"12345678", b"xyz")
    assert all(where.endswith("?token=letmein") for _, where, _ in site.asked)
    assert not any("token" in name for name in view.files)


def test_a_folder_elsewhere_is_listed_where_it_can_be(memory: str) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/shelf/only.safetensors", TINY)
    filesystem.pipe_file("/shelf/notes.txt", b"x")
    assert list(open_checkpoint(memory).files) == ["memory://shelf/only.safetensors"]
    filesystem.pipe_file("/shelf/second.safetensors", TINY)
    assert refusal(memory).startswith(
        "memory://shelf: checkpoint-ambiguous 2 .safetensors files and no model.safetensors.index.json"
    )


def test_files_left_over_beside_an_index_elsewhere_are_seen(memory: str) -> None:
    filesystem = fsspec.filesystem("memory")
    for name, data in sharded({"old.safetensors": TINY}).items():
        filesystem.pipe_file(f"/shelf/{name}", data)
    found = file_structure.measure((open_checkpoint(memory),), {})
    assert isinstance(found.value, Rows)
    assert {row.name: row.role for row in found.value.rows} == {
        "file model 1.safetensors": "weights",
        "file model%2.safetensors": "weights",
        "file model.safetensors.index.json": "index",
        "file old.safetensors": "beside",
    }


@pytest.mark.parametrize("shard", ["../secret.safetensors", "a/b", "..", "", "a\\b"])
def test_a_shard_never_leaves_the_folder(shard: str, site: Site) -> None:
    site.files["/secret.safetensors"] = TINY
    site.files["/m/model.safetensors.index.json"] = json.dumps({"weight_map": {"a": shard}}).encode()
    said = refusal(f"{site.url}/model.safetensors.index.json")
    assert said.startswith(f"{site.url}/model.safetensors.index.json: index ")
    assert "is not a plain file name" in said
    assert not any("secret" in where for _, where, _ in site.asked)


def test_an_encoded_way_out_is_only_an_odd_name(site: Site) -> None:
    site.files["/m/model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "..%2fsecret?x#y"}}).encode()
    assert "shard-missing" in refusal(f"{site.url}/model.safetensors.index.json")
    assert site.asked[-1][1] == "/m/..%252fsecret%3Fx%23y"


def test_the_configuration_beside_a_checkpoint_elsewhere_is_read(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/tiny.safetensors?token=letmein")
    assert config_beside(view) is None
    site.files["/m/config.json"] = b'{"hidden_size": 64}'
    assert config_beside(view) == {"hidden_size": 64}
    assert site.asked[-1][1] == "/m/config.json?token=letmein"


def test_a_view_elsewhere_travels_by_its_url_and_only_as_the_same_file(site: Site) -> None:
    site.password = "opensesame"
    view = open_checkpoint(f"{site.url}/tiny.safetensors?token=opensesame")
    packed = pickle.loads(pickle.dumps(pack_view(view.overlaid("a", 7, b"!"))))
    again = unpack_view(packed)
    assert (walked(again, "a"), again.origin) == (b"1234567!", Origin.SYNTHETIC)
    assert not any("opensesame" in repr(shown) for shown in (view, packed))
    site.files["/m/tiny.safetensors"] = TINY[:-1] + b"!"
    with pytest.raises(SubjectError, match="subject-elsewhere") as caught:
        unpack_view(packed)
    assert "opensesame" not in str(caught.value)


@pytest.mark.exhaustive
def test_the_vocabulary_in_a_gguf_elsewhere_is_read_where_it_lies(site: Site, tmp_path: Path) -> None:
    written(tmp_path / "a.gguf", "gguf")
    site.files["/m/a.gguf"] = (tmp_path / "a.gguf").read_bytes()
    places = tmp_path / "a.gguf", f"{site.url}/a.gguf"
    here, there = (next(iter(open_checkpoint(place).files.values())) for place in places)
    words = "tokenizer.ggml.tokens"
    assert list(LongValues(there).strings(words, 199_990)) == list(LongValues(here).strings(words, 199_990))


def test_a_link_that_opens_one_file_is_enough_for_it(site: Site) -> None:
    refused = ("tiny.safetensors.index.json", "config.json")
    site.status |= {f"/m/{name}": 403 for name in refused}
    view = open_checkpoint(f"{site.url}/tiny.safetensors?signature=1")
    assert config_beside(view) is None
    assert file_structure.measure((view,), {}).total == 1
    site.status["/m/config.json"] = 500
    with pytest.raises(SubjectError, match="remote-unreadable"):
        config_beside(view)


def test_a_folder_that_is_closed_is_reported_as_closed(site: Site) -> None:
    site.status |= {f"/m/{name}": 403 for name in USUAL}
    assert refusal(f"{site.url}/") == (
        f"{site.url}/model.safetensors.index.json: remote-access access is refused (HTTP status 403)\n"
        "  give this process the credentials that the filesystem reads (its environment, or fsspec's configuration);"
        " a signed link may be expired"
    )


def test_a_server_error_at_the_index_is_no_reason_to_look_for_another_file(site: Site) -> None:
    site.files["/m/model.safetensors"] = TINY
    site.status["/m/model.safetensors.index.json"] = 503
    assert refusal(f"{site.url}/") == (
        f"{site.url}/model.safetensors.index.json: remote-unreadable the server answered (HTTP status 503)\n"
        "  try again, or fetch the file first"
    )


# --- Bad servers ------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_missing(site: Site) -> None:
    assert refusal(f"{site.url}/none.gguf?sig=opensesame") == (
        f"{site.url}/none.gguf: file-missing there is no such file\n  check the path of the subject"
    )


def test_no_server_is_reported_without_the_address_s_secrets() -> None:
    with serving() as gone:
        url = gone.url
    said = refusal(url.replace("//", "//ada:opensesame@") + "/a.gguf?token=opensesame")
    assert said.startswith(f"{url}/a.gguf: remote-unreadable it cannot be asked, or the connection broke (")
    assert "opensesame" not in said


@pytest.mark.parametrize("with_secret", ["?token=opensesame", "ada:opensesame@"])
def test_secrets_in_the_address_open_the_door_and_are_not_shown(site: Site, with_secret: str) -> None:
    import base64

    url = f"{site.url}/tiny.safetensors"
    if with_secret.startswith("?"):
        site.password, url = "opensesame", url + with_secret
    else:
        site.password = base64.b64encode(b"ada:opensesame").decode()
        url = url.replace("//", "//" + with_secret)
    view = open_checkpoint(url)
    assert list(view.files) == [f"{site.url}/tiny.safetensors"]
    assert walked(view, "a") == b"12345678"
    site.password = "another"
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(url)
    assert caught.value.code == "remote-access"
    assert "opensesame" not in str(caught.value)


def test_a_server_without_ranges_is_refused_and_never_read_whole(site: Site) -> None:
    site.ranges = False
    view = open_checkpoint(f"{site.url}/big.safetensors")
    with pytest.raises(SubjectError) as caught:
        walked(view, "b")
    assert str(caught.value) == (
        f"{site.url}/big.safetensors: remote-ranges the server gives no ranges of a file, only all of it\n"
        "  fetch the file first"
    )


@pytest.mark.slow
@each("endless", ["chunked", "until closed", "told", "gzip"])
@each("ranges", [True, False])
def test_of_an_answer_without_an_end_no_more_is_read_than_was_asked_for(endless: str, *, ranges: bool) -> None:
    with serving() as site:
        site.files["/m/big.safetensors"] = BIG
        site.ranges, site.endless = ranges, endless
        tracemalloc.start()
        try:
            said = refusal(f"{site.url}/big.safetensors")
            taken, peak = site.sent, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        packed, over = (
            "remote-packed the answer is packed ('gzip')",
            "remote-long the answer is longer than the 65536 bytes",
        )
        wanted = packed if endless == "gzip" else over if ranges else "remote-ranges the server"
        assert wanted in said
        assert max(taken, peak - 2 * len(BIG)) < 48 << 20, (taken, peak)


def test_a_connection_that_breaks_once_is_tried_again(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    site.breaks = 2
    assert walked(view, "a") == DATA


def test_a_connection_that_keeps_breaking_is_an_error(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    site.breaks = 1000
    with pytest.raises(SubjectError) as caught:
        walked(view, "a")
    assert caught.value.code == "remote-unreadable"
    assert len(site.gets("/m/big.safetensors")) > remote_file.TRIES


def test_an_answer_that_is_too_short_is_an_error(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    site.withheld = 1
    with pytest.raises(SubjectError) as caught:
        walked(view, "a")
    assert str(caught.value) == (
        f"{site.url}/big.safetensors: remote-short the answer is cut short: {LARGE - 1} of {LARGE} bytes,"
        " from byte 0 on\n  try again, or fetch the file first"
    )


@pytest.mark.parametrize("claims", [1 << 60, 9, len(BIG) + 1])
def test_a_size_that_is_not_the_file_s_is_an_error(claims: int, site: Site) -> None:
    site.claims = claims
    assert re.search(": (?:remote-short|safetensors-(?:trailing|truncated)) ", refusal(f"{site.url}/big.safetensors"))


def test_a_server_that_tells_no_size_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = fsspec.filesystem("http")
    monkeypatch.setattr(filesystem, "info", lambda path: {"name": path, "size": None, "type": "file"})
    assert "remote-size its size is not given" in refusal(f"{site.url}/big.safetensors")


def test_a_server_that_never_answers_does_not_hang_us(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "TIMEOUT_S", 0.2)
    site.hangs = threading.Event()
    assert refusal(f"{site.url}/tiny.safetensors") == (
        f"{site.url}/tiny.safetensors: remote-timeout no answer in 0.2 s\n  try again, or fetch the file first"
    )


def test_a_file_replaced_while_it_is_read_is_refused(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    site.files["/m/big.safetensors"] = BIG[:-1] + b"!"
    with pytest.raises(SubjectError) as caught:
        walked(view, "b")
    assert str(caught.value) == (
        f"{site.url}/big.safetensors: subject-changed the file was replaced while it was being read\n"
        "  wait until its writer is done, then measure again"
    )


def test_a_file_replaced_between_two_ranges_is_refused_at_the_end_of_the_walk(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/big.safetensors")
    chunks = view.chunks("a", SMALL)
    next(chunks)
    site.files["/m/big.safetensors"] = BIG[:-9] + b"!" + BIG[-8:]
    with pytest.raises(SubjectError, match="subject-changed"):
        list(chunks)


def test_the_same_bytes_written_anew_are_another_file(memory: str) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/shelf/big", BIG)
    view = open_checkpoint(f"{memory}/big")
    filesystem.pipe_file("/shelf/big", BIG)
    with pytest.raises(SubjectError, match="subject-changed"):
        walked(view, "a")


def test_what_was_fetched_before_a_change_is_asked_for_no_more(site: Site) -> None:
    view = open_checkpoint(f"{site.url}/tiny.safetensors")
    del site.files["/m/tiny.safetensors"]
    assert walked(view, "a") == b"12345678"


@pytest.mark.parametrize("cut", [1, 4096])
def test_a_file_cut_short_elsewhere_is_truncated(cut: int, site: Site) -> None:
    site.files["/m/big.safetensors"] = BIG[:-cut]
    assert "safetensors-truncated" in refusal(f"{site.url}/big.safetensors")


def test_an_empty_file_and_a_folder_are_reported(site: Site, memory: str) -> None:
    site.files["/m/empty"] = b""
    assert "empty-file" in refusal(f"{site.url}/empty")
    fsspec.filesystem("memory").pipe_file("/shelf/model.safetensors.index.json/a", b"x")
    assert "file-kind is a folder, not a file" in refusal(memory)


def test_a_web_page_is_recognised_as_one(site: Site) -> None:
    site.files["/m/login"] = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
    assert "checkpoint-format is a web page" in refusal(f"{site.url}/login")


# --- What a URL is ----------------------------------------------------------------------------------------------------


def test_what_fsspec_does_not_know_is_refused(workplace: Path) -> None:
    assert refusal("nosuch://host/a?sig=opensesame") == (
        "nosuch://host/a: remote-protocol fsspec reads no nosuch:// URLs, or not this one\n"
        "  bind a path, or one URL that fsspec reads"
    )
    assert "remote-protocol one URL inside another" in refusal("zip://a::http://127.0.0.1/b.zip")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert refusal("https://host.example/a.gguf") == (
        "https://host.example/a.gguf: remote-extra reading URLs needs fsspec\n  pip install 'weighbridge[remote]'"
    )


def test_a_filesystem_that_is_not_installed_is_named() -> None:
    if importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    assert refusal("s3://bucket/a.gguf").startswith(
        "s3://bucket/a.gguf: remote-extra reading s3:// needs a package that is not here:"
    )


# --- Measuring --------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_elsewhere_is_found_where_it_is(site: Site, tmp_path: Path) -> None:
    damaged = bytearray(BIG)
    damaged[len(BIG) - len(DATA) - 8 + 2 * LARGE + 5] ^= 1
    site.files["/m/big.safetensors"] = bytes(damaged)
    (tmp_path / "a.safetensors").write_bytes(BIG)
    views = open_checkpoint(tmp_path / "a.safetensors"), open_checkpoint(f"{site.url}/big.safetensors")
    sides = (views[0], "a"), (views[1], "a")
    ((at, one, other),) = bytewise.unequal(*sides, 1)
    assert bytewise.differing(*sides) == 1
    assert [at + inside for inside in range(len(one)) if one[inside] != other[inside]] == [2 * LARGE + 5]


def test_comparing_elsewhere_gives_the_rows_that_comparing_here_gives(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(BIG)
    here = open_checkpoint(tmp_path / "a.safetensors")
    there = open_checkpoint(f"{site.url}/big.safetensors")
    one, other = tensor_values.measure((here, here), {}), tensor_values.measure((here, there), {})
    assert isinstance(other, Measurement)
    assert one.value == other.value


PEAK = """
import sys
from weighbridge.verifiers import tensor_values
from weighbridge.views.checkpoint import open_checkpoint
for pair in (sys.argv[1:3], sys.argv[3:5]):
    views = [open_checkpoint(url) for url in pair]
    tensor_values.measure(views, {})
    print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.exhaustive
def test_comparing_elsewhere_takes_no_more_memory_for_a_large_file(site: Site) -> None:
    large = {f"t{number}": ("U8", (40 << 20,), bytes(40 << 20)) for number in range(6)}
    site.files["/m/large"] = files.safetensors_bytes(large)
    site.files["/m/small"] = files.safetensors_bytes({"a": ("U8", (1 << 20,), bytes(1 << 20))})
    urls = [f"{site.url}/{name}?{side}" for name in ("small", "large") for side in "ab"]
    ended = subprocess.run([sys.executable, "-c", PEAK, *urls], capture_output=True, text=True, check=True)
    before, after = map(int, ended.stdout.split())
    assert after - before < 64 << 10
