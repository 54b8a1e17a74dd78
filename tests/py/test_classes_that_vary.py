"""Classes that a step gives and that are others in each call (`B.__mro__[n]`): no constant stands for them."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class A:
    k = 1

    def __init__(self, v=0):
        self.v = v

    @classmethod
    def make(cls):
        return cls(3)

    @staticmethod
    def number():
        return 7


class B(A):
    k = 2


def names(x, n):
    return x + 1, B.__mro__[n].__name__


def instances(x, n):
    return x + B.__mro__[n](2).v


def class_methods(x, n):
    return x * B.__mro__[n].make().v + B.__mro__[n].number()


def instance_checks(x, n):
    return x + 1, isinstance(A(), B.__mro__[n]), issubclass(A, B.__mro__[n])


def subclasses(x, n):
    return x * type(x).__mro__[n].__dict__.get("k", 2), torch.Tensor.__mro__[n].__module__


def handlers(x, n):
    try:
        raise [ValueError, KeyError][n]("a")
    except ValueError.__mro__[n]:
        return x + n


def stores(x, n):
    B.__mro__[n].z = n
    out = x * B.__mro__[n].z
    del B.__mro__[n].z
    return out


def behind(x, n):
    return x * super(B.__mro__[0], B()).k, getattr(B.__mro__[n], "k")


@pytest.mark.parametrize("fn", [names, instances, class_methods, instance_checks, subclasses, handlers, stores, behind])
def test_class_of_a_step(fn):
    compiled, x = kintsugi.compile(fn), torch.ones(2)
    for n in (0, 1, 0, 1, 0, 1):
        try:
            expected = fn(x, n)
        except KeyError as error:
            with pytest.raises(KeyError, match=str(error)):
                compiled(x, n)
            continue
        assert repr(compiled(x, n)) == repr(expected)
