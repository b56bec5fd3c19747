"""Writes what apply_chat_template of `transformers` makes of chat/conversations.jsonl with the chat templates of published models:

  make_chat.py DIRECTORY      writes chat/NAME.json for each format that DIRECTORY has templates of

DIRECTORY has the templates' texts, NAME.jinja and perhaps NAME@2.jinja; NAME is one of train/chat/formats.cc. The templates belong to
their authors and are not part of this tree. On 2026-11-29 they were taken from trl 1.16.0 (trl/chat_templates: gemma, gemma3, llama3,
llama3_1, llama3_2, phi3, phi3_5, qwen2_5, qwen3, qwen3_instruct_2507, deepseekv3 and deepseek_r1_distill, the last two as deepseek-r1),
from llama_cpp_python 0.3.36 (vendor/llama.cpp/models/templates: Mistral Nemo, Mistral Small 3.2, gpt-oss, and Qwen 3 as qwen3@2;
tests/test-chat-template.cpp: chatml@2, mistral and phi4@2), and, for llama2, phi4, phi4-mini and deepseek-v3, from public programs that
quote tokenizer_config.json. chatml has line breaks where chatml@2 has \\n, and qwen2 is that with a system message.

All templates of a format must write the same. The tokenizer is a small one of tokenizers/, to which the tokens of the format are added.

pip install "transformers==5.24.0" jinja2
"""
import datetime
import hashlib
import json
import pathlib
import struct
import sys
import zlib

import transformers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
OUT = HERE / "chat"
DATE = datetime.datetime(2026, 11, 29)
HEADERS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
PHI = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]
TEKKEN = ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
DEEPSEEK = ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"]
CHATML = ["<|im_start|>", "<|im_end|>"]
# The small tokenizer, the tokens to be added, bos_token and eos_token.
FORMATS = {
    "chatml": ("qwen", CHATML, None, "<|im_end|>"),
    "llama2": ("llama2", [], "<s>", "</s>"),
    "llama3": ("llama3", HEADERS, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": ("llama3", HEADERS, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.2": ("llama3", HEADERS, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2": ("qwen", CHATML, None, "<|im_end|>"),
    "qwen2.5": ("qwen", CHATML, None, "<|im_end|>"),
    "qwen3": ("qwen", CHATML, None, "<|im_end|>"),
    "qwen3-instruct": ("qwen", CHATML, None, "<|im_end|>"),
    "mistral": ("llama2", [], "<s>", "</s>"),
    "mistral-nemo": ("gpt2", ["<s>", "</s>", *TEKKEN], "<s>", "</s>"),
    "mistral-small": ("mistral", TEKKEN, "<s>", "</s>"),
    "gemma": ("gemma", ["<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>"),
    "gemma3": ("gemma", ["<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>"),
    "deepseek-v3": ("deepseek", DEEPSEEK, DEEPSEEK[0], DEEPSEEK[1]),
    "deepseek-r1": ("deepseek", DEEPSEEK, DEEPSEEK[0], DEEPSEEK[1]),
    "phi3": ("llama2", PHI, "<s>", "<|endoftext|>"),
    "phi3.5": ("llama2", PHI, "<s>", "<|endoftext|>"),
    "phi4": ("o200k", [*CHATML, "<|im_sep|>"], "<|endoftext|>", "<|im_end|>"),
    "phi4-mini": ("o200k", PHI, "<|endoftext|>", "<|endoftext|>"),
    "gpt-oss": ("o200k", ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>"], "<|endoftext|>", "<|return|>"),
}
STRIPS = {"phi3", "phi3.5"}  # Their tokens take the white space behind them.
NEEDS_SYSTEM = {"mistral-small"}  # Without a message of the system, the template writes a long text of its own, which is not ours to copy.


class FrozenDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


def with_tokens(base, tokens, rstrip):
    """The tokenizer.json with the tokens that it lacks, and their entries."""
    state = json.loads((HERE / "tokenizers" / (base + ".json")).read_text(encoding="utf-8"))
    known = {entry["content"] for entry in state["added_tokens"]}
    next_id = 1 + max([*state["model"]["vocab"].values(), *(entry["id"] for entry in state["added_tokens"])])
    added = [{"id": next_id + i, "content": token, "single_word": False, "lstrip": False, "rstrip": rstrip, "normalized": False, "special": True}
             for i, token in enumerate(token for token in tokens if token not in known)]
    state["added_tokens"] += added
    return state, added


def tokenizer_of(state, template, bos, eos):
    import tokenizers
    special = {"bos_token": bos} if bos else {}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(state)), chat_template=template, eos_token=eos, **special)


def checksum(tokenizer, messages, **options):
    """Of the ids. For a question, of those that stand before its answer."""
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
    return f"{zlib.crc32(struct.pack(f'<{len(ids)}i', *ids)):08x}"


def render(name, tokenizer, messages):
    """The text and the checksum of the ids, or why there are none."""
    if name in NEEDS_SYSTEM and messages[0]["role"] != "system":
        return {"refused": "no message of the system"}
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception as error:  # jinja2's, of raise_exception.
        return {"refused": str(error)}
    made = {"text": text, "ids": checksum(tokenizer, messages)}
    if messages[-1]["role"] == "assistant":
        made["question"] = checksum(tokenizer, messages[:-1], add_generation_prompt=True)
    return made


def main():
    chat_template_utils.datetime = FrozenDate
    conversations = [json.loads(line)["messages"] for line in (OUT / "conversations.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, (base, tokens, bos, eos) in FORMATS.items():
        made = []
        for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
            if path.name not in (f"{name}.jinja", f"{name}@2.jinja"):
                continue
            template = path.read_text(encoding="utf-8")
            state, added = with_tokens(base, tokens, name in STRIPS)
            tokenizer = tokenizer_of(state, template, bos, eos)
            cases = [render(name, tokenizer, messages) for messages in conversations]
            made.append((hashlib.sha256(template.removesuffix("\n").encode("utf-8")).hexdigest(), cases))
        if not made:
            print(f"{name}: no template")
            continue
        assert all(cases == made[0][1] for _, cases in made), f"{name}: the templates differ"
        golden = {"tokenizer": base, "added_tokens": added, "bos_token": bos, "eos_token": eos, "templates": [digest for digest, _ in made], "cases": made[0][1]}
        (OUT / f"{name}.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {sum('ids' in case for case in made[0][1])} of {len(conversations)} conversations")


if __name__ == "__main__":
    main()
