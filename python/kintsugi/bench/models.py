"""What `kintsugi bench` measures: inference on CPU, random weights, the sizes that people use.

An entry builds a callable and its arguments. Models come from transformers (random configurations, nothing is
downloaded) or are written here; entries whose package is missing are skipped with a note.
"""

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


def _image(batch):
    return lambda: {"pixel_values": torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(1))}


def _text(batch, length):
    return lambda: {"input_ids": _ids(batch, length)}


def _prompt(batch, length):
    return lambda: {"input_ids": _ids(batch, length), "use_cache": False}


def _decode(model, config, past, **settings):
    """One token behind `past` tokens that are in the cache; the cache is put back to its length after each call."""
    def build():
        module, _, _ = _hf(model, config, dict, **settings)()
        module.eval()
        with torch.no_grad():
            cache = module(_ids(1, past), use_cache=True).past_key_values
        token = _ids(1, 1)
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


def _t5_inputs():
    return {"input_ids": _ids(1, 64), "decoder_input_ids": _ids(1, 16), "use_cache": False}


def _whisper_inputs():
    return {"input_features": torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(1)),
            "decoder_input_ids": _ids(1, 16), "use_cache": False}


def _clip_inputs():
    return {"input_ids": _ids(1, 16), **_image(1)()}


def _mlp():
    layers = [nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)]
    return nn.Sequential(*layers), (torch.randn(1, 64),), {}


class _LSTMLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, xs):
        h = c = torch.zeros(xs.shape[1], 64)
        for x in xs:
            h, c = self.cell(x, (h, c))
        return h


def _lstm():
    return _LSTMLoop(), (torch.randn(50, 1, 64),), {}


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


ENTRIES = [
    Entry("resnet18", "ResNet-18, batch 1", _hf("ResNetForImageClassification", "ResNetConfig", _image(1), **_RESNET18)),
    Entry("resnet50", "ResNet-50, batch 1", _hf("ResNetForImageClassification", "ResNetConfig", _image(1), **_RESNET50)),
    Entry("resnet50-b8", "ResNet-50, batch 8", _hf("ResNetForImageClassification", "ResNetConfig", _image(8), **_RESNET50)),
    Entry("vit-b", "ViT-B/16, batch 1", _hf("ViTForImageClassification", "ViTConfig", _image(1))),
    Entry("swin-t", "Swin-T, batch 1", _hf("SwinForImageClassification", "SwinConfig", _image(1))),
    Entry("convnext-t", "ConvNext-T, batch 1", _hf("ConvNextForImageClassification", "ConvNextConfig", _image(1))),
    Entry("bert-4", "BERT-base, 4 layers, 1x128", _hf("BertModel", "BertConfig", _text(1, 128), num_hidden_layers=4, **_BERT)),
    Entry("bert-12", "BERT-base, 1x128", _hf("BertModel", "BertConfig", _text(1, 128), num_hidden_layers=12, **_BERT)),
    Entry("bert-4-b8", "BERT-base, 4 layers, 8x64", _hf("BertModel", "BertConfig", _text(8, 64), num_hidden_layers=4, **_BERT)),
    Entry("gpt2-prefill", "GPT-2, 1x128", _hf("GPT2LMHeadModel", "GPT2Config", _prompt(1, 128), **_GPT2)),
    Entry("gpt2-decode", "GPT-2, one token behind 128", _decode("GPT2LMHeadModel", "GPT2Config", 128, **_GPT2)),
    Entry("llama-prefill", "Llama, 4 layers of 512, 1x96", _hf("LlamaForCausalLM", "LlamaConfig", _prompt(1, 96), **_LLAMA)),
    Entry("llama-decode", "Llama, one token behind 96", _decode("LlamaForCausalLM", "LlamaConfig", 96, **_LLAMA)),
    Entry("t5-small", "T5-small, 64 to 16 tokens", _hf("T5ForConditionalGeneration", "T5Config", _t5_inputs, **_T5)),
    Entry("whisper-tiny", "Whisper-tiny, 30 s", _hf("WhisperForConditionalGeneration", "WhisperConfig", _whisper_inputs, **_WHISPER)),
    Entry("clip", "CLIP ViT-B/32, one pair", _hf("CLIPModel", "CLIPConfig", _clip_inputs)),
    Entry("mlp", "three Linear layers of 64, batch 1", _mlp, small=True),
    Entry("lstm-loop", "LSTMCell of 64, 50 steps", _lstm),
    Entry("physics", "30 small pointwise operations on 1000 numbers", _physics, small=True),
    Entry("foo3", "relu(x + 1) * 2 on 4096x4096", _foo3),
    Entry("two-ops", "sin(x) + 1 on 8 numbers", _two_ops, small=True),
]


def find(names):
    """Entries by name, all when there are none; KeyError with the choices for a name that does not exist."""
    table = {entry.name: entry for entry in ENTRIES}
    unknown = [name for name in names if name not in table]
    if unknown:
        raise KeyError(f"bench has no model {unknown[0]!r}; there are: {', '.join(table)}")
    return [table[name] for name in names] if names else list(ENTRIES)
