"""Tensor metadata through the C ABI."""

import pytest

DTYPE, DEVICE, SIZES, STRIDES, GRAD, DIM, LAYOUT, KEYS, OFFSET, NUMEL = (1 << i for i in range(10))


def test_kinds(probe, torch):
    class Sub(torch.Tensor):
        pass

    t = torch.zeros(3)
    assert probe.tensor_kind(t) == (1, 1)
    assert probe.tensor_kind(torch.nn.Parameter(t)) == (1, 1)
    assert probe.tensor_kind(t.as_subclass(Sub)) == (0, 1)
    assert probe.tensor_kind([1]) == (0, 0)
    assert probe.tensor_kind(torch.float32) == (0, 0)


def test_match_and_explain(probe, torch):
    t = torch.zeros(3, 4)
    record = probe.meta_make(t, probe.META_ALL)
    assert probe.meta_match(t, record) == (True, "no difference")
    assert probe.meta_match(torch.ones(3, 4), record)[0]
    for other, why in [
        (torch.zeros(4, 4), "size mismatch at index 0. expected 3, actual 4"),
        (torch.zeros(3, 5), "size mismatch at index 1. expected 4, actual 5"),
        (torch.zeros(4, 3).t(), "stride mismatch at index 0. expected 4, actual 1"),
        (torch.zeros(3, 4, 1), "rank mismatch. expected 2, actual 3"),
        (torch.zeros(3, 4).double(), "dtype mismatch. expected Float, actual Double"),
        (torch.zeros(3, 4, requires_grad=True), "requires_grad mismatch. expected requires_grad=0"),
        (torch.zeros(3, 4, device="meta"), "device mismatch. expected cpu, actual meta"),
        (torch.zeros(24)[12:].view(3, 4), "storage offset mismatch. expected 0, actual 12"),
        ([1], "type mismatch. expected a tensor, actual list"),
    ]:
        assert probe.meta_match(other, record) == (False, why)


def test_dispatch_keys(probe, torch):
    z = torch.zeros(2, dtype=torch.complex64)
    record = probe.meta_make(z, KEYS)
    assert probe.meta_match(z, record)[0]
    same, why = probe.meta_match(z.conj(), record)
    assert not same and why.startswith("dispatch key set mismatch. expected ")
    with torch.inference_mode():
        inference = torch.zeros(2)
    assert not probe.meta_match(inference, probe.meta_make(torch.zeros(2), KEYS))[0]


def test_mask(probe, torch):
    t = torch.zeros(3, 4)
    assert probe.meta_match(torch.zeros(9), probe.meta_make(t, DTYPE))[0]
    assert probe.meta_match(torch.zeros(4, 3).t(), probe.meta_make(t, SIZES))[0]
    assert not probe.meta_match(torch.zeros(4, 3), probe.meta_make(t, SIZES))[0]
    assert probe.meta_match(torch.zeros(2, 2, dtype=torch.int8), probe.meta_make(t, DIM))[0]
    assert probe.meta_match(torch.zeros(12), probe.meta_make(t, NUMEL))[0]
    assert not probe.meta_match(torch.zeros(13), probe.meta_make(t, NUMEL))[0]
    assert not probe.meta_match(torch.zeros(5, 4).t(), probe.meta_make(t, STRIDES))[0]


def test_changes_of_the_same_tensor(probe, torch):
    t = torch.zeros(3, 4)
    record = probe.meta_make(t, probe.META_CALL)
    t.add_(1)
    assert probe.meta_match(t, record)[0]
    t.requires_grad_(True)
    assert not probe.meta_match(t, record)[0]
    t.requires_grad_(False)
    assert probe.meta_match(t, record)[0]
    t.resize_(5, 4)
    assert not probe.meta_match(t, record)[0]
    t.data = torch.zeros(3, 4)
    assert probe.meta_match(t, record)[0]
    t.data = torch.zeros(3, 4, dtype=torch.float64)
    assert not probe.meta_match(t, record)[0]
    p = torch.nn.Parameter(torch.zeros(3, 4))
    want = probe.meta_make(p, probe.META_CALL)
    torch.utils.swap_tensors(p, torch.nn.Parameter(torch.zeros(4, 3)))
    assert not probe.meta_match(p, want)[0]


def test_unusual_tensors(probe, torch, capfd):
    for t in (torch.tensor(1.5), torch.zeros(0), torch.zeros(2, 0, 3), torch.zeros(1, 1).expand(3, 4)):
        record = probe.meta_make(t, probe.META_ALL)
        assert probe.meta_match(t, record)[0]
    sparse = torch.eye(3).to_sparse()
    record = probe.meta_make(sparse, DTYPE | SIZES | STRIDES | LAYOUT)
    assert probe.meta_match(sparse, record)[0]
    assert not probe.meta_match(torch.eye(3), record)[0]
    assert not probe.meta_match(sparse, probe.meta_make(torch.eye(3), DTYPE | SIZES | STRIDES | LAYOUT))[0]
    assert capfd.readouterr().err == ""  # nothing thrown inside the library
    with pytest.raises(TypeError):
        probe.meta_make([1], DTYPE)


def test_notes(probe, torch):
    assert probe.note(torch.zeros(3, 4)) == "f32[3, 4][4, 1]cpu"
    assert probe.note(torch.tensor(1)) == "i64[][]cpu"
    assert probe.note(torch.zeros(2, 3, device="meta").t()) == "f32[3, 2][1, 3]meta"
    assert probe.note(torch.eye(3).to_sparse()) == "f32[3, 3]cpu"
    for dtype in torch._C._get_all_dtypes():
        try:
            t = torch.zeros(1, dtype=dtype)
        except (RuntimeError, NotImplementedError):
            continue
        assert probe.note(t) == f"{dtype.abbr}[1][1]cpu", dtype


def test_tensor_facts_in_programs(probe, torch):
    t = torch.zeros(3, 4)
    meta = probe.meta_make(t, probe.META_CALL)
    vals = [("src", "LOCAL", 0, 0, 0), ("src", "LIST_ITEM", 0, 1, 0)]
    facts = [("TYPE", 0, 1, 0, list, 0), ("TYPE", 0, 2, 0, torch.Tensor, 0), ("T_META", 0, 2, 0, meta, 0)]
    v = probe.Entry(None, vals, facts, [2])
    params = [t]
    for _ in range(5):
        assert v.eval(0, {1: params})[0]
    assert v.stats()["fast"] == 4
    params[0] = torch.ones(3, 4)
    ok, _, _, loaded, _ = v.eval(0, {1: params})
    assert ok and loaded[2] is params[0]
    params[0] = torch.ones(4, 4)
    ok, fact, vid, _, text = v.eval(0, {1: params})
    assert (ok, fact, vid) == (False, 2, 2)
    assert text.endswith("size mismatch at index 0. expected 3, actual 4")
    params[0] = torch.nn.Parameter(t)
    assert v.eval(0, {1: params})[:3] == (False, 1, 2)
    params[0] = t
    assert v.eval(0, {1: params})[0]
    t.resize_(2, 2)
    assert v.eval(0, {1: params})[:3] == (False, 2, 2)


def test_match_speed_is_reported(probe, torch, capsys):
    t = torch.zeros(3, 4, 5, 6)
    record = probe.meta_make(t, probe.META_CALL)
    ok, ns = probe.meta_bench(t, record, 200000)
    assert ok
    with capsys.disabled():
        print(f"\nmetadata of one tensor: {ns:.1f} ns")
