"""Trains small tokenizers in the shapes of published ones, and writes what Hugging Face's `tokenizers`, SentencePiece and
tiktoken make of tokenizer_lines.py with them:

  tokenizers/lines.txt         the lines, as literals of C
  tokenizers/NAME.json         a tokenizer.json; NAME.model: of SentencePiece; NAME.tiktoken
  tokenizers/NAME.ids          for each line: the CRC-32 of its ids (int32, little-endian) and of the text that they are
                               decoded to, one after the other

pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0
"""
import base64
import io
import json
import pathlib
import struct
import zlib

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_lines

OUT = pathlib.Path(__file__).parent / "tokenizers"
LINES = 2500
VOCAB = 700
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS +
         r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS +
         r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MARK = "\u2581"


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def byte_level(steps, normalizer=None, prefix=False, use_regex=False, added=(), model=None):
    """A tokenizer trained on the lines."""
    tokenizer = tokenizers.Tokenizer(models.BPE(**(model or {})))
    if normalizer:
        tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return add(tokenizer, added)


def train(tokenizer, trainer):
    tokenizer.train_from_iterator([text(line) for line in tokenizer_lines.lines(LINES, seed=1)], trainer)


def text(line):
    return line.decode("utf-8", errors="replace")


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def add(tokenizer, added):
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    return tokenizer


def metaspace(pre_tokenizer, normalizer, decoder, added=(), byte_fallback=True):
    """The shape that converters make of SentencePiece's models."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    train(tokenizer, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=tokens, limit_alphabet=150, show_progress=False))
    # The bytes are tokens of the model, and not added ones.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    for token in state["added_tokens"]:
        token["normalized"] = False
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return add(tokenizer, added)


def hugging_face():
    """The tokenizers by name."""
    made = {}
    made["gpt2"] = byte_level([], use_regex=True, added=special("<|endoftext|>"))
    made["roberta"] = byte_level([], prefix=True, use_regex=True, added=special("<s>", "<pad>", "</s>", "<unk>") + [AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    made["roberta"].post_processor = processors.RobertaProcessing(("</s>", made["roberta"].token_to_id("</s>")), ("<s>", made["roberta"].token_to_id("<s>")))
    made["llama3"] = byte_level([split(LLAMA3)], added=special("<|begin_of_text|>", "<|eot_id|>", "<|endoftext|>"), model={"ignore_merges": True})
    begin = made["llama3"].token_to_id("<|begin_of_text|>")
    made["llama3"].post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", begin)])])
    made["qwen"] = byte_level([split(QWEN)], normalizer=normalizers.NFC(), added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>") + [AddedToken("<think>", normalized=False), AddedToken("<tool_call>", normalized=False)])
    made["deepseek"] = byte_level([split(pattern) for pattern in DEEPSEEK], added=special("<\uff5cbegin\u2581of\u2581sentence\uff5c>") + [AddedToken("<think>", normalized=True), AddedToken("  ", normalized=True)])
    made["o200k"] = byte_level([split(O200K)], added=special("<|endoftext|>"))
    made["bloom"] = byte_level([split(BLOOM)], added=special("<unk>", "<s>", "</s>", "<pad>"))
    made["digits"] = byte_level([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True)], use_regex=True, added=special("<|endoftext|>"))
    made["forms"] = byte_level([pre_tokenizers.Digits(), split("\\s", "merged_with_next"), split("[.,!?]", "merged_with_previous"), split("@", "removed")], normalizer=normalizers.Sequence([normalizers.NFKC()]), use_regex=True)
    made["added"] = byte_level([], normalizer=normalizers.NFD(), use_regex=True, added=[
        AddedToken("word_token", single_word=True), AddedToken("ADDED", lstrip=True), AddedToken("<mask>", rstrip=True), AddedToken("é", normalized=True), AddedToken("   ", normalized=False),
        AddedToken("<|endoftext|>", special=True, lstrip=True, rstrip=True, normalized=True), AddedToken("<|endoftext"), AddedToken("the")])
    unmark = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    made["llama2"] = metaspace(None, normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]), decoders.Sequence([*unmark, decoders.Strip(" ", 1, 0)]))
    made["llama2"].post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    made["mistral"] = metaspace(pre_tokenizers.Metaspace(MARK, prepend_scheme="first", split=False), None, decoders.Sequence([*unmark, decoders.Strip(" ", 1, 0)]), added=special("[INST]", "[/INST]"))
    made["gemma"] = metaspace(split(" ", "merged_with_previous"), normalizers.Replace(" ", MARK), decoders.Sequence(unmark), added=special("<bos>", "<eos>") + [AddedToken("\n\n", normalized=False), AddedToken(MARK + MARK, normalized=False)])
    made["metaspace"] = metaspace(pre_tokenizers.Metaspace(MARK, prepend_scheme="always"), normalizers.NFKC(), decoders.Metaspace(MARK, prepend_scheme="always"), byte_fallback=False)
    made["never"] = metaspace(pre_tokenizers.Metaspace(MARK, prepend_scheme="never"), None, decoders.Metaspace(MARK, prepend_scheme="never"), added=[AddedToken("the", single_word=True)])
    return made


def write_ids(name, encode, decode):
    """`decode` returns bytes."""
    with open(OUT / (name + ".ids"), "w") as file:
        for line in tokenizer_lines.lines(LINES):
            ids = encode(text(line))
            file.write(f"{zlib.crc32(struct.pack(f'<{len(ids)}i', *ids) + decode(ids)):08x}\n")


def sentencepiece_models():
    corpus = [text(line).replace("\x00", "") for line in tokenizer_lines.lines(LINES, seed=1)]
    corpus = [line for line in corpus if sum(c.isascii() for c in line) > 0.9 * len(line)]  # A small alphabet.
    shapes = {"llama2_spm": dict(model_type="bpe", byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity"),
              "mistral_spm": dict(model_type="bpe", byte_fallback=True, split_digits=True, user_defined_symbols=["[INST]", "[/INST]"], remove_extra_whitespaces=False, normalization_rule_name="identity"),
              "spaces_spm": dict(model_type="bpe", add_dummy_prefix=False, normalization_rule_name="identity")}
    for name, shape in shapes.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=model, vocab_size=VOCAB, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, num_threads=1, **shape)
        (OUT / (name + ".model")).write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        write_ids(name, processor.encode, lambda ids, processor=processor: processor.decode(ids).encode("utf-8"))


TIKTOKEN = {"cl100k_base": (LLAMA3, {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}),
            "o200k_base": (O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
            "r50k_base": (GPT2, {"<|endoftext|>": 50256}),
            "p50k_base": (GPT2, {"<|endoftext|>": 50256}),
            "qwen": (QWEN, {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, **{f"<|extra_{i}|>": 151646 + i for i in range(205)}})}


def tiktoken_encoding(name, data):
    pattern, specials = TIKTOKEN[name]
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines() if line)}
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)


def tiktoken_files(byte_pairs):
    """The pairs of a byte-level tokenizer, by rank: bytes first, as in tiktoken's files."""
    data = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(byte_pairs))
    for name in ("cl100k_base", "o200k_base", "r50k_base"):
        (OUT / (name + ".tiktoken")).write_bytes(data)
        encoding = tiktoken_encoding(name, data)
        write_ids(name, lambda line, encoding=encoding: encoding.encode(line, allowed_special="all"), lambda ids, encoding=encoding: encoding.decode_bytes(ids))


def ordered_bytes(tokenizer):
    """The bytes of the tokens of a byte-level tokenizer, in the order of ids."""
    keep = list(range(ord("!"), ord("~") + 1)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    alphabet = {chr(byte): byte for byte in keep}
    alphabet.update({chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in keep)})
    state = json.loads(tokenizer.to_str())
    tokens = sorted(state["model"]["vocab"].items(), key=lambda item: item[1])
    known = [bytes(alphabet[c] for c in token) for token, _ in tokens if all(c in alphabet for c in token)]
    return sorted((token for token in known if len(token) == 1)) + [token for token in known if len(token) > 1]


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "lines.txt").write_text("".join(tokenizer_lines.escape(line) + "\n" for line in tokenizer_lines.lines(LINES)), encoding="utf-8")
    made = hugging_face()
    for name, tokenizer in made.items():
        compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
        (OUT / (name + ".json")).write_text(compact, encoding="utf-8")
        tokenizer = tokenizers.Tokenizer.from_str(compact)
        write_ids(name, lambda line, tokenizer=tokenizer: tokenizer.encode(line).ids, lambda ids, tokenizer=tokenizer: tokenizer.decode(ids, skip_special_tokens=False).encode("utf-8"))
    sentencepiece_models()
    tiktoken_files(ordered_bytes(made["llama3"]))


if __name__ == "__main__":
    main()
