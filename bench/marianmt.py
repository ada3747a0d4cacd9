#!/usr/bin/env python3
"""MarianMT as `transformers` runs it: Peregrine beside it, on small checkpoints of every kind and with every setting of a search.

  python bench/marianmt.py make WORK TEXT [--steps 1500]   four checkpoints that put the English lines of TEXT in lower case
  python bench/marianmt.py compare WORK TEXT              a row a setting: how many n-best lists are the same, how far scores are apart
  python bench/marianmt.py record WORK                    checkpoints a and d, and the answers of `transformers`, for tests/fixtures/marianmt

Needs transformers==5.23.0, torch and sentencepiece. The binary is target/release/peregrine or $PEREGRINE. Both tools read the same
directory and get no other settings. A list that differs is a near-tie if its scores are the other's place by place, to 1e-4.
"""
import argparse, io, json, os, random, shutil, subprocess, sys, tempfile
from pathlib import Path

import sentencepiece
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
PEREGRINE = os.environ.get("PEREGRINE", str(ROOT / "target" / "release" / "peregrine"))
TIE = 1e-4

KINDS = {
    # One vocabulary, tied and scaled tables, swish: what OPUS-MT is.
    "a": dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=64, decoder_ffn_dim=64, activation_function="swish", scale_embedding=True),
    # Two vocabularies, tied output, other heads and widths on either side, a BPE source with a character map.
    "b": dict(d_model=48, encoder_layers=3, decoder_layers=1, encoder_attention_heads=6, decoder_attention_heads=3,
              encoder_ffn_dim=96, decoder_ffn_dim=80, activation_function="gelu", scale_embedding=False,
              share_encoder_decoder_embeddings=False),
    # One table for both inputs, an output layer of its own.
    "c": dict(d_model=64, encoder_layers=1, decoder_layers=3, encoder_attention_heads=8, decoder_attention_heads=2,
              encoder_ffn_dim=128, decoder_ffn_dim=64, activation_function="relu", scale_embedding=True, tie_word_embeddings=False),
    # Nothing shared, nothing tied, a target vocabulary with bytes.
    "d": dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=4,
              encoder_ffn_dim=48, decoder_ffn_dim=64, activation_function="gelu_new", scale_embedding=False,
              share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
}
BASE = {"num_beams": 4, "max_length": 128}
# name: fields of generation_config.json; None takes one out, "config" has those of config.json.
ROWS = {
    "greedy": dict(num_beams=1),
    "beam 4": {},
    "beam 8": dict(num_beams=8),
    "early": dict(early_stopping=True),
    "never": dict(early_stopping="never"),
    "length_penalty 0.6": dict(length_penalty=0.6),
    "length_penalty 0": dict(length_penalty=0.0),
    "length_penalty 0, early": dict(length_penalty=0.0, early_stopping=True),
    "length_penalty 0, never": dict(length_penalty=0.0, early_stopping="never"),
    "length_penalty 2, early": dict(length_penalty=2.0, early_stopping=True),
    "length_penalty -1": dict(length_penalty=-1.0),
    "max_length 12, forced end": dict(max_length=12),
    "max_length 12, cut": dict(max_length=12, forced_eos_token_id=None),
    "max_length 12, end forced by config.json": dict(max_length=12, forced_eos_token_id=None, config=dict(forced_eos_token_id=0)),
    "max_new_tokens 6": dict(max_new_tokens=6),
    "min_length 20": dict(min_length=20),
    "min_length 20, greedy": dict(min_length=20, num_beams=1),
    "min_new_tokens 25": dict(min_new_tokens=25),
    "renormalize_logits": dict(renormalize_logits=True),
    "suppress_tokens": dict(suppress_tokens=[5, 9]),
    "eos_token_id a list": dict(eos_token_id=[0]),
    "no num_beams": dict(num_beams=None),
    "no num_beams, but in config.json": dict(num_beams=None, config=dict(num_beams=6)),
    "early_stopping in config.json": dict(config=dict(early_stopping=True)),
    "config.json alone": dict(alone=dict(num_beams=3, max_length=40, forced_eos_token_id=0)),
}
# What is stored how.
STORES = {
    "float16": lambda model, folder: model.half().save_pretrained(folder),
    "bfloat16": lambda model, folder: model.bfloat16().save_pretrained(folder),
    "shards": lambda model, folder: model.save_pretrained(folder, max_shard_size="60KB"),
    ".bin": lambda model, folder: torch.save(model.state_dict(), folder / "pytorch_model.bin"),
    ".bin of old": lambda model, folder: torch.save(model.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False),
    ".bin of parameters": lambda model, folder: torch.save({**dict(attributed(model)), "final_logits_bias": model.final_logits_bias},
                                                           folder / "pytorch_model.bin"),
}
ODD = ["   leading and trailing   ", "two  blanks   three", "tab\there", "nbsp\u00a0here", "soft\u00adhyphen", "zero\u200bwidth",
       "ｆｕｌｌ ｗｉｄｔｈ", "ﬁ ligature ½ ²", "e\u0301 combining", "😀 emoji 👩‍👩‍👧", "▁ underline ▁▁ x", "a▁b", ">>pt<< Hello there.",
       ">>xx<< Hello there.", "Hello >>pt<< there.", ">>pt<<", ">>no end", "a" * 200, "ab " * 60, "!!!???...", "1234567890 3.14 1,000",
       "\u2028line separator", "\ufeffbom", "Ünïcödé Straße", "İstanbul ı", "“curly” ‘quotes’ „low“", "C:\\path\\file", "🇵🇹 flag",
       "العربية", "हिन्दी भाषा", "中文句子。", "日本語の文。", "한국어", "ไทย", "\u0007bell"]


def attributed(model):
    """Parameters that hold attributes of their own, as some training tools leave them."""
    for name, parameter in model.named_parameters():
        parameter.is_trained = True
        yield name, parameter


def read_lines(path):
    return Path(path).read_text(encoding="utf-8").split("\n")[:-1]


# ---- make

def spm(lines, path, size, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, vocab_size=size, hard_vocab_limit=False,
                                             minloglevel=2, num_threads=1, **options)
    path.write_bytes(out.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    ids = range(model.get_piece_size())
    return [model.id_to_piece(i) for i in ids if not model.is_control(i) and not model.is_unknown(i)]


def numbered(words):
    words = list(dict.fromkeys(words))
    # OPUS-MT's vocabularies lack some pieces.
    return {word: number for number, word in enumerate(words[:60] + words[64:])}


def make_tokenizer(kind, folder, lines):
    lower = [line.lower() for line in lines]
    normal = "nmt_nfkc" if kind == "b" else "identity"
    source = spm(lines, folder / "source.spm", 420, model_type="bpe" if kind == "b" else "unigram", normalization_rule_name=normal)
    target = spm(lower, folder / "target.spm", 380, normalization_rule_name=normal, byte_fallback=kind == "d")
    options = {}
    if kind in "bd":
        # The class pads both sides with one id, which is the last of the shorter vocabulary.
        both = [numbered(["</s>", "<unk>", *words]) for words in (source, target)]
        pad = max(map(len, both))
        for words in both:
            words.update({f"<extra{i}>": i for i in range(len(words), pad)})
            words["<pad>"] = pad
        if kind == "d":  # More target words than source words.
            both[1].update({f"<late{i}>": pad + 1 + i for i in range(9)})
        (folder / "target_vocab.json").write_text(json.dumps(both[1]))
        vocabulary, options = both[0], dict(target_vocab_file=str(folder / "target_vocab.json"), separate_vocabs=True)
    else:
        vocabulary = numbered(["</s>", "<unk>", *source, *target, ">>pt<<", ">>fr<<", "Ünlisted", "<pad>"])
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    MarianTokenizer(*files, **options).save_pretrained(folder)
    return MarianTokenizer.from_pretrained(folder)


def train(model, pairs, pad, steps):
    pack = lambda rows, value: torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    order = random.Random(1)
    model.train()
    for step in range(steps):
        chunk = order.sample(pairs, 32)
        source = pack([s for s, _ in chunk], pad)
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 200) * (1 - 0.9 * step / steps)
        loss = model(input_ids=source, attention_mask=(source != pad).long(), labels=pack([t for _, t in chunk], -100)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"  loss {loss.item():.2f}", flush=True)
    model.eval()


def make(args):
    lines = read_lines(args.text)[:12000]
    for kind in args.kinds:
        options, folder = KINDS[kind], args.work / kind
        folder.mkdir(parents=True, exist_ok=True)
        tok = make_tokenizer(kind, folder, lines)
        words, pad = target_words(tok), tok.encoder["<pad>"]
        print(f"{kind}: {len(tok.encoder)} and {len(words)} words", flush=True)
        torch.manual_seed(7)
        config = MarianConfig(vocab_size=len(tok.encoder), decoder_vocab_size=len(words), pad_token_id=pad, decoder_start_token_id=pad,
                              eos_token_id=0, forced_eos_token_id=0, max_position_embeddings=256, dropout=0.0, init_std=0.08, **options)
        model = MarianMTModel(config)
        pairs = zip(tok(lines)["input_ids"], tok(text_target=[line.lower() for line in lines])["input_ids"])
        train(model, [pair for pair in pairs if max(map(len, pair)) <= 48], pad, args.steps)
        model.final_logits_bias.copy_(torch.randn(1, len(words)) * 0.3)
        model.generation_config = GenerationConfig(bad_words_ids=[[pad]], pad_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
                                                   decoder_start_token_id=pad, **BASE)
        model.save_pretrained(folder)
        for name in ("config.json", "tokenizer_config.json"):  # what only this machine knows
            fields = json.loads((folder / name).read_text())
            own = ("name_or_path", "_name_or_path", "is_local", "local_files_only", "target_vocab_file", "source_spm", "target_spm", "vocab")
            (folder / name).write_text(json.dumps({key: value for key, value in fields.items() if key not in own}, indent=1))


# ---- what both tools answer

def target_words(tok):
    return tok.target_encoder if tok.separate_vocabs else tok.encoder


def variant(folder, copy, changes=None):
    """A copy of a checkpoint with other fields in its files."""
    changes = dict(changes or {})
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    config, generation = copy / "config.json", copy / "generation_config.json"
    alone = changes.pop("alone", {})
    for path, fields in ((config, {**changes.pop("config", {}), **alone}), (generation, changes)):
        values = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    if alone:
        generation.unlink()
    return copy


def generate(model, source, **options):
    """The n-best list: ids without the start symbol, and the score."""
    beams = model.generation_config.num_beams or 1
    with torch.no_grad():
        out = model.generate(input_ids=torch.tensor([source]), attention_mask=torch.ones(1, len(source), dtype=torch.long),
                             num_return_sequences=beams, return_dict_in_generate=True, output_scores=True, **options)
    scores = out.sequences_scores.tolist() if beams > 1 else [None]
    rows = []
    for row, score in zip(out.sequences.tolist(), scores):
        row = row[1:]
        rows.append((row[:row.index(0) + 1] if 0 in row else row, score))
    return rows


def peregrine(folder, lines, words, *options):
    command = [PEREGRINE, "translate", "-m", folder, "--n-best", "--tokens", "--word-scores", "--guards", "off", "--precision", "float32",
               "--device", "cpu", "-q", *options]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    lists = [[] for _ in lines]
    for line in done.stdout.split("\n")[:-1]:  # number ||| tokens ||| WordScores= ... ||| F0= sum ||| score
        number, tokens, scores, _, score = line.split(" ||| ")
        tokens = [token for token in tokens.split(" ") if token]
        ended = len(scores.split()) == len(tokens) + 2
        lists[int(number)].append(([words.get(token, -1) for token in tokens] + [0] * ended, float(score)))
    return lists


def compare_lists(name, ours, theirs):
    same, ties, worst = 0, 0, 0.0
    for mine, other in zip(ours, theirs):
        apart = [abs(a - b) / max(1, abs(b)) for (_, a), (_, b) in zip(mine, other) if b is not None]
        if [ids for ids, _ in mine] == [ids for ids, _ in other]:
            same += 1
            worst = max([worst, *apart])
        elif len(mine) == len(other) and apart and max(apart) <= TIE:
            ties += 1
    print(f"  {name}: {same}/{len(theirs)}" + (f", {ties} near-ties" if ties else "") + (f", scores within {worst:.1e}" if worst else ""), flush=True)


def given_scores(model, folder, tok, pairs):
    """Log-probabilities of given targets, and those of `peregrine score`."""
    theirs = []
    for source, target in pairs:
        ids = torch.tensor(tok(text_target=target)["input_ids"])
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tok(source)["input_ids"]]), labels=ids[None]).logits[0]
        theirs.append(torch.log_softmax(logits, -1).gather(1, ids[:, None])[:, 0].tolist())
    with tempfile.TemporaryDirectory() as work:
        files = [Path(work, side) for side in ("source", "target")]
        for file, side in zip(files, zip(*pairs)):
            file.write_text("\n".join(side) + "\n", encoding="utf-8")
        command = [PEREGRINE, "score", "-m", folder, "--precision", "float32", "--device", "cpu", "--word-scores", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours = [list(map(float, line.split("WordScores=")[1].split())) for line in done.stdout.split("\n")[:-1]]
    return ours, theirs


def compare(args):
    text = read_lines(args.text)
    ordinary = [line for line in text[12000:] if line.strip()][:args.lines - len(ODD)]
    for kind in args.kinds:
        folder = args.work / kind
        tok = MarianTokenizer.from_pretrained(folder)
        words = target_words(tok)
        lines = [line for line in ODD + ordinary if len(tok(line)["input_ids"]) <= 250]
        print(f"{kind}: {len(lines)} lines", flush=True)
        model = MarianMTModel.from_pretrained(folder).eval()
        ours, theirs = given_scores(model, folder, tok, [(line, line.lower()) for line in lines])
        apart = [max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) else 9.0 for a, b in zip(ours, theirs)]
        print(f"  scores of given targets: {sum(worst <= 1e-3 for worst in apart)}/{len(apart)}, within {max(apart):.1e}", flush=True)
        for name, changes in ROWS.items():
            some = lines if name in ("greedy", "beam 4", "early") else lines[::2][:120]
            with tempfile.TemporaryDirectory() as copy:
                copy = variant(folder, Path(copy), changes)
                model = MarianMTModel.from_pretrained(copy).eval()
                theirs = [generate(model, tok(line)["input_ids"]) for line in some]
                compare_lists(name, peregrine(copy, some, words), theirs)
        for name, save in STORES.items():
            with tempfile.TemporaryDirectory() as copy:
                copy = variant(folder, Path(copy))
                (copy / "model.safetensors").unlink()
                save(MarianMTModel.from_pretrained(folder), copy)
                (copy / "generation_config.json").write_bytes((folder / "generation_config.json").read_bytes())
                model = MarianMTModel.from_pretrained(copy).float().eval()
                compare_lists(name, peregrine(copy, lines[-30:], words), [generate(model, tok(line)["input_ids"]) for line in lines[-30:]])
        compare_prefixes(folder, tok, words, [line for line in lines[-60:] if 20 < len(line) < 60][:20])


def compare_prefixes(folder, tok, words, lines):
    """A given beginning, as `prefix_allowed_tokens_fn` gives it: it counts in the score."""
    model = MarianMTModel.from_pretrained(folder).eval()
    prefixes = [" ".join(line.lower().split()[:2]) for line in lines]
    theirs = []
    for line, prefix in zip(lines, prefixes):
        given = tok(text_target=prefix)["input_ids"][:-1]
        allowed = lambda _, done: given[len(done) - 1:len(done)] or list(range(len(words)))
        theirs.append(generate(model, tok(line)["input_ids"], prefix_allowed_tokens_fn=allowed))
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(prefixes) + "\n")
        file.flush()
        compare_lists("a given beginning", peregrine(folder, lines, words, "--prefix", file.name), theirs)


# ---- record

def record(args):
    """Checkpoint a with n-best lists of every setting, and checkpoint d with texts of random ids."""
    sys.path.insert(0, str(FIXTURES))
    from make_multilingual import LINES
    out = FIXTURES / "marianmt"
    write = lambda file, value: file.write(json.dumps(value, ensure_ascii=False) + "\n")
    for kind in "ad":
        shutil.rmtree(out / kind, ignore_errors=True)
        shutil.copytree(args.work / kind, out / kind)
        tok = MarianTokenizer.from_pretrained(out / kind)
        order = random.Random(5)
        lists = [order.sample(sorted(target_words(tok).values()), 12) for _ in range(100)]
        with open(out / f"{kind}.texts.jsonl", "w", encoding="utf-8") as file:
            for ids in lists:
                write(file, {"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)})
        with open(out / f"{kind}.ids.jsonl", "w", encoding="utf-8") as file:
            for line in LINES + ODD:
                write(file, {"text": line, "source": tok(line)["input_ids"], "target": tok(text_target=line)["input_ids"]})
    folder = out / "a"
    tok = MarianTokenizer.from_pretrained(folder)
    with open(out / "a.lists.jsonl", "w", encoding="utf-8") as file:
        for name, changes in ROWS.items():
            with tempfile.TemporaryDirectory() as copy:
                model = MarianMTModel.from_pretrained(variant(folder, Path(copy), changes)).eval()
                for line in LINES[:args.lines_of_a_row]:
                    rows = generate(model, tok(line)["input_ids"])
                    write(file, {"setting": name, "changes": changes, "text": line, "ids": [ids for ids, _ in rows],
                                 "scores": [score and round(score, 6) for _, score in rows]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "compare", "record"])
    parser.add_argument("work", type=Path)
    parser.add_argument("text", nargs="?", help="English lines; the first 12,000 train, later ones are translated")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--kinds", default="abcd")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--lines-of-a-row", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"make": make, "compare": compare, "record": record}[args.command](args)


if __name__ == "__main__":
    main()
