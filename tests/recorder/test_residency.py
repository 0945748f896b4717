"""The device `meta` stands in for an accelerator: not the host, with the dispatcher, autograd and optimizers of one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.training import VOCAB  # noqa: E402

from weighbridge.recorder.residency import (  # noqa: E402
    DispatchAudit,
    allocated_bytes,
    bytes_by_device,
    model_bytes,
    not_auditable,
    optimizer_bytes,
    resolved_device,
)


def audited(*, foreach: bool, host_mask: bool = False) -> tuple[DispatchAudit, Any, Any]:
    """Audit a second AdamW step on the device, batch moved there, gradients clipped."""
    nn = torch.nn
    model = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Dropout(0.1), nn.Linear(16, VOCAB)).to("meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=foreach)
    audit = DispatchAudit()
    for _ in range(2):
        rows = torch.randint(0, VOCAB, (4, 9))
        audit.restart()
        audit.resume()
        batch = rows.to("meta", non_blocking=True)
        if host_mask:
            torch.ones(4, 4).tril()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        audit.pause()
    return audit, model, optimizer


@pytest.mark.parametrize("foreach", [True, False])
def test_an_honest_step_on_a_device_does_no_floating_point_work_on_the_host(foreach: bool) -> None:
    audit, model, optimizer = audited(foreach=foreach)
    found = audit.found()
    assert set(found["ops"]) == {"meta"}
    assert found["ops"]["meta"] > 40
    assert found["bookkeeping"]["cpu"] > 0  # the optimizer's step counts live on the host
    assert model_bytes(model) == {"parameters": {"meta": 6600}, "buffers": {}, "gradients": {"meta": 6600}}
    assert optimizer_bytes(optimizer) == {
        "optimizer": {"meta": 13200}, "optimizer_scalars": {"cpu": 12}, "updated": {"meta": 6600}
    }  # fmt: skip
    assert resolved_device(model) == "meta"


def test_a_mask_made_on_the_host_in_each_step_is_counted_and_named() -> None:
    found = audited(foreach=True, host_mask=True)[0].found()
    assert found["ops"]["cpu"] == 2
    assert found["op_names"]["cpu"] == {"aten.ones.default": 1, "aten.tril.default": 1}


def test_an_audit_counts_nothing_while_it_is_paused() -> None:
    audit = DispatchAudit()
    audit.resume()
    audit.pause()
    torch.ones(3).exp()
    assert audit.found() == {"ops": {}, "bookkeeping": {}, "op_names": {}}


def test_an_audit_changes_no_result() -> None:
    torch.manual_seed(0)
    plain = torch.nn.functional.dropout(torch.randn(64) @ torch.randn(64, 8))
    torch.manual_seed(0)
    audit = DispatchAudit()
    audit.resume()
    watched = torch.nn.functional.dropout(torch.randn(64) @ torch.randn(64, 8))
    audit.pause()
    assert torch.equal(plain, watched)


def test_an_operator_that_takes_functions_runs_under_an_audit() -> None:
    x = torch.randn(4)
    audit = DispatchAudit()
    audit.resume()
    found = torch.ops.higher_order.cond(x.sum() > 1e9, torch.sin, torch.cos, (x,))
    audit.pause()
    assert torch.equal(found, x.cos())


def test_a_torch_that_would_stop_compiling_is_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.delattr(TorchDispatchMode, "ignore_compile_internals")
    assert not_auditable(torch.nn.Linear(1, 1)).endswith("would compile nothing more after an audit")


def test_a_tensor_counts_once_and_each_under_its_device() -> None:
    one, other = torch.zeros(3), torch.zeros(5, device="meta", dtype=torch.float64)
    assert bytes_by_device([one, one, other]) == {"cpu": 12, "meta": 40}


def test_a_model_resolves_to_the_device_of_most_of_its_bytes() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(8, 8).to("meta"), torch.nn.Linear(4, 4)])
    assert resolved_device(model) == "meta"
    assert resolved_device(torch.nn.ReLU()) == ""


def test_a_device_without_memory_of_its_own_says_so() -> None:
    assert allocated_bytes("cpu") == (None, "cpu has no device memory")
    assert allocated_bytes("") == (None, "a model without parameters has no device memory")
