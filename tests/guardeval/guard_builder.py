"""Describing guards by hand, and asking them."""


class Build:
    """Collects vals and facts; numbers are the vids of the trace."""

    def __init__(self, probe, func=None, epoch=0):
        """`epoch`: where values and facts belong that do not say it; roots are then older values."""
        self.probe, self.func, self.vals, self.facts, self.nepochs, self.epoch = probe, func, [], [], epoch + 1, epoch

    def const(self, obj):
        self.vals.append(("const", obj))
        return len(self.vals)

    def src(self, access, parent=0, key=0, epoch=None):
        if epoch is None:
            epoch = 0 if access in ("LOCAL", "FUNC") else self.epoch
        self.vals.append(("src", access, epoch, parent, key))
        return len(self.vals)

    def step(self):
        """A value that a step makes."""
        self.vals.append(("step",))
        return len(self.vals)

    def fact(self, kind, vid, ref=None, num=0, vid2=0, epoch=None):
        epoch = self.epoch if epoch is None else epoch
        self.facts.append((kind, epoch, vid, vid2, ref, num))
        return len(self.facts) - 1

    def type_version(self, vid, cls):
        return self.fact("TYPE_VERSION", vid, cls, self.probe.type_tag(cls))

    def make(self, used=(), writes=()):
        return self.probe.Entry(self.func, self.vals, self.facts, list(used), list(writes), self.nepochs)


def passes(v, slots, epoch=0):
    ok, _, _, loaded, _ = v.eval(epoch, slots)
    assert ok, v.eval(epoch, slots)
    return loaded


def misses(v, slots, fact=None, vid=None, epoch=0):
    ok, failed, at, loaded, text = v.eval(epoch, slots)
    assert not ok and not loaded
    assert isinstance(text, str) and text
    if fact is not None or vid is not None:
        assert (failed, at) == (fact, vid if vid is not None else at)
    return text


class Node:
    pass
