"""`make libraries`: libraries that users bring, each by its README's typical use: outputs and gradients against eager.

Each program runs in a process of its own, twice with the same seed: as it is, and with kintsugi.install() and torch.compile. What is not
installed is left out and said. Writes docs/libraries.md.

    python tools/libraries.py [--only NAME ...] [--docs docs/libraries.md]

Libraries come from the environment; `pip install --no-deps` into one beside the project keeps them from bringing another torch.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import textwrap
import time

TIMEOUT = 400
PROGRAMS = {}


def program(package, use):
    """The function gets `compile` and returns a list of tensors; gradients of what it returns are up to it."""

    def note(fn):
        PROGRAMS[fn.__name__] = package, use, fn
        return fn

    return note


def _train(model, inputs, loss=lambda out: out.float().pow(2).mean()):
    """Output, loss and gradients of two steps."""
    import torch

    found = []
    for _ in range(3):
        model.zero_grad()
        out = model(*inputs)
        value = loss(out)
        value.backward()
        found += [value.detach().clone(), *(p.grad.detach().clone() for p in model.parameters() if p.grad is not None)]
        if isinstance(out, torch.Tensor):
            found.append(out.detach().clone())
    return found


@program("lightning", "Trainer.fit of a compiled LightningModule, two epochs")
def lightning(compile):
    import lightning as L
    import torch

    class Lit(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

        def training_step(self, batch, index):
            x, y = batch
            return torch.nn.functional.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    model = Lit()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=8)
    trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                        accelerator="cpu", devices=1)
    trainer.fit(compile(model), data)
    return [p.detach() for p in model.parameters()]


@program("accelerate", "prepare, backward, step")
def accelerate(compile):
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(compile(model), optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
    return [p.detach() for p in accelerator.unwrap_model(model).parameters()]


@program("peft", "LoRA adapters on a small GPT-2")
def peft(compile):
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = get_peft_model(transformers.GPT2LMHeadModel(config), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    ids = torch.randint(0, 100, (2, 12))
    compiled, found = compile(model), []
    for _ in range(3):
        model.zero_grad()
        loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        found += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return found


@program("diffusers", "a denoising step of a small UNet2DModel, three time steps")
def diffusers(compile):
    import torch
    from diffusers import DDPMScheduler, UNet2DModel

    net = UNet2DModel(sample_size=16, in_channels=3, out_channels=3, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")).eval()
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    scheduler.set_timesteps(3)
    compiled, x = compile(net), torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(compiled(x, t).sample, t, x, generator=torch.Generator().manual_seed(0)).prev_sample
    return [x]


@program("timm", "a vision transformer and a ResNet, forward and backward")
def timm(compile):
    import timm as library
    import torch

    found = []
    for name, options in (("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 2}), ("resnet10t", {})):
        model = library.create_model(name, pretrained=False, num_classes=5, **options).eval()
        found += _train(compile(model), (torch.randn(2, 3, 32, 32),))
    return found


@program("torch_geometric", "a two-layer GCN")
def torch_geometric(compile):
    import torch
    from torch_geometric.nn import GCNConv

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(8, 16), GCNConv(16, 3)

        def forward(self, x, edges):
            return self.second(self.first(x, edges).relu(), edges)

    return _train(compile(Net()), (torch.randn(10, 8), torch.randint(0, 10, (2, 30))))


@program("tensordict", "a TensorDictModule, called with a TensorDict")
def tensordict(compile):
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    net = TensorDictSequential(TensorDictModule(torch.nn.Linear(4, 8), in_keys=["x"], out_keys=["h"]),
                               TensorDictModule(torch.nn.Linear(8, 2), in_keys=["h"], out_keys=["y"]))
    compiled, found = compile(net), []
    for _ in range(3):
        td = compiled(TensorDict({"x": torch.randn(3, 4)}, batch_size=[3]))
        td["y"].sum().backward()
        found += [td["y"].detach(), next(net.parameters()).grad.clone()]
    return found


@program("torchrl", "a compiled actor network inside of a TensorDictModule")
def torchrl(compile):
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP

    actor = TensorDictModule(compile(MLP(in_features=4, out_features=2, num_cells=[16, 16])), in_keys=["observation"], out_keys=["action"])
    found = []
    for _ in range(3):
        td = actor(TensorDict({"observation": torch.randn(5, 4)}, batch_size=[5]))
        td["action"].pow(2).sum().backward()
        found += [td["action"].detach(), *(p.grad.clone() for p in actor.parameters())]
    return found


@program("gpytorch", "exact GP regression, loss and gradients")
def gpytorch(compile):
    import gpytorch as library
    import torch

    x = torch.linspace(0, 1, 20)
    y = torch.sin(x * 6)

    class Model(library.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = library.means.ConstantMean(), library.kernels.ScaleKernel(library.kernels.RBFKernel())

        def forward(self, x):
            return library.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = library.likelihoods.GaussianLikelihood()
    model = Model(likelihood).train()
    mll = library.mlls.ExactMarginalLogLikelihood(likelihood, model)

    @compile
    def loss():
        return -mll(model(x), y)

    found = []
    for _ in range(3):
        model.zero_grad()
        value = loss()
        value.backward()
        found += [value.detach().clone(), *(p.grad.clone() for p in model.parameters())]
    return found


@program("pyro", "SVI steps with a compiled decoder")
def pyro(compile):
    import pyro as library
    import pyro.distributions as dist
    import torch
    from pyro.infer import SVI, Trace_ELBO

    library.clear_param_store()
    decoder = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    fast = compile(decoder)

    def model(data):
        library.module("decoder", decoder)
        with library.plate("data", len(data)):
            z = library.sample("z", dist.Normal(torch.zeros(len(data), 2), 1.0).to_event(1))
            library.sample("x", dist.Normal(fast(z), 1.0).to_event(1), obs=data)

    def guide(data):
        loc = library.param("loc", torch.zeros(len(data), 2))
        with library.plate("data", len(data)):
            library.sample("z", dist.Normal(loc, 1.0).to_event(1))

    svi = SVI(model, guide, library.optim.Adam({"lr": 0.01}), loss=Trace_ELBO())
    data = torch.randn(6, 4)
    return [torch.tensor([svi.step(data) for _ in range(5)]), *(p.detach() for p in decoder.parameters())]


@program("torchdiffeq", "odeint of a compiled vector field, gradients through the solver")
def torchdiffeq(compile):
    import torch
    from torchdiffeq import odeint

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y)

    field = Field()
    fast, found = compile(field), []
    for method in ("rk4", "dopri5"):
        field.zero_grad()
        out = odeint(fast, torch.tensor([[1.0, 0.0]]), torch.linspace(0, 1, 5), method=method)
        out.sum().backward()
        found += [out.detach(), *(p.grad.clone() for p in field.parameters())]
    return found


@program("kornia", "blur, edges and a random augmentation with fixed parameters")
def kornia(compile):
    import kornia as library
    import torch

    def process(x):
        return library.filters.sobel(library.filters.gaussian_blur2d(x, (5, 5), (1.0, 1.0))), library.color.rgb_to_hsv(x)

    x, fast = torch.rand(2, 3, 16, 16, requires_grad=True), compile(process)
    found = []
    for _ in range(3):
        edges, hsv = fast(x)
        found += [edges.detach(), hsv.detach(), torch.autograd.grad(edges.sum(), x)[0]]
    return found


@program("monai", "a small UNet with Dice loss")
def monai(compile):
    import torch
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet

    net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))
    target, loss = torch.randint(0, 2, (2, 1, 16, 16)), DiceLoss(to_onehot_y=True, softmax=True)
    return _train(compile(net), (torch.randn(2, 1, 16, 16),), lambda out: loss(out, target))


@program("stable_baselines3", "PPO with a compiled policy network, 128 steps")
def stable_baselines3(compile):
    import gymnasium
    import torch
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    model.policy.mlp_extractor = compile(model.policy.mlp_extractor)
    model.learn(128)
    return [p.detach() for p in model.policy.parameters()]


@program("captum", "integrated gradients of a compiled model")
def captum(compile):
    import torch
    from captum.attr import IntegratedGradients, Saliency

    model = compile(torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval())
    x = torch.rand(4, 6)
    return [IntegratedGradients(model).attribute(x, target=1, n_steps=8), Saliency(model).attribute(x.requires_grad_(), target=0)]


@program("x_transformers", "a small decoder, forward and backward")
def x_transformers(compile):
    import torch
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True))
    return _train(compile(model), (torch.randint(0, 50, (2, 16)),))


@program("einops", "rearrange layers and functions")
def einops(compile):
    import torch
    from einops import rearrange, reduce
    from einops.layers.torch import Rearrange

    net = torch.nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), torch.nn.Linear(48, 8))
    return _train(compile(net), (torch.randn(2, 3, 8, 8),), lambda out: reduce(rearrange(out, "b n d -> n b d"), "n b d -> ", "mean").pow(2))


@program("ema_pytorch", "a moving average of a compiled model's weights")
def ema_pytorch(compile):
    import torch
    from ema_pytorch import EMA

    model = torch.nn.Linear(4, 4)
    ema, fast, optimizer = EMA(model, beta=0.9, update_after_step=0, update_every=1), compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        fast(torch.randn(3, 4)).pow(2).sum().backward()
        optimizer.step()
        ema.update()
    return [ema(torch.ones(1, 4)).detach(), *(p.detach() for p in model.parameters())]


@program("vector_quantize_pytorch", "a vector quantiser in eval mode")
def vector_quantize_pytorch(compile):
    import torch
    from vector_quantize_pytorch import VectorQuantize

    vq = compile(VectorQuantize(dim=16, codebook_size=32).eval())
    return [t for _ in range(3) for t in vq(torch.randn(1, 10, 16))[:2]]


@program("torchsde", "an SDE solved with a compiled drift")
def torchsde(compile):
    import torch
    import torchsde as library

    class SDE(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift = compile(torch.nn.Linear(3, 3))

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return 0.1 * torch.ones_like(y)

    bm = library.BrownianInterval(t0=0.0, t1=1.0, size=(2, 3), entropy=7)
    return [library.sdeint(SDE(), torch.ones(2, 3), torch.linspace(0, 1, 4), method="euler", dt=0.1, bm=bm)]


@program("open_clip", "a small CLIP, both towers")
def open_clip(compile):
    import torch
    from open_clip.model import CLIP

    model = CLIP(embed_dim=16, vision_cfg={"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
                 text_cfg={"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}).eval()
    return _train(compile(model), (torch.randn(2, 3, 16, 16), torch.randint(1, 49, (2, 8))), lambda out: (out[0] @ out[1].T).pow(2).mean())


@program("lion_pytorch", "the optimizer's step, compiled")
def lion_pytorch(compile):
    import torch
    from lion_pytorch import Lion

    model = torch.nn.Linear(4, 4)
    optimizer = Lion(model.parameters(), lr=0.01)
    step = compile(optimizer.step)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).sum().backward()
        step()
    return [p.detach() for p in model.parameters()]


# ---- one program in one process ----


def declare_torchvision():
    """Many libraries import torchvision, whose C part is for one version of torch each. Where it is for another, its Python part serves all that
    is used here, once the operators that it wants when imported are declared. What declares them is kept."""
    import re

    import torch

    declared = torch.library.Library("torchvision", "FRAGMENT")
    for _ in range(20):
        try:
            import torchvision  # noqa: F401
        except ImportError:
            pass
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            declared.define(f"{missing[1]}(Tensor boxes) -> Tensor")
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            continue
        return declared


def run_one(name):
    import random

    import torch

    import kintsugi

    declared = declare_torchvision()  # noqa: F841

    def run(compile):
        torch.manual_seed(0)
        random.seed(0)
        return [t.detach().clone() for t in PROGRAMS[name][2](compile)]

    expected = run(lambda fn: fn)
    kintsugi.install()
    kept = []  # counters go with the compiled function

    def compile(fn):
        kept.append(torch.compile(fn))
        return kept[-1]

    start = time.perf_counter()
    got = run(compile)
    report = {"seconds": round(time.perf_counter() - start, 1), "tensors": len(got)}
    stats = kintsugi.stats().values()
    report.update({key: sum(s[key] for s in stats) for key in ("recordings", "replays", "breaks")})
    report["eager"] = sum(n for s in stats for n in s["eager_calls"].values())
    difference = [float((a.double() - b.double()).abs().max()) for a, b in zip(got, expected) if a.shape == b.shape and a.numel()]
    report["difference"] = max(difference, default=0.0)
    report["same"] = len(got) == len(expected) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in zip(got, expected))
    print("REPORT " + json.dumps(report))


def run_in_process(name):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", name], capture_output=True, text=True, timeout=TIMEOUT)
    for line in done.stdout.splitlines():
        if line.startswith("REPORT "):
            return json.loads(line[7:])
    return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:160], "code": done.returncode}


def version_of(package):
    from importlib import metadata

    for name in (package, package.replace("_", "-"), {"pyro": "pyro-ppl", "open_clip": "open_clip_torch"}.get(package, package)):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return None


def row_of(name):
    package, use, _ = PROGRAMS[name]
    version = version_of(package)
    if version is None:
        return f"| {package} | - | {use} | not installed |  |  |  |  |"
    try:
        report = run_in_process(name)
    except subprocess.TimeoutExpired:
        report = {"error": f"not done after {TIMEOUT} s"}
    if "error" in report:
        return f"| {package} | {version} | {use} | error: {report['error']} |  |  |  |  |"
    verdict = "same" if report["same"] else "differs"
    return (f"| {package} | {version} | {use} | {verdict} ({report['tensors']} tensors, {report['difference']:.1e}) | {report['recordings']} | "
            f"{report['replays']} | {report['breaks']} | {report['eager']} |")


HEAD = """# Libraries

Made by `make libraries` (`tools/libraries.py`): the typical use in each library's README, run as it is and again with `kintsugi.install()` and the same seed;
outputs and gradients (or parameters after training) compared: rtol 1e-4, atol 1e-5, and the largest difference. Recordings, replays, graph breaks and
calls that ran eagerly are sums over all compiled functions of the program.
A difference of 0.0 although gradients are needed means that recorded calls were replayed step by step, without kernels.

| library | version | use | result | recordings | replays | breaks | eager calls |
|---|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(description=textwrap.dedent(inspect.getdoc(sys.modules[__name__])))
    parser.add_argument("--one", choices=PROGRAMS)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS)
    parser.add_argument("--docs")
    args = parser.parse_args()
    if args.one:
        run_one(args.one)
        return
    rows = read_rows(args.docs) if args.docs and args.only else {}
    for name in args.only or PROGRAMS:
        rows[PROGRAMS[name][0]] = row_of(name)
        print(rows[PROGRAMS[name][0]], flush=True)
    if args.docs:
        with open(args.docs, "w", encoding="utf-8") as file:
            file.write(HEAD + "".join(f"{rows[package]}\n" for package, _, _ in PROGRAMS.values() if package in rows))


def read_rows(path):
    """The rows of an earlier run: with --only the others stay as they are."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ") and not line.startswith("| library ")}


if __name__ == "__main__":
    main()
