"""Two threads give the answers that one gives, in the same order, and the same error."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import safetensors

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Fields
from weighbridge.scheduling import threads
from weighbridge.scheduling.threads import HERE, JobSpec
from weighbridge.verifiers import tensor_values
from weighbridge.verifiers.verifier import Views
from weighbridge.views.checkpoint import open_checkpoint


def test_large_work_is_shared_by_two_threads_and_answered_in_order() -> None:
    both = threading.Barrier(threads.THREADS, timeout=30)

    def describe(name: int) -> int:
        both.wait()  # returns only while another thread waits, too
        return -name

    sizes = dict.fromkeys(range(20), threads.WORTH // 20 + 1)
    assert threads.map_in_order(describe, sizes) == tuple(-name for name in range(20))


def test_small_work_stays_on_the_thread_that_asked() -> None:
    asked = threads.map_in_order(lambda _: threading.get_ident(), {"a": 0, "b": threads.WORTH - 1})
    assert set(asked) == {threading.get_ident()}


@pytest.mark.parametrize("nbytes", [0, threads.WORTH])
def test_the_first_error_in_order_is_raised_and_nothing_more_is_described(nbytes: int) -> None:
    described = []

    def describe(name: int) -> None:
        described.append(name)
        if name >= 3:
            raise ValueError(name)

    with pytest.raises(ValueError, match=r"^3$"):
        threads.map_in_order(describe, dict.fromkeys(range(100), nbytes))
    assert len(described) <= 3 + threads.THREADS


@pytest.mark.parametrize("nbytes", [1, threads.WORTH])
def test_who_asks_hears_how_far_all_threads_have_come(nbytes: int) -> None:
    heard: list[tuple[int, int]] = []
    threads.map_in_order(str, dict.fromkeys(range(4), nbytes), lambda done, whole: heard.append((done, whole)))
    assert heard == [(done * nbytes, 4 * nbytes) for done in (1, 2, 3, 4)]


@dataclass(frozen=True)
class FakeJob:
    """A job of places that read what their first letter names; `broken` ones cannot be read."""

    places: tuple[str, ...]
    described: list[str]
    broken: tuple[str, ...] = ()

    def sizes(self) -> dict[str, int]:
        return dict.fromkeys(self.places, 1)

    def row(self, place: str) -> Fields:
        self.described.append(place)
        if place in self.broken:
            raise SubjectError("broken", place)
        return {"name": place}

    def locality(self, place: str) -> str:
        return place[0]

    def fingerprint(self) -> str:
        return ""


def elsewhere(_views: Views, _options: Fields) -> FakeJob:
    raise AssertionError("nothing is prepared anew without an engine")


def specs(*jobs: FakeJob) -> list[tuple[FakeJob, JobSpec]]:
    return [(job, JobSpec(elsewhere, (), {})) for job in jobs]


def test_tasks_of_several_works_that_read_the_same_stand_side_by_side() -> None:
    described: list[str] = []
    jobs = FakeJob(("b1", "a1", "c1"), described), FakeJob(("c2", "b2"), described)
    found = threads.run_jobs(specs(*jobs), HERE)
    assert found == (({"name": "b1"}, {"name": "a1"}, {"name": "c1"}), ({"name": "c2"}, {"name": "b2"}))
    assert described == ["a1", "b1", "b2", "c1", "c2"]


def test_an_error_ends_its_own_work_and_no_other() -> None:
    described: list[str] = []
    jobs = FakeJob(("a1", "b1", "c1"), described, broken=("b1",)), FakeJob(("a2", "c2"), described)
    failed, whole = threads.run_jobs(specs(*jobs), HERE)
    assert isinstance(failed, SubjectError)
    assert failed.what == "b1"
    assert whole == ({"name": "a2"}, {"name": "c2"})
    assert "c1" not in described


def test_two_threads_measure_what_one_does_also_where_tensors_changed_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [np.random.default_rng(seed).standard_normal(5000).astype("<f4").tobytes() for seed in range(40)]
    old = {f"t{index:02}": ("F32", (5000,), data) for index, data in enumerate(blocks)}
    new = {f"t{index:02}": ("F32", (5000,), blocks[(index + 1) % 40]) for index in range(40)}
    paths = safetensors(tmp_path / "old", old), safetensors(tmp_path / "new", new)

    def measured() -> object:
        return tensor_values.measure(tuple(map(open_checkpoint, paths)), {})

    alone = measured()
    monkeypatch.setattr(threads, "WORTH", 0)
    assert measured() == alone
