"""Kinds of tensors, and what programs do with them: the material of fuzz_tensor_kinds.py.

A kind is a function that makes an equal tensor each time it is called with the same number. Not every kind has storage, strides or even
sizes of its own; whatever a function does with one (a number, an exception, a warning) is what the compiled function has to do.
"""
import torch
from torch.utils._pytree import tree_map

KINDS = {}
NO_DATA = {"freed", "shrunk"}   # eager itself ends the process where it reads their elements


def kind(function):
    KINDS[function.__name__] = function
    return function


def dense(number, *sizes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(number)
    return torch.randint(-4, 5, sizes or (3, 4), generator=generator).to(dtype)


@kind
def plain(n):
    return dense(n, 2 + n % 3, 4)


@kind
def double(n):
    return dense(n, 3, 2 + n % 3, dtype=torch.float64)


@kind
def whole(n):
    return dense(n, dtype=torch.int64)


@kind
def truth(n):
    return dense(n) > 0


@kind
def scalar(n):
    return dense(n, 1)[0]


@kind
def empty(n):
    return torch.empty(0, 4)


@kind
def transposed(n):
    return dense(n, 4, 3).t()


@kind
def expanded(n):
    return dense(n, 1, 4).expand(3, 4)


@kind
def parameter(n):
    return torch.nn.Parameter(dense(n))


@kind
def buffer(n):
    return torch.nn.Buffer(dense(n))


@kind
def wants_gradient(n):
    return dense(n).requires_grad_() * 2


@kind
def inference(n):
    with torch.inference_mode():
        return dense(n) + 1


@kind
def conjugate(n):
    return torch.complex(dense(n), dense(n + 1)).conj()


@kind
def negative(n):
    return torch.complex(dense(n), dense(n + 1)).conj().imag


@kind
def no_numbers(n):
    return torch._efficientzerotensor((3, 4))


@kind
def meta(n):
    return torch.empty(2 + n % 3, 4, device="meta")


@kind
def nested(n):
    return torch.nested.nested_tensor([dense(n, 2, 3), dense(n + 1, 4, 3)])


@kind
def nested_ragged(n):
    return torch.nested.nested_tensor([dense(n, 2, 3), dense(n + 1, 4, 2)])


@kind
def jagged(n):
    return torch.nested.nested_tensor([dense(n, 2, 3), dense(n + 1, 4, 3)], layout=torch.jagged)


@kind
def sparse_coo(n):
    return dense(n).to_sparse()


@kind
def sparse_uncoalesced(n):
    return torch.sparse_coo_tensor(torch.tensor([[0, 0, 2], [1, 1, 3]]), dense(n, 3), (3, 4))


@kind
def sparse_hybrid(n):
    return dense(n, 3, 4, 2).to_sparse(1)


@kind
def sparse_csr(n):
    return dense(n).to_sparse_csr()


@kind
def sparse_csc(n):
    return dense(n).to_sparse_csc()


@kind
def sparse_bsr(n):
    return dense(n, 4, 4).to_sparse_bsr((2, 2))


@kind
def sparse_bsc(n):
    return dense(n, 4, 4).to_sparse_bsc((2, 2))


@kind
def quantised(n):
    return torch.quantize_per_tensor(dense(n), 0.5, 1, torch.quint8)


@kind
def quantised_by_channel(n):
    return torch.quantize_per_channel(dense(n), torch.ones(3), torch.zeros(3, dtype=torch.int64), 0, torch.qint8)


@kind
def mkldnn(n):
    return dense(n).to_mkldnn()


@kind
def functional(n):
    return torch._to_functional_tensor(dense(n))


@kind
def lazy(n):
    return dense(n).to("lazy")


@kind
def fake(n):
    from torch._subclasses.fake_tensor import FakeTensorMode
    return FakeTensorMode().from_tensor(dense(n))


@kind
def uninitialised(n):
    return torch.nn.parameter.UninitializedParameter()


@kind
def freed(n):
    x = dense(n)
    x.untyped_storage().resize_(0)
    return x


@kind
def shrunk(n):
    x = dense(n)
    x.untyped_storage().resize_(8)
    return x


class Named(torch.Tensor):
    """A subclass that changes nothing."""


@kind
def subclass(n):
    return dense(n).as_subclass(Named)


class Holder(torch.Tensor):
    """No storage of its own: another tensor does the work."""

    @staticmethod
    def __new__(cls, inner, policy=None):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy=policy)
        made.inner = inner
        return made

    def __repr__(self):
        return f"Holder({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        bare = tree_map(lambda a: a.inner if isinstance(a, Holder) else a, (args, kwargs or {}))
        found = func(*bare[0], **bare[1])
        return tree_map(lambda a: Holder(a) if isinstance(a, torch.Tensor) else a, found)


@kind
def wrapper(n):
    return Holder(dense(n))


@kind
def wrapper_asked_for_sizes(n):
    return Holder(dense(n), "sizes")


@kind
def wrapper_asked_for_strides(n):
    return Holder(dense(n), "strides")


class Watcher(torch.Tensor):
    """Sees each call."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@kind
def watcher(n):
    return dense(n).as_subclass(Watcher)


@kind
def masked(n):
    return torch.masked.masked_tensor(dense(n), dense(n + 1) > 0)


# Functions. x is of the kind, y of another one (or dense), d is dense, n a number.

LOOKS = """
x.size() | x.size(0) | x.size(-1) | x.size(dim=0) | x.shape | x.shape[0] | x.shape[-1] | tuple(x.shape) | x.dim() | x.ndim | x.numel() | x.nelement()
len(x) | x.stride() | x.stride(0) | x.storage_offset() | x.is_contiguous() | x.is_contiguous(memory_format=torch.channels_last) | x.dtype | x.device
x.layout | x.requires_grad | x.is_leaf | x.grad_fn is None | x.is_sparse | x.is_sparse_csr | x.is_quantized | x.is_mkldnn | x.is_nested | x.is_meta
x.is_complex() | x.is_floating_point() | x.is_signed() | x.is_conj() | x.is_neg() | x.is_inference() | x.element_size() | x.itemsize | x.nbytes
x.type() | type(x).__name__ | isinstance(x, torch.nn.Parameter) | isinstance(x, torch.nn.Buffer) | isinstance(x, torch.FloatTensor)
isinstance(x, torch.Tensor) | x.get_device() | x.is_cpu | x.names | x.output_nr | x._version >= 0 | x.grad | x.dense_dim() | x.sparse_dim()
x.is_coalesced() | x._nnz() | x.qscheme() | x.q_scale() | x.q_zero_point() | x.untyped_storage().nbytes() | x.storage_type() | torch.is_tensor(x)
torch.is_floating_point(x) | torch.numel(x) | torch.is_storage(x) | x.is_same_size(d) | x.shape == d.shape | x.size() == y.size() | x.dtype == y.dtype
x.dim() == y.dim() | [s + 1 for s in x.shape] | sum(x.shape) | math.prod(x.shape) | x.shape[0] * 2 if x.ndim else 0 | len(x.shape) | max(x.shape, default=0)
torch.zeros(x.shape) | torch.Size(x.shape) | hasattr(x, 'anything') | x.dim_order() | torch.get_device(x) | x.retains_grad | x.is_shared()
x.has_names() | repr(x.shape) | f'{x.dtype}' | bool(x.shape) | x.ndimension() | x.mT.shape | x.T.shape | x.is_pinned() | x is y | x.shape.numel()
"""

WORK = """
x + 1 | x * 2 | -x | x - y | x + y | x * d | x / 2 | x @ d.t() | x == y | x > 0 | x[0] | x[-1] | x[:, 0] | x[..., 1:] | x[0, 0] | x.sum() | x.sum(0)
x.sum(-1) | x.mean() | x.max() | x.abs() | x.neg() | x.relu() | x.clone() | x.detach() | x.contiguous() | x.t() | x.transpose(0, 1) | x.reshape(-1)
x.view(-1) | x.flatten() | x.unsqueeze(0) | x.squeeze() | x.permute(1, 0) | x.to(torch.float64) | x.double() | x.half().dtype | x.to_dense()
x.to_sparse() | x.to_sparse_csr() | x.to_mkldnn() | x.dequantize() | x.int_repr() | x.coalesce() | x.indices() | x.values() | x.crow_indices()
x.col_indices() | x.offsets() | x.unbind() | list(x) | tuple(x) | [r * 2 for r in x] | [r.shape for r in x] | a_first(*x) | x.tolist() | x.item() | bool(x)
float(x.sum()) | x.conj() | x.resolve_conj() | x.resolve_neg() | x.real | x.imag | x.zero_() | x.add_(1) | x.mul_(2) | x.fill_(3) | x.copy_(d)
x.requires_grad_() | x.detach_() | x.numpy().shape | x.data | x.data.shape | x.cpu() | x.to('meta') | x.expand(2, -1, -1) | x.repeat(2, 1)
torch.sin(x) | torch.cat([x, x]) | torch.stack([x, x]) | torch.nn.functional.relu(x) | torch.softmax(x, -1) | torch.mm(x, d.t()) | torch.matmul(d, x)
torch.zeros_like(x) | torch.ones_like(x) | torch.empty_like(x).shape | torch.rand_like(x).shape | torch.where(x > 0, x, 0) | torch.equal(x, y)
torch.allclose(x, x) | torch.sum(x, 0) | torch.nn.functional.linear(x, d) | torch.nn.functional.dropout(x, 0.0) | torch.broadcast_tensors(x, d)
torch.nested.to_padded_tensor(x, 0.0) | torch.sparse.mm(x, d.t()) | torch.sparse.sum(x) | torch.narrow(x, 0, 0, 1) | torch.split(x, 1) | torch.chunk(x, 2)
x.new_zeros(2) | x.new_tensor([1.0]) | x.type_as(d) | x.type(torch.float64) | x.argmax() | x.sort().values | x.topk(1).values | x.norm() | x.pow(2)
x.masked_fill(x > 0, 1) | x.cumsum(0) | x.std() | torch.isnan(x) | torch.vmap(lambda t: t.size(0) + t)(x) | torch.vmap(lambda t: t * len(t))(d)
torch.func.grad(lambda t: (t * t.size(0)).sum())(x) | torch.vmap(lambda t: t.shape[0])(d) | torch.func.jvp(torch.sin, (x,), (x,))[1] | sum(x)
torch.nested.nested_tensor([d, d[:1]]).size(0) | torch.nested.nested_tensor([d, d[:2]]).is_contiguous() | torch.nested.as_nested_tensor([d, d]).dim()
torch.nested.nested_tensor([d, d[:1]], layout=torch.jagged).size(0) | torch.nested.nested_tensor([d, d[:2]], layout=torch.jagged).shape[-1]
list(torch.nested.nested_tensor([d, d[:1]])) | len(torch.nested.nested_tensor([d, d])) | d.to_sparse().size(0) | d.to_sparse().sum() | len(d.to_sparse_csr())
d.to_sparse_csr().shape | d.to_mkldnn().size(0) | d.to_mkldnn().stride() | torch.quantize_per_tensor(d, 0.1, 0, torch.qint8).shape | copy.copy(x).shape
copy.deepcopy(x).shape | x.untyped_storage().resize_(0) and None | hash(x) == hash(x) | d + len(x) | d * x.size(0)
d[: x.size(0)] | d.expand(x.dim(), *d.shape) | zip_sizes(x, y) | [d * s for s in x.shape] | torch.full((2,), x.dim()) | d.sum().item() + x.dim()
x.register_hook(torch.neg) and None | torch.utils.dlpack.to_dlpack(x) and None | torch.save_is_here if False else x.ndim | x.__class__ is torch.Tensor
torch.autograd.grad(x.sum(), x) | x.backward() | id(x) == id(x) | x.as_subclass(torch.Tensor) | x.is_set_to(x) | torch.result_type(x, y) | torch.can_cast(x.dtype, y.dtype)
"""

REFILLS = """
x.untyped_storage().resize_(64).fill_(0) and None | x.untyped_storage().nbytes() | x.untyped_storage().size()
"""


def functions(text):
    return [f.strip() for line in text.strip().splitlines() for f in line.split(" | ") if f.strip()]
