#!/usr/bin/env python3
"""Writes a MarianMT directory of base's shape in float32, with random weights and 58,101 words, as published models have.

  python bench/make_huggingface.py TOKENIZER OUTDIR

TOKENIZER is a directory with one vocabulary that `bench/marianmt.py make` wrote; its words come first, the rest is filled up. For
`bench/start.py --huggingface OUTDIR`. Needs `transformers` and `torch`.
"""
import json, os, shutil, sys

WORDS = 58101


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    from transformers import MarianConfig, MarianMTModel
    tokenizer, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    words = json.load(open(os.path.join(tokenizer, "vocab.json"), encoding="utf-8"))
    end, pad = words["</s>"], WORDS - 1
    del words["<pad>"]
    taken = set(words.values())
    words |= {f"filler{i}": i for i in range(WORDS - 1) if i not in taken} | {"<pad>": pad}
    MarianMTModel(MarianConfig(
        vocab_size=WORDS, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=512, activation_function="swish", scale_embedding=True,
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=end, forced_eos_token_id=end)).save_pretrained(out)
    for name in ("source.spm", "target.spm"):
        shutil.copy(os.path.join(tokenizer, name), out)
    with open(os.path.join(tokenizer, "tokenizer_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.pop("added_tokens_decoder", None)
    for name, content in (("vocab.json", words), ("tokenizer_config.json", config)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


if __name__ == "__main__":
    main()
