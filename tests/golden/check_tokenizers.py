"""Compares published tokenizers with the public libraries, through trainyard-tokenize: all ids of 10,000 lines.

  check_tokenizers.py TRAINYARD_TOKENIZE FILE...     FILE: tokenizer.json, tekken.json, NAME.tiktoken or a model of SentencePiece

Prints a line for each file, and differs from 0 at the end if one differs or is refused.

pip install tokenizers sentencepiece mistral-common tiktoken
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unicodedata

import tokenizer_lines

LINES = 10_000


def public_encoder(path):
    """Returns what encodes a text, without the tokens of a template."""
    if path.name.startswith("tekken"):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        tekken = Tekkenizer.from_file(str(path))
        return lambda text: tekken.encode(text, bos=False, eos=False)
    if path.suffix == ".json":
        import tokenizers
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    if path.suffix == ".tiktoken":
        import make_tokenizers
        encoding = make_tokenizers.tiktoken_encoding(path.stem, path.read_bytes())
        form = (lambda text: unicodedata.normalize("NFC", text)) if path.stem == "qwen" else str  # As Qwen's own code does.
        return lambda text: encoding.encode(form(text), allowed_special="all")
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return processor.encode


def ids_of_corpus(prefix):
    """The ids of each document."""
    index, tokens = pathlib.Path(prefix + ".idx").read_bytes(), pathlib.Path(prefix + ".bin").read_bytes()
    code, count = struct.unpack_from("<BQ", index, 17)
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    ids = struct.unpack(f"<{sum(lengths)}{'H' if code == 8 else 'i'}", tokens)
    at, made = 0, []
    for length in lengths:
        made.append(list(ids[at:at + length]))
        at += length
    return made


def our_ids(program, path, texts):
    """The ids of each text that has some, by way of a corpus."""
    with tempfile.TemporaryDirectory() as directory:
        corpus, prefix = f"{directory}/lines.jsonl", f"{directory}/out"
        with open(corpus, "w", encoding="utf-8") as file:
            for text in texts:
                file.write(json.dumps({"text": text}) + "\n")
        subprocess.run([program, "--tokenizer", str(path), corpus, prefix], check=True, stdout=subprocess.DEVNULL)
        return ids_of_corpus(prefix)


def check(program, path, texts):
    encode = public_encoder(path)
    wanted = [(text, ids) for text in texts if (ids := list(encode(text)))]
    try:
        found = our_ids(program, path, texts)
    except subprocess.CalledProcessError:
        return "refused"
    if len(found) != len(wanted):
        return f"{len(found)} documents, wanted {len(wanted)}"
    wrong = [(text, ids, ours) for (text, ids), ours in zip(wanted, found) if ids != ours]
    if not wrong:
        return f"all {sum(len(ids) for _, ids in wanted)} ids of {len(texts)} lines are equal"
    text, ids, ours = min(wrong, key=lambda one: len(one[0]))
    return f"{len(wrong)} lines differ, for example {text!r}: wanted {ids}, found {ours}"


def main():
    texts = [line.decode("utf-8", errors="replace") for line in tokenizer_lines.lines(LINES)]
    bad = 0
    for name in sys.argv[2:]:
        result = check(sys.argv[1], pathlib.Path(name), texts)
        bad += not result.startswith("all")
        print(f"{name}: {result}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
