"""Compares apply_chat_template of `transformers` with trainyard-tokenize --documents chat: all ids of 2,000 conversations.

  check_chat.py TRAINYARD_TOKENIZE DIRECTORY...     DIRECTORY: a published tokenizer.json with its tokenizer_config.json

Prints a line for each directory, and differs from 0 at the end if one differs or is refused. The chat template must be one of
train/chat/formats.cc that writes no date.

pip install "transformers==5.24.0" jinja2
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizer_lines
import transformers
from check_tokenizers import ids_of_corpus

CONVERSATIONS = 2_000


def conversations(system):
    """Of 1 to 3 turns of lines; a half begins with a message of the system, if the template knows that."""
    drawn = random.Random(1)
    texts = [line.decode("utf-8", errors="replace").replace("\x00", "") for line in tokenizer_lines.lines(CONVERSATIONS)]
    texts = [text for text in texts if text.strip()]
    made = []
    for _ in range(CONVERSATIONS):
        messages = [{"role": "system", "content": drawn.choice(texts)}] if system and drawn.random() < 0.5 else []
        for _ in range(drawn.randint(1, 3)):
            messages += [{"role": role, "content": drawn.choice(texts)} for role in ("user", "assistant")]
        made.append(messages)
    return made


def check(program, directory):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    try:
        tokenizer.apply_chat_template(conversations(True)[0][:1] + [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}])
        made = conversations(True)
    except Exception:  # jinja2's, of raise_exception.
        made = conversations(False)
    with tempfile.TemporaryDirectory() as scratch:
        chats, prefix = f"{scratch}/chats.jsonl", f"{scratch}/out"
        with open(chats, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"messages": messages}) + "\n" for messages in made)
        try:
            subprocess.run([program, "--tokenizer", directory, "--documents", "chat", chats, prefix], check=True, stdout=subprocess.DEVNULL)
        except subprocess.CalledProcessError:
            return "refused"
        found = ids_of_corpus(prefix)
    wanted = [tokenizer.apply_chat_template(messages, return_dict=False) for messages in made]
    wrong = [(messages, ids, ours) for messages, ids, ours in zip(made, wanted, found) if ids != ours]
    if not wrong and len(found) == len(wanted):
        return f"all {sum(map(len, wanted))} ids of {len(made)} conversations are equal"
    return f"{len(wrong)} conversations differ, for example {min(wrong, key=lambda one: len(one[1]))}"


def main():
    bad = 0
    for name in sys.argv[2:]:
        result = check(sys.argv[1], str(pathlib.Path(name)))
        bad += not result.startswith("all")
        print(f"{name}: {result}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
