"""transformers' generate() over prompts of ten lengths, eager and compiled in turns: tokens are compared, tokens per second and recordings counted.

    python bench/generate.py [ARCHITECTURE ...] [--ways greedy sampled beams static ...] [--passes 3] [--tokens 24] [--quick]

Models are small ones with random weights, so that no download is needed: what a step of decoding costs beside its products shows best there. Times are processor time.
--quick: every architecture and way over five lengths, tokens and recordings only.
"""

import argparse
import copy
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

import kintsugi  # noqa: E402

LENGTHS = [5, 9, 12, 17, 21, 26, 33, 38, 45, 52]
SMALL = {"vocab_size": 512, "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512, "max_position_embeddings": 256,
         "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
ARCHITECTURES = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=512, n_embd=192, n_layer=4, n_head=4, n_positions=256, bos_token_id=0, eos_token_id=None, pad_token_id=0),
    "llama": lambda: transformers.LlamaConfig(num_key_value_heads=2, **SMALL),
    "qwen2": lambda: transformers.Qwen2Config(num_key_value_heads=2, **SMALL),
    "gemma2": lambda: transformers.Gemma2Config(num_key_value_heads=2, head_dim=48, sliding_window=16, **SMALL),  # every other layer sees a window
    "mistral": lambda: transformers.MistralConfig(num_key_value_heads=2, sliding_window=24, **SMALL),
    "qwen3": lambda: transformers.Qwen3Config(num_key_value_heads=2, head_dim=48, **SMALL),
    "phi": lambda: transformers.PhiConfig(**SMALL),
    "neox": lambda: transformers.GPTNeoXConfig(**SMALL),
    "opt": lambda: transformers.OPTConfig(word_embed_proj_dim=192, ffn_dim=512, **SMALL),
    "falcon": lambda: transformers.FalconConfig(**SMALL),
    "mamba": lambda: transformers.MambaConfig(vocab_size=512, hidden_size=192, num_hidden_layers=4, bos_token_id=0, eos_token_id=None, pad_token_id=0),
    "t5": lambda: transformers.T5Config(vocab_size=512, d_model=192, d_kv=48, d_ff=512, num_layers=4, num_heads=4, decoder_start_token_id=0, eos_token_id=None, pad_token_id=0),
    "bart": lambda: transformers.BartConfig(vocab_size=512, d_model=192, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512,
                                            decoder_ffn_dim=512, decoder_start_token_id=0, bos_token_id=0, eos_token_id=None, pad_token_id=0, forced_eos_token_id=None),
}
WAYS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 20, "temperature": 0.8},
    "beams": {"do_sample": False, "num_beams": 3},
    "static": {"do_sample": False, "cache_implementation": "static", "disable_compile": True},
    "cropped": {"do_sample": False, "prompt_lookup_num_tokens": 4},  # candidates that are wrong are cropped from the cache
    "no cache": {"do_sample": False, "use_cache": False},
}
USUAL = ("greedy", "sampled", "beams", "static")
MOST_RECORDINGS = 4  # --quick fails above


def _model(name):
    torch.manual_seed(0)
    config = ARCHITECTURES[name]()
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return kind.from_config(config).eval()


def _run(model, prompts, way, tokens):
    """Seconds, and the tokens for each prompt."""
    found, begin = [], time.process_time()
    for number, prompt in enumerate(prompts):
        torch.manual_seed(number)
        found.append(model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, **WAYS[way]))
    return time.process_time() - begin, found


def measure(name, way, options):
    eager = _model(name)
    ours = copy.deepcopy(eager)
    ours.forward = kintsugi.compile(ours.forward)
    batch = 1 if way == "cropped" else options.batch
    prompts = [torch.randint(1, 512, (batch, length)) for length in LENGTHS[::2 if options.quick else 1]]
    ratios, equal = [], True
    with torch.no_grad():
        try:
            _run(eager, prompts[:1], way, 4)
        except ValueError as refused:  # of generate(): a stateful model has no assistant, for example
            print(f"{name:8} {way:9} not run: {refused}", flush=True)
            return True
        for _ in range(options.passes):
            theirs, expected = _run(eager, prompts, way, options.tokens)
            seconds, found = _run(ours, prompts, way, options.tokens)
            equal = equal and all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
            ratios.append(theirs / seconds)
    count, recordings = len(prompts) * batch * options.tokens, kintsugi.stats(ours.forward)["recordings"]
    if options.quick:
        print(f"{name:8} {way:9} tokens {'equal' if equal else 'DIFFER'}  recordings {recordings}", flush=True)
        return equal and recordings <= MOST_RECORDINGS
    print(f"{name:8} {way:9} eager {count / theirs:7.0f} tokens/s  first pass {ratios[0]:5.2f}x  steady {statistics.median(ratios[1:]):5.2f}x  "
          f"tokens {'equal' if equal else 'DIFFER'}  recordings {recordings}", flush=True)
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.passes, options.tokens = min(options.passes, 2), min(options.tokens, 12)
    ways = options.ways or (WAYS if options.quick else USUAL)
    torch.set_num_threads(1)
    equal = [measure(name, way, options) for name in options.names or ARCHITECTURES for way in ways]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
