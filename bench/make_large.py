#!/usr/bin/env python3
"""Models of NLLB's shapes, to measure speed and memory with.

  python bench/make_large.py speed OUT        NLLB-600M's shape: 12+12 layers, width 1,024, 256,206 words, random weights, as a
                                              CTranslate2 directory in int8 (OUT/ct2_int8). Needs `ctranslate2` and `numpy`.
  python bench/make_large.py memory OUT       NLLB-3.3B's shape: 24+24 layers, width 2,048, as a Hugging Face directory whose shards are
                                              sparse files of zeros: 13 GB that take no space
"""
import json, os, struct, sys

import random_ct2

WORDS = 256_206
PIECES = 256_000


def speed(out):
    # `w2`, `w3` and so on, as bench/compare.py writes them; <s>, </s> and <unk> stand at the end.
    vocabulary = [f"w{i}" for i in range(WORDS - 3)] + ["<s>", "</s>", "<unk>"]
    folder = os.path.join(out, "ct2_int8")
    shape = {"layers": (12, 12), "width": 1024, "inner": 4096, "heads": 16, "pre_norm": True}
    random_ct2.save(folder, vocabulary=vocabulary, quantization="int8", add_source_eos=True, decoder_start_token="</s>", **shape)


def tensors(layers, width, inner):
    """Names and shapes of M2M100ForConditionalGeneration."""
    yield "model.shared.weight", (WORDS, width)
    for side in ("encoder", "decoder"):
        for part in ("weight", "bias"):
            yield f"model.{side}.layer_norm.{part}", (width,)
        for layer in range(layers):
            place = f"model.{side}.layers.{layer}"
            for attention in ("self_attn",) + (("encoder_attn",) if side == "decoder" else ()):
                for linear in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"{place}.{attention}.{linear}.weight", (width, width)
                    yield f"{place}.{attention}.{linear}.bias", (width,)
                for part in ("weight", "bias"):
                    yield f"{place}.{attention}_layer_norm.{part}", (width,)
            for name, shape in (("fc1", (inner, width)), ("fc2", (width, inner))):
                yield f"{place}.{name}.weight", shape
                yield f"{place}.{name}.bias", shape[:1]
            for part in ("weight", "bias"):
                yield f"{place}.final_layer_norm.{part}", (width,)


def write_shard(path, group):
    header, begin = {}, 0
    for name, shape in group:
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + begin)


def sentencepiece(path):
    """A BPE model of made-up pieces, as protobuf by hand."""
    def field(number, bytes):
        length, out = len(bytes), b""
        while length > 127:
            out, length = out + struct.pack("B", length & 127 | 128), length >> 7
        return struct.pack("B", number << 3 | 2) + out + struct.pack("B", length) + bytes

    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + struct.pack("B", kind))

    pieces = [piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3)]
    pieces += [piece(f"\u2581w{i}", -i, 1) for i in range(PIECES - 3)]
    trainer = field(2, b"\x18\x02")
    with open(path, "wb") as file:
        file.write(b"".join(pieces) + trainer)


def memory(out):
    layers, width, inner = 24, 2048, 8192
    os.makedirs(out, exist_ok=True)
    config = {"model_type": "m2m_100", "d_model": width, "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": 16,
              "decoder_attention_heads": 16, "encoder_ffn_dim": inner, "decoder_ffn_dim": inner, "activation_function": "relu",
              "scale_embedding": True, "vocab_size": WORDS, "max_position_embeddings": 1024, "pad_token_id": 1, "bos_token_id": 0,
              "eos_token_id": 2, "decoder_start_token_id": 2, "tokenizer_class": "NllbTokenizer"}
    json.dump(config, open(os.path.join(out, "config.json"), "w"))
    json.dump({"max_length": 200}, open(os.path.join(out, "generation_config.json"), "w"))
    sentencepiece(os.path.join(out, "sentencepiece.bpe.model"))
    names = list(tensors(layers, width, inner))
    count = 3
    index = {}
    for shard in range(count):
        group = names[shard * len(names) // count:(shard + 1) * len(names) // count]
        file = f"model-{shard + 1:05}-of-{count:05}.safetensors"
        write_shard(os.path.join(out, file), group)
        index.update({name: file for name, _ in group})
    json.dump({"weight_map": index}, open(os.path.join(out, "model.safetensors.index.json"), "w"))


if __name__ == "__main__":
    {"speed": speed, "memory": memory}[sys.argv[1]](sys.argv[2])
