"""What `kintsugi bench` measures: inference on CPU, random weights, the sizes that people use.

An entry builds a callable and its arguments. Models come from transformers (random configurations, nothing is
downloaded) or are written here; where a package is missing the row says so. The most important rows come first.
"""

import fnmatch
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn


@dataclass(frozen=True)
class Entry:
    """name, what it stands for, and make() -> (callable, args, kwargs), in evaluation mode, seeded."""
    name: str
    about: str
    build: Callable[[], tuple]
    small: bool = False   # bound by overhead, not by arithmetic: timed in longer loops
    copies: bool = False  # bound by memory: reads its argument and writes a result of its size
    more: bool = False    # measured only when it is named
    again: bool = False   # another size of a model of the list: its first calls are not measured

    def make(self):
        torch.manual_seed(20)
        fn, args, kwargs = self.build()
        return (fn.eval() if isinstance(fn, nn.Module) else fn), args, kwargs


def _hf(model, config, inputs, **settings):
    def build():
        import transformers

        transformers.logging.set_verbosity_error()
        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return made, (), inputs()
    return build


def _ids(batch, length, vocab=1000):
    return torch.randint(3, vocab, (batch, length), generator=torch.Generator().manual_seed(1))


def _noise(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1))


def _image(batch):
    return lambda: {"pixel_values": _noise(batch, 3, 224, 224)}


def _text(batch, length):
    return lambda: {"input_ids": _ids(batch, length)}


def _prompt(batch, length):
    return lambda: {"input_ids": _ids(batch, length), "use_cache": False}


def _decode(model, config, batch, past, **settings):
    """One token behind `past` tokens that are in the cache; the cache is put back to its length after each call."""
    def build():
        module, _, _ = _hf(model, config, dict, **settings)()
        module.eval()
        with torch.no_grad():
            cache = module(_ids(batch, past), use_cache=True).past_key_values
        token = _ids(batch, 1)
        layers = [(layer, layer.keys, layer.values) for layer in cache.layers]

        def step(token):
            for layer, keys, values in layers:
                layer.keys, layer.values = keys, values
            return module(token, past_key_values=cache, use_cache=True).logits
        return step, (token,), {}
    return build


_BERT = dict(vocab_size=30522, hidden_size=768, intermediate_size=3072, num_attention_heads=12)
_GPT2 = dict(n_embd=768, n_layer=12, n_head=12)
_LLAMA = dict(vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
              num_key_value_heads=4, max_position_embeddings=512)
_T5 = dict(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
_WHISPER = dict(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
                encoder_ffn_dim=1536, decoder_ffn_dim=1536)
_RESNET18 = dict(layer_type="basic", embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
_RESNET50 = dict(layer_type="bottleneck", embedding_size=64, hidden_sizes=[256, 512, 1024, 2048], depths=[3, 4, 6, 3])


def _t5_inputs(batch):
    return lambda: {"input_ids": _ids(batch, 64), "decoder_input_ids": _ids(batch, 16), "use_cache": False}


def _whisper_inputs(batch=1):
    return {"input_features": _noise(batch, 80, 3000), "decoder_input_ids": _ids(batch, 16), "use_cache": False}


def _clip_inputs(batch):
    return lambda: {"input_ids": _ids(batch, 16), **_image(batch)()}


def _mlp(batch):
    def build():
        layers = [nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)]
        return nn.Sequential(*layers), (_noise(batch, 64),), {}
    return build


class _LSTMLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, xs):
        h = c = torch.zeros(xs.shape[1], 64)
        for x in xs:
            h, c = self.cell(x, (h, c))
        return h


def _lstm(batch):
    return lambda: (_LSTMLoop(), (_noise(50, batch, 64),), {})


def _physics():
    """Particles under gravity, drag and a spring, thirty small operations a call."""
    def step(position, velocity):
        dt = 0.01
        for _ in range(3):
            distance = (position * position + 0.1).sqrt()
            force = -position / (distance * distance * distance)
            force = force - 0.2 * velocity
            force = force - 0.5 * torch.sin(position)
            velocity = velocity + dt * force
            position = position + dt * velocity
        return position, velocity
    return step, (torch.randn(1000), torch.randn(1000)), {}


def _foo3():
    def foo3(x):
        return torch.nn.functional.relu(x + 1) * 2
    return foo3, (torch.randn(4096, 4096),), {}


def _two_ops():
    def two_ops(x):
        return torch.sin(x) + 1
    return two_ops, (torch.randn(8),), {}


def _resnet(batch, settings):
    return _hf("ResNetForImageClassification", "ResNetConfig", _image(batch), **settings)


def _bert(layers, batch, length):
    return _hf("BertModel", "BertConfig", _text(batch, length), num_hidden_layers=layers, **_BERT)


def _vision(name, batch):
    return _hf(f"{name}ForImageClassification", f"{name}Config", _image(batch))


def _gpt2(batch, length):
    return _hf("GPT2LMHeadModel", "GPT2Config", _prompt(batch, length), **_GPT2)


def _llama(batch, length):
    return _hf("LlamaForCausalLM", "LlamaConfig", _prompt(batch, length), **_LLAMA)


def _t5(batch):
    return _hf("T5ForConditionalGeneration", "T5Config", _t5_inputs(batch), **_T5)


ENTRIES = [
    Entry("resnet18", "ResNet-18, batch 1", _resnet(1, _RESNET18)),
    Entry("resnet50", "ResNet-50, batch 1", _resnet(1, _RESNET50)),
    Entry("vit-b", "ViT-B/16, batch 1", _vision("ViT", 1)),
    Entry("swin-t", "Swin-T, batch 1", _vision("Swin", 1)),
    Entry("convnext-t", "ConvNext-T, batch 1", _vision("ConvNext", 1)),
    Entry("bert-4", "BERT-base, 4 layers, 1x128", _bert(4, 1, 128)),
    Entry("bert-12", "BERT-base, 12 layers, 1x128", _bert(12, 1, 128)),
    Entry("gpt2-prefill", "GPT-2, 1x128", _gpt2(1, 128)),
    Entry("gpt2-decode", "GPT-2, one token behind 128", _decode("GPT2LMHeadModel", "GPT2Config", 1, 128, **_GPT2)),
    Entry("llama-prefill", "Llama, 4 layers of 512, 1x96", _llama(1, 96)),
    Entry("llama-decode", "Llama, one token behind 96", _decode("LlamaForCausalLM", "LlamaConfig", 1, 96, **_LLAMA)),
    Entry("t5-small", "T5-small, 64 to 16 tokens", _t5(1)),
    Entry("whisper-tiny", "Whisper-tiny, 30 s", _hf("WhisperForConditionalGeneration", "WhisperConfig", _whisper_inputs, **_WHISPER)),
    Entry("clip", "CLIP ViT-B/32, one pair", _hf("CLIPModel", "CLIPConfig", _clip_inputs(1))),
    Entry("mlp", "three Linear layers of 64, batch 1", _mlp(1), small=True),
    Entry("lstm-loop", "LSTMCell of 64, 50 steps, batch 1", _lstm(1)),
    Entry("physics", "30 small pointwise operations on 1000 numbers", _physics, small=True),
    Entry("foo3", "relu(x + 1) * 2 on 4096x4096", _foo3, copies=True),
    Entry("two-ops", "sin(x) + 1 on 8 numbers", _two_ops, small=True),
    # Batch 8, but for what has none; the longest last: they are left out first where time is over.
    Entry("resnet18-b8", "ResNet-18, batch 8", _resnet(8, _RESNET18), again=True),
    Entry("resnet50-b8", "ResNet-50, batch 8", _resnet(8, _RESNET50), again=True),
    Entry("bert-4-b8", "BERT-base, 4 layers, 8x64", _bert(4, 8, 64), again=True),
    Entry("llama-decode-b8", "Llama, one token behind 96, batch 8",
          _decode("LlamaForCausalLM", "LlamaConfig", 8, 96, **_LLAMA), again=True),
    Entry("llama-prefill-b8", "Llama, 4 layers of 512, 8x96", _llama(8, 96), again=True),
    Entry("mlp-b8", "three Linear layers of 64, batch 8", _mlp(8), small=True, again=True),
    Entry("lstm-loop-b8", "LSTMCell of 64, 50 steps, batch 8", _lstm(8), again=True),
    Entry("gpt2-decode-b8", "GPT-2, one token behind 128, batch 8",
          _decode("GPT2LMHeadModel", "GPT2Config", 8, 128, **_GPT2), again=True),
    Entry("t5-small-b8", "T5-small, 64 to 16 tokens, batch 8", _t5(8), again=True),
    Entry("convnext-t-b8", "ConvNext-T, batch 8", _vision("ConvNext", 8), again=True),
    Entry("swin-t-b8", "Swin-T, batch 8", _vision("Swin", 8), again=True),
    Entry("bert-12-b8", "BERT-base, 12 layers, 8x64", _bert(12, 8, 64), again=True),
    Entry("clip-b8", "CLIP ViT-B/32, 8 pairs", _hf("CLIPModel", "CLIPConfig", _clip_inputs(8)), again=True),
    Entry("gpt2-prefill-b8", "GPT-2, 8x64", _gpt2(8, 64), again=True),
    Entry("vit-b-b8", "ViT-B/16, batch 8", _vision("ViT", 8), again=True),
    Entry("whisper-tiny-b8", "Whisper-tiny, 8 times 30 s",
          _hf("WhisperForConditionalGeneration", "WhisperConfig", lambda: _whisper_inputs(8), **_WHISPER), again=True, more=True),
]


def find(names):
    """Entries by name or pattern (`bert-*`), without any the list (not those with `more`); KeyError with the choices for what does not exist."""
    found = []
    for name in names:
        matching = [entry for entry in ENTRIES if fnmatch.fnmatchcase(entry.name, name)]
        if not matching:
            raise KeyError(f"bench has no model {name!r}; there are: {', '.join(entry.name for entry in ENTRIES)}")
        found += [entry for entry in matching if entry not in found]
    return found or [entry for entry in ENTRIES if not entry.more]
