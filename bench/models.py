"""The model list: real architectures with small random configurations, shared by the tests and the benchmarks.

An entry builds a module (or a function over modules) and makes the arguments of call i: other data each time, the same
shapes. Nothing is downloaded; everything is seeded, so two builds of an entry are equal bit by bit. Sizes are chosen so
that the whole list runs in well under a minute of eager time on two cores, while each architecture keeps what makes
it hard to capture: masks, caches, windows, routing, two towers, ModelOutput classes.

`python bench/models.py` lists the entries.
"""
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn

VOCAB = 199
IMAGE = 32
BATCH = 2
SEQ = 16


@dataclass(frozen=True)
class Entry:
    """One line of the list.

    build() -> module in eval mode. inputs(i) -> (args, kwargs) of call i. call(module) -> what is compiled: the module
    itself, or a function over it. train: the entry is also part of the training list. train_inputs(i): its inputs
    there, chosen so that `loss` can be taken.
    """
    name: str
    family: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple]
    train: bool = False
    train_inputs: Callable[[int], tuple] | None = None
    build_train: Callable[[], nn.Module] | None = None
    call: Callable[[nn.Module], Any] = lambda module: module

    @property
    def needs(self):
        """The package besides torch that it is made with, if any."""
        return getattr(self.build, "needs", None)

    def make(self):
        torch.manual_seed(1234)
        return self.build().eval()

    def make_train(self):
        torch.manual_seed(1234)
        return (self.build_train or self.build)().train()

    def training_inputs(self, i):
        return (self.train_inputs or self.inputs)(i)


def generator(i, salt=0):
    return torch.Generator().manual_seed(7919 * i + salt + 1)


def tokens(i, shape=(BATCH, SEQ), salt=0, low=3):
    return torch.randint(low, VOCAB, shape, generator=generator(i, salt))


def images(i, channels=3, size=IMAGE, batch=BATCH):
    return torch.randn(batch, channels, size, size, generator=generator(i, 11))


def features(i, *shape):
    return torch.randn(*shape, generator=generator(i, 13))


def padding(i, shape=(BATCH, SEQ)):
    """A right-padded attention mask. The lengths differ from call to call, never to "no padding at all": whether a
    mask has a hole in it is a decision some models take on its data."""
    mask = torch.ones(shape, dtype=torch.long)
    for row in range(shape[0]):
        mask[row, shape[1] - 1 - (i + row) % 4:] = 0
    return mask


# -- transformers ----------------------------------------------------------------------------------------------------


def hf(model_class, config_class, **config):
    """A builder for a transformers model class with a random small configuration."""
    def build():
        import transformers
        transformers.logging.set_verbosity_error()
        made = getattr(transformers, config_class)(**config)
        return getattr(transformers, model_class)(made)
    build.needs = "transformers"
    return build


DECODER = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
               max_position_embeddings=128, pad_token_id=0)
GPT2 = dict(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2,
            pad_token_id=0)
T5 = dict(vocab_size=VOCAB, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=4,
          pad_token_id=0, eos_token_id=2, decoder_start_token_id=0)
BART = dict(vocab_size=VOCAB, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)
WHISPER = dict(vocab_size=VOCAB, num_mel_bins=16, d_model=64, encoder_layers=2, decoder_layers=2,
               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
               max_source_positions=40, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
               decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
CLIP = dict(text_config=dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, max_position_embeddings=32, eos_token_id=2, bos_token_id=1,
                             pad_token_id=0),
            vision_config=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                               image_size=IMAGE, patch_size=8),
            projection_dim=32)
RESNET = dict(embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[2, 2, 2, 2], num_labels=10)
VIT = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, image_size=IMAGE,
           patch_size=8, num_labels=10)
SWIN = dict(image_size=IMAGE, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10)
CONVNEXT = dict(hidden_sizes=[24, 48, 64, 96], depths=[1, 1, 2, 1], num_labels=10, patch_size=2, image_size=IMAGE)


def dropouts(*names):
    """Configuration entries that make these kinds of dropout active, for the models whose default is none."""
    return dict.fromkeys(names, 0.1)


def text_inputs(i):
    return (), {"input_ids": tokens(i), "attention_mask": padding(i)}


def text_class_inputs(i):
    return (), {"input_ids": tokens(i), "attention_mask": padding(i),
                "labels": torch.randint(0, 3, (BATCH,), generator=generator(i, 17))}


def lm_inputs(i):
    return (), {"input_ids": tokens(i), "use_cache": False}


def lm_train_inputs(i):
    ids = tokens(i)
    return (), {"input_ids": ids, "labels": ids, "use_cache": False}


def image_inputs(i):
    return (), {"pixel_values": images(i)}


def image_class_inputs(i):
    return (), {"pixel_values": images(i), "labels": torch.randint(0, 10, (BATCH,), generator=generator(i, 17))}


def seq2seq_inputs(i):
    return (), {"input_ids": tokens(i), "decoder_input_ids": tokens(i, (BATCH, 8), 5), "use_cache": False}


def seq2seq_train_inputs(i):
    return (), {"input_ids": tokens(i), "labels": tokens(i, (BATCH, 8), 5)}


def whisper_inputs(i):
    return (), {"input_features": features(i, BATCH, 16, 80), "decoder_input_ids": tokens(i, (BATCH, 8), 5),
                "use_cache": False}


def whisper_train_inputs(i):
    return (), {"input_features": features(i, BATCH, 16, 80), "labels": tokens(i, (BATCH, 8), 5)}


def clip_inputs(i):
    ids = tokens(i)
    ids[:, -1] = 2
    return (), {"input_ids": ids, "pixel_values": images(i), "attention_mask": torch.ones_like(ids)}


def clip_train_inputs(i):
    args, kwargs = clip_inputs(i)
    return args, kwargs | {"return_loss": True}


def greedy(module, steps=6):
    """What `generate` does for greedy decoding with a cache, as users write it by hand: prefill, then one token at a
    time through past_key_values."""
    def greedy_generate(input_ids):
        out = module(input_ids, use_cache=True)
        cache = out.past_key_values
        ids = input_ids
        token = out.logits[:, -1:].argmax(-1)
        for _ in range(steps):
            ids = torch.cat([ids, token], dim=1)
            out = module(token, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            token = out.logits[:, -1:].argmax(-1)
        return torch.cat([ids, token], dim=1), out.logits
    return greedy_generate


def library_generate(module):
    """transformers' own generate(): stopping criteria, logits processors, a cache object."""
    def generate(input_ids, attention_mask):
        return module.generate(input_ids, attention_mask=attention_mask, max_new_tokens=6, do_sample=False)
    return generate


# -- torch only ------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        layers = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 10)

    def forward(self, x, labels=None):
        logits = self.head(self.body(x))
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits, labels), logits


class CellLoop(nn.Module):
    """A loop over time written in Python, with its state in a tuple and its results in a list."""

    def __init__(self, width=32):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.out = nn.Linear(width, 10)
        self.width = width

    def forward(self, xs):
        state = (xs.new_zeros(xs.shape[1], self.width), xs.new_zeros(xs.shape[1], self.width))
        outputs = []
        for t in range(xs.shape[0]):
            state = self.cell(xs[t], state)
            outputs.append(self.out(state[0]))
        return torch.stack(outputs), state


class CNN(nn.Module):
    """Convolutions with batch normalisation: buffers that training writes."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        width = 3
        for next_width in (16, 32, 32):
            self.blocks.append(nn.ModuleDict({"conv": nn.Conv2d(width, next_width, 3, padding=1, bias=False),
                                              "norm": nn.BatchNorm2d(next_width)}))
            width = next_width
        self.drop = nn.Dropout2d(0.1)
        self.head = nn.Linear(width, 10)

    def forward(self, x, labels=None):
        for i, block in enumerate(self.blocks):
            y = torch.relu(block["norm"](block["conv"](x)))
            x = y if y.shape[1] != x.shape[1] else x + y
            if i < 2:
                x = nn.functional.max_pool2d(x, 2)
        logits = self.head(self.drop(x).mean((2, 3)))
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits, labels), logits


class Breaks(nn.Module):
    """A model as found in bug reports: a print, a decision on data, numpy in the middle, a counter on the module."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = torch.relu(self.first(x))
        if x.sum() > 0:
            x = x * 2
        scale = float(x.detach().numpy().max())
        return self.second(x) / (1.0 + scale), self.calls


def vector_inputs(i):
    return (features(i, 8, 64),), {}


def vector_class_inputs(i):
    return (features(i, 8, 64),), {"labels": torch.randint(0, 10, (8,), generator=generator(i, 17))}


def cnn_inputs(i):
    return (images(i, batch=4),), {}


def cnn_class_inputs(i):
    return (images(i, batch=4),), {"labels": torch.randint(0, 10, (4,), generator=generator(i, 17))}


# -- the list --------------------------------------------------------------------------------------------------------

ENTRIES = [
    Entry("mlp", "torch", MLP, vector_inputs, train=True, train_inputs=vector_class_inputs),
    Entry("lstm_cell_loop", "torch", CellLoop, lambda i: ((features(i, 8, BATCH, 32),), {})),
    Entry("cnn", "torch", CNN, cnn_inputs, train=True, train_inputs=cnn_class_inputs),
    Entry("breaks", "torch", Breaks, lambda i: ((features(i, 8, 32),), {})),
    Entry("resnet", "vision", hf("ResNetForImageClassification", "ResNetConfig", **RESNET), image_inputs,
          train=True, train_inputs=image_class_inputs),
    Entry("vit", "vision", hf("ViTForImageClassification", "ViTConfig", **VIT), image_inputs, train=True,
          train_inputs=image_class_inputs,
          build_train=hf("ViTForImageClassification", "ViTConfig", **VIT, **dropouts(
              "hidden_dropout_prob", "attention_probs_dropout_prob"))),
    Entry("swin", "vision", hf("SwinForImageClassification", "SwinConfig", **SWIN), image_inputs, train=True,
          train_inputs=image_class_inputs,
          build_train=hf("SwinForImageClassification", "SwinConfig", **SWIN, **dropouts(
              "hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"))),
    Entry("convnext", "vision", hf("ConvNextForImageClassification", "ConvNextConfig", **CONVNEXT), image_inputs,
          train=True, train_inputs=image_class_inputs,
          build_train=hf("ConvNextForImageClassification", "ConvNextConfig", **CONVNEXT, drop_path_rate=0.5)),
    Entry("bert", "encoder", hf("BertForSequenceClassification", "BertConfig", **ENCODER, num_labels=3), text_inputs,
          train=True, train_inputs=text_class_inputs),
    Entry("roberta", "encoder", hf("RobertaForSequenceClassification", "RobertaConfig", **ENCODER, num_labels=3),
          text_inputs, train=True, train_inputs=text_class_inputs),
    Entry("gpt2", "decoder", hf("GPT2LMHeadModel", "GPT2Config", **GPT2), lm_inputs, train=True,
          train_inputs=lm_train_inputs),
    Entry("gpt2_greedy", "generate", hf("GPT2LMHeadModel", "GPT2Config", **GPT2),
          lambda i: ((tokens(i, (BATCH, 8)),), {}), call=greedy),
    Entry("gpt2_generate", "generate", hf("GPT2LMHeadModel", "GPT2Config", **{**GPT2, "eos_token_id": None}),
          lambda i: ((tokens(i, (BATCH, 8)), torch.ones(BATCH, 8, dtype=torch.long)), {}), call=library_generate),
    Entry("llama", "decoder", hf("LlamaForCausalLM", "LlamaConfig", **DECODER), lm_inputs, train=True,
          train_inputs=lm_train_inputs,
          build_train=hf("LlamaForCausalLM", "LlamaConfig", **DECODER, **dropouts("attention_dropout"))),
    Entry("mistral", "decoder", hf("MistralForCausalLM", "MistralConfig", **DECODER, sliding_window=8), lm_inputs,
          train=True, train_inputs=lm_train_inputs,
          build_train=hf("MistralForCausalLM", "MistralConfig", **DECODER, sliding_window=8,
                         **dropouts("attention_dropout"))),
    Entry("qwen2", "decoder", hf("Qwen2ForCausalLM", "Qwen2Config", **DECODER), lm_inputs, train=True,
          train_inputs=lm_train_inputs,
          build_train=hf("Qwen2ForCausalLM", "Qwen2Config", **DECODER, **dropouts("attention_dropout"))),
    Entry("t5", "seq2seq", hf("T5ForConditionalGeneration", "T5Config", **T5), seq2seq_inputs, train=True,
          train_inputs=seq2seq_train_inputs),
    Entry("bart", "seq2seq", hf("BartForConditionalGeneration", "BartConfig", **BART), seq2seq_inputs, train=True,
          train_inputs=seq2seq_train_inputs,
          build_train=hf("BartForConditionalGeneration", "BartConfig", **BART, **dropouts(
              "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop"))),
    Entry("whisper", "speech", hf("WhisperForConditionalGeneration", "WhisperConfig", **WHISPER), whisper_inputs,
          train=True, train_inputs=whisper_train_inputs,
          build_train=hf("WhisperForConditionalGeneration", "WhisperConfig", **WHISPER, **dropouts(
              "dropout", "attention_dropout", "activation_dropout"))),
    Entry("clip", "two towers", hf("CLIPModel", "CLIPConfig", **CLIP), clip_inputs, train=True,
          train_inputs=clip_train_inputs,
          build_train=hf("CLIPModel", "CLIPConfig", **{part: config | dropouts("attention_dropout")
                                                       if isinstance(config, dict) else config
                                                       for part, config in CLIP.items()})),
    Entry("mixtral", "mixture", hf("MixtralForCausalLM", "MixtralConfig", **DECODER, num_local_experts=4,
                                   num_experts_per_tok=2), lm_inputs),
]


def find(names=None, train=False):
    """The entries of these names in list order; all of them (or all of the training list) when no name is given."""
    known = {entry.name for entry in ENTRIES}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"no model is called {name!r}; known: {', '.join(sorted(known))}")
    return [e for e in ENTRIES if (not names or e.name in names) and (e.train or not train)]


def main():
    for entry in ENTRIES:
        module = entry.make()
        count = sum(p.numel() for p in module.parameters())
        modules = sum(1 for _ in module.modules())
        print(f"{entry.name:16} {entry.family:10} {'train' if entry.train else '':6} {modules:4} modules "
              f"{count:9,} parameters")


if __name__ == "__main__":
    main()
