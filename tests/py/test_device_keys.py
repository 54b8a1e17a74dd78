"""Dicts with devices as keys: there is a new object whenever one is asked for, and equal ones are one key."""
import kintsugi
import torch


def test_values_under_devices_are_found_again():
    held = {}

    def put(x):
        held["all"] = {x.device: x.sum(), torch.device("meta"): 3, 7: x.amax()}

    def get(x):
        return x + sum(v for v in held["all"].values() if isinstance(v, torch.Tensor)) * held["all"][torch.device("cpu")]
    fn = kintsugi.compile(get)
    for i in range(6):
        x = torch.full((3,), float(i))
        put(x)
        torch.testing.assert_close(fn(x), get(x))
    stats = kintsugi.stats(fn)
    assert (stats["recordings"], stats["bail_outs"]) == (1, 0), stats


def test_another_device_is_another_key():
    held = {"all": {}}

    def get(x):
        return x * held["all"].get(x.device, 2)
    fn = kintsugi.compile(get)
    x = torch.ones(2)
    for found in ({torch.device("cpu"): 3}, {torch.device("cpu"): 3}, {torch.device("cpu", 0): 5}, {torch.device("meta"): 4}, {"cpu": 6}, {torch.device("cpu"): 3}):
        held["all"] = found
        assert fn(x).tolist() == get(x).tolist()
