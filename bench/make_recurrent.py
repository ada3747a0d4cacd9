#!/usr/bin/env python3
"""Writes a recurrent model of untrained weights that Marian itself made, with its vocabulary.

  python bench/make_recurrent.py gru|bideep OUTDIR

gru is Marian's shallow model (embeddings 512, GRU of 1024); bideep has 4 alternating encoder layers of 2
cells and 4 decoder layers (4 cells in the first, 2 in the others), 1024, with layer normalisation and skip
connections. 30,000 words on each side, w2 to w29999. The end symbol's bias is -10,000, so that no search
ends by itself. Needs `pymarian` and `numpy`.
"""
import os, subprocess, sys, tempfile

import numpy as np

WORDS = 30000
SHAPES = {
    "gru": "--type s2s --enc-type bidirectional --enc-depth 1 --dec-depth 1",
    "bideep": "--type s2s --enc-type alternating --enc-depth 4 --enc-cell-depth 2 --dec-depth 4 --dec-cell-base-depth 4 "
              "--dec-cell-high-depth 2 --skip --layer-normalization",
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    out = sys.argv[2]
    os.makedirs(out, exist_ok=True)
    vocab = f"{out}/vocab.yml"
    with open(vocab, "w") as file:
        file.write("</s>: 0\n<unk>: 1\n" + "".join(f"w{i}: {i}\n" for i in range(2, WORDS)))
    marian = os.path.join(os.path.dirname(sys.executable), "pymarian")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w") as text:
            text.write("w2 w3\n" * 2)
        # One update of learning rate 0 leaves the weights as they were drawn.
        subprocess.run([marian, "train", "-m", f"{folder}/model.npz", "-t", f"{folder}/text", f"{folder}/text", "-v", vocab, vocab,
                        "--dim-vocabs", str(WORDS), str(WORDS), "--dim-emb", "512", "--dim-rnn", "1024", *SHAPES[sys.argv[1]].split(),
                        "--cpu-threads", "1", "--workspace", "1000", "--mini-batch", "2", "--after-batches", "1", "--learn-rate", "0",
                        "--seed", "1", "--no-shuffle", "--quiet", "--tempdir", folder], check=True)
        weights = dict(np.load(f"{folder}/model.npz"))
    bias = [name for name in weights if name.startswith("decoder_ff_logit_l2_b") or name == "decoder_ff_logit_out_b"]
    weights[bias[0]][..., 0] = -1e4
    np.savez(f"{out}/model.npz", **weights)


if __name__ == "__main__":
    main()
