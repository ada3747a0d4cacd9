#!/usr/bin/env python3
"""Writes one random transformer for both engines: a Marian npz, and CTranslate2 float32 and int8.

  python bench/make_model.py base|student OUTDIR

base is 6+6 layers, 512/2048, 8 heads, 32,000 words; student is 6+3, 256/1024. Embeddings are tied. The
end symbol's bias is -10,000, so that no search ends by itself. CTranslate2 gets Marian's positions as a
table, so that both engines compute the same network.
Needs `numpy`, `ctranslate2` and `pyyaml`.
"""
import os, sys, tempfile
import numpy as np

SHAPES = {"base": (6, 6, 512, 2048, 8, 32000), "student": (6, 3, 256, 1024, 8, 32000)}


def weights(encoder, decoder, d, f, vocabulary):
    rng = np.random.default_rng(1)
    matrix = lambda a, b: rng.uniform(-1, 1, (a, b)).astype("f4") * (6 / (a + b)) ** 0.5
    vector = lambda n: (rng.standard_normal((1, n)) * 0.02).astype("f4")
    w = {"Wemb": (rng.standard_normal((vocabulary, d)) * d ** -0.5).astype("f4"),
         "decoder_ff_logit_out_b": vector(vocabulary)}
    w["decoder_ff_logit_out_b"][0, 0] = -1e4

    def norm(prefix):
        w[prefix + "_ln_scale"], w[prefix + "_ln_bias"] = 1 + vector(d), vector(d)

    def attention(prefix):
        for part in "qkvo":
            w[f"{prefix}_W{part}"], w[f"{prefix}_b{part}"] = matrix(d, d), vector(d)
        norm(prefix + "_Wo")

    def dense(prefix):
        w[prefix + "_W1"], w[prefix + "_b1"] = matrix(d, f), vector(f)
        w[prefix + "_W2"], w[prefix + "_b2"] = matrix(f, d), vector(d)
        norm(prefix + "_ffn")

    for layer in range(1, encoder + 1):
        attention(f"encoder_l{layer}_self")
        dense(f"encoder_l{layer}_ffn")
    for layer in range(1, decoder + 1):
        attention(f"decoder_l{layer}_self")
        attention(f"decoder_l{layer}_context")
        dense(f"decoder_l{layer}_ffn")
    return w


def options(encoder, decoder, d, f, heads, vocabulary):
    return "".join(f"{key}: {value}\n" for key, value in {
        "type": "transformer", "version": "v1.12.0", "dim-vocabs": f"[{vocabulary}, {vocabulary}]", "dim-emb": d,
        "enc-depth": encoder, "dec-depth": decoder, "transformer-heads": heads, "transformer-dim-ffn": f,
        "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu", "transformer-preprocess": '""',
        "transformer-postprocess": "dan", "transformer-postprocess-emb": "d", "transformer-postprocess-top": '""',
        "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": "false",
        "transformer-guided-alignment-layer": "last", "tied-embeddings-all": "true"}.items())


def positions(d, rows=2048):
    angles = np.arange(rows)[:, None] * np.exp(-np.arange(d // 2) * np.log(10000.0) / (d // 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype("f4")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    encoder, decoder, d, f, heads, vocabulary = SHAPES[sys.argv[1]]
    out = sys.argv[2]
    os.makedirs(out, exist_ok=True)
    w = weights(encoder, decoder, d, f, vocabulary)
    text = options(encoder, decoder, d, f, heads, vocabulary).encode() + b"\0"
    w["special:model.yml"] = np.frombuffer(text, "i1")
    np.savez(f"{out}/model.npz", **w)
    with open(f"{out}/vocab.yml", "w") as vocab:
        vocab.write("</s>: 0\n<unk>: 1\n" + "".join(f"w{i}: {i}\n" for i in range(2, vocabulary)))
    import ctranslate2
    with tempfile.TemporaryDirectory() as folder:
        # The converter takes a table by this name; Marian itself does not look at it, and Peregrine refuses it.
        np.savez(f"{folder}/model.npz", Wpos=positions(d), **w)
        converter = ctranslate2.converters.MarianConverter(f"{folder}/model.npz", [f"{out}/vocab.yml"] * 2)
        converter.convert(f"{out}/ct2_float32", force=True)
        converter.convert(f"{out}/ct2_int8", quantization="int8", force=True)


if __name__ == "__main__":
    main()
