"""Paths of a job stay below the roots: specs whose paths climb, lead through links, or change under the rank's hands are run by the hundred, and strace
shows every file that their trainers open. None of them is the secret beside the root, none that is opened to be written lies outside. So it is with the
files that other files name: those of imported directories, of blends and of checkpoints, with good ones beside those that lead out."""
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import threading
import unittest

from real_service import BIN, RealService, until

SPECS = 200
SIZES = {"family": "llama", "layers": 1, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "vocab": 256}
BASE = {"name": "paths", "model": {"preset": "llama3-8b", "overrides": {"layers": 1, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "vocab": 256}},
        "precision": "F32", "batch": {"global": 1, "micro": 1, "sequence": 8}, "data": {"synthetic": {}},
        "optimizer": {"adamw": {"learning_rate": 1e-3}}, "steps": 1, "devices": 1}
ARCHITECTURE = {**SIZES, "head_dim": 16, "max_seq": 64, "norm_eps": 1e-5, "rope_base": 10000.0}
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def safetensors():
    """All weights of ARCHITECTURE, zeros."""
    shapes = {"model.embed_tokens.weight": [256, 32], "lm_head.weight": [256, 32], "model.norm.weight": [32]}
    block = {"input_layernorm": [32], "post_attention_layernorm": [32], "self_attn.q_proj": [32, 32], "self_attn.k_proj": [16, 32], "self_attn.v_proj": [16, 32],
             "self_attn.o_proj": [32, 32], "mlp.gate_proj": [32, 32], "mlp.up_proj": [32, 32], "mlp.down_proj": [32, 32]}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in block.items()}
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 4 * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at), sorted(shapes)


def write_model(directory, index=""):
    """A Hugging Face directory. `index`: the file that its index names for each tensor; there is no other file of weights then."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights, names = safetensors()
    if index:
        (directory / INDEX).write_text(json.dumps({"weight_map": {name: index for name in names}}), encoding="utf-8")
    else:
        (directory / WEIGHTS).write_bytes(weights)
    return directory


def write_corpus(prefix):
    """One document of 2,000 tokens of a byte, as Megatron writes it."""
    pathlib.Path(f"{prefix}.bin").write_bytes(b"token" * 400)
    pathlib.Path(f"{prefix}.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 1, 1, 2, 2000, 0, 0, 1))


class PathsOfJobs(RealService):
    def make_traps(self):
        self.root, self.outside = self.directory / "data", self.directory / "outside"
        for place in (self.root / "sub/deep", self.outside / "dir"):
            place.mkdir(parents=True)
        (self.outside / "secret.txt").write_text("secret " * 500, encoding="utf-8")
        (self.root / "text.txt").write_text("text " * 500, encoding="utf-8")
        links = {"out": self.outside, "up": "..", "sub/up": "../..", "file": self.outside / "secret.txt", "etc": "/etc", "loop": "loop", "self": "/proc/self",
                 "sub/deep/far": "../../../outside", "chain": "out/dir/../secret.txt", "root": "/", "shm": "/dev/shm"}
        for name, target in links.items():
            os.symlink(target, self.root / name)
        write_corpus(self.root / "corpus")
        write_corpus(self.outside / "corpus")
        for suffix in ("bin", "idx"):
            os.symlink(self.outside / f"corpus.{suffix}", self.root / f"led.{suffix}")
        os.symlink(self.outside / "corpus.bin", self.root / "half.bin")
        shutil.copy(self.root / "corpus.idx", self.root / "half.idx")
        return sorted([*links, "led", "half"])

    def named_specs(self):
        """{name: job}: what other files name. Those whose name begins with "good" must succeed, and no other."""
        models, far = self.root / "models", write_model(self.outside / "model")
        write_model(models / "good")
        shutil.copy(models / "good" / WEIGHTS, write_model(models / "good-index", "one.safetensors") / "one.safetensors")
        shutil.copy(far / WEIGHTS, self.outside / "x.safetensors")
        write_model(models / "climbs", "../../../outside/x.safetensors")
        write_model(models / "climbs-less", "../../x.safetensors")
        shutil.copy(far / WEIGHTS, self.root / "x.safetensors")  # Below the root, and yet not of the directory.
        os.symlink(self.outside / "x.safetensors", write_model(models / "shard", "one.safetensors") / "one.safetensors")
        for name, file in (("config", "config.json"), ("weights", WEIGHTS)):
            (write_model(models / name) / file).unlink()
            os.symlink(far / file, models / name / file)
        (self.outside / "index").write_text((models / "good-index" / INDEX).read_text(encoding="utf-8"), encoding="utf-8")
        shutil.copytree(models / "good-index", models / "index")
        (models / "index" / INDEX).unlink()
        os.symlink(self.outside / "index", models / "index" / INDEX)
        os.symlink(self.outside / "secret.txt", write_model(models / "tokenizer") / "tokenizer.json")
        os.symlink(far, models / "directory")
        specs = {name.replace("good", "good-model"): {"model": {"import": f"models/{name}", "architecture": ARCHITECTURE}}
                 for name in sorted(path.name for path in models.iterdir())}
        specs["outside-model"] = {"model": {"import": str(far), "architecture": ARCHITECTURE}}

        def blend(*paths):
            key = lambda path: "path" if path.endswith(".txt") else "prefix"
            return {"data": {"blend": {"datasets": [{"weight": 1, key(path): path} for path in paths]}}}

        second = {"good-blend": "corpus", "led-blend": "led", "half-blend": "half", "climbing-blend": "../outside/corpus", "absolute-blend": str(self.outside / "corpus"),
                  "linked-text-blend": "file.txt", "climbing-text-blend": "sub/up/../outside/secret.txt"}
        os.symlink(self.outside / "secret.txt", self.root / "file.txt")
        for name, file in (("owned", "owner.json"), ("saved", "manifest.json")):
            (self.root / name).mkdir()
            os.symlink(self.outside / "secret.txt", self.root / name / file)
        specs |= {"owned": {"checkpoint": {"directory": "owned", "every_steps": 1}}, "saved": {"init_from": "saved"}}
        return specs | {name: blend("text.txt", path) for name, path in second.items()} | {"led-alone": {"data": {"indexed": {"prefix": "led"}}},
                                                                                           "good-alone": {"data": {"indexed": {"prefix": "corpus"}}}}

    def paths(self, rng, links):
        """A path that wants to get out, or through."""
        steps = ["..", ".", "sub", "sub/deep", "outside", "secret.txt", "dir", "text.txt", "etc", "passwd", "flip", *links]
        kind = rng.randrange(4)
        if kind == 0:
            return rng.choice(links) + rng.choice(["", "/secret.txt", "/dir", "/outside/secret.txt", "/../outside/secret.txt", "/passwd"])
        if kind == 1:
            return "/".join(rng.choice(steps) for _ in range(rng.randint(1, 6)))
        if kind == 2:
            return rng.choice(["flip", "flip/secret.txt", "flip/run", "sub/../flip/secret.txt"])
        return str(self.root / rng.choice(steps)) + "/" + rng.choice(steps)

    def spec(self, rng, links):
        path = self.paths(rng, links)
        job = json.loads(json.dumps(BASE))
        rng.choice([lambda: job.update(checkpoint={"directory": path, "every_steps": 1}), lambda: job.update(data={"text": {"path": path}}),
                    lambda: job.update(data={"blend": {"datasets": [{"weight": 1, "path": "text.txt"}, {"weight": 1, rng.choice(["path", "prefix"]): path}]}}),
                    lambda: job.update(init_from=path), lambda: job.update(model={"import": path, "architecture": SIZES}), lambda: job.update(profile={"directory": path, "start_step": 1, "steps": 1})])()
        return json.dumps(job)

    def flip(self, stop):
        """A name that is a directory in one moment and a link that leads out in the next."""
        name, link, real = self.root / "flip", self.root / ".link", self.root / ".real"
        os.symlink(self.outside, link)
        real.mkdir()
        (real / "secret.txt").write_text("text " * 500, encoding="utf-8")
        write_model(real)
        here = link
        while not stop.wait(0.0005):
            try:
                os.rename(here, name)
                os.rename(name, here)
            except OSError:  # A job has just made a directory of that name.
                shutil.rmtree(name, ignore_errors=True)
                continue
            here = real if here is link else link

    def calls(self):
        """What each trainer has called, its threads' calls included, as the kernel knows it: {process: lines}."""
        threads = {file.suffix[1:]: file.read_text(encoding="utf-8", errors="replace").splitlines() for file in self.directory.glob("trace.*")}

        def after(lines):
            for line in lines:
                made = re.match(r"(?:clone3?|v?fork)\(.*\) = (\d+)$", line)
                yield line
                if made:
                    yield from after(threads.get(made.group(1), []))

        result = {}
        for thread, lines in threads.items():
            begun = [at for at, line in enumerate(lines) if re.match(r'execve\("[^"]*/trainyard-trainer", .* = 0$', line)]
            if begun:
                result[thread] = list(after(lines[begun[-1] + 1:]))
        return result

    def names_outside(self):
        return sorted(str(path.relative_to(self.outside)) for path in self.outside.rglob("*"))

    def end_of_jobs(self):
        """Whether all have ended. A job that could once use a directory waits for the directory's return, which is not of this test."""
        jobs = self.lines("list", "--limit", "1000")
        for job in jobs:
            if job["state"] == "JOB_STATE_RECOVERING" and not job["spec"]["name"].startswith("good"):
                self.trainyard("cancel", job["id"])
        return all(job["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED") for job in jobs)

    def test_no_path_leads_out(self):
        links = self.make_traps()
        root = str(self.directory.resolve())
        home = {"HOME": f"{root}/home"}
        self.start_controller(listen="127.0.0.1:0", env=home)
        worker = ["trainyard-worker", "--controller", self.address, "--state", f"{root}/w", "--devices", "2", "--cores", "2", "--root", str(self.root)]
        strace, _ = self.start("worker", "/usr/bin/strace", "-ff", "--seccomp-bpf", "-y", "-e", "trace=execve,clone,clone3,fork,vfork,open,openat,openat2",
                               "-e", "signal=none", "-o", "trace", str(BIN / worker[0]), *worker[1:], env=home)
        child = int(pathlib.Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text(encoding="utf-8").split()[0])
        self.addCleanup(os.kill, child, signal.SIGTERM)
        write_model(self.outside)
        stop = threading.Event()
        flipper = threading.Thread(target=self.flip, args=(stop,))
        flipper.start()
        self.addCleanup(flipper.join)
        self.addCleanup(stop.set)
        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)
        taken = 0
        named = self.named_specs()
        outside = self.names_outside()
        specs = [json.dumps({**BASE, "name": name, **job}) for name, job in named.items()] + [self.spec(rng, links) for _ in range(SPECS)]
        for spec in specs:
            ran = subprocess.run([BIN / "trainyard", "submit", "-", "-q"], cwd=root, input=spec, text=True, capture_output=True,
                                 check=False, timeout=60, env={**home, "TRAINYARD_CONTROLLER": self.address})
            self.assertIn(ran.returncode, (0, 1), ran.stderr)
            taken += ran.returncode == 0
        until(self.end_of_jobs, "the end of all jobs", 200)
        jobs = self.lines("list", "--limit", "1000")
        succeeded = [job for job in jobs if job["state"] == "JOB_STATE_SUCCEEDED"]
        for job in jobs:
            if (name := job["spec"]["name"]) in named:
                self.assertEqual(job in succeeded, name.startswith("good"), f"{name}: {job.get('state_reason')}")
        trainers, found = self.calls(), []
        self.assertGreater(len(trainers), SPECS // 10)
        for line in itertools.chain(*trainers.values()):
            self.assertNotRegex(line, r'open(at)?\((AT_FDCWD<[^>]*>, )?"[^/]', "a path is taken from the current directory, which jobs may write")
            if call := re.match(r"open(?:at2?)?\((.*)\) = \d+<(.*?)>", line):
                found.append((call.group(2), bool(re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call.group(1)))))
                self.assertFalse(call.group(2).startswith(str(self.outside)), line)
        self.assertGreater(len(succeeded), 2, "no path was good: nothing is shown")
        self.assertTrue([path for path, writes in found if writes and path.startswith(f"{self.root}/")], "the trace shows what is written")
        for path, writes in found:
            if writes:
                inside = path.startswith((f"{self.root}/", f"{root}/w/ranks/", "/dev/", "/proc/"))
                self.assertTrue(inside and not path.startswith("/dev/shm"), path)
        self.assertEqual(self.names_outside(), outside)
        print(f"{len(specs)} specs, {taken} taken, {len(trainers)} trainers, {len(succeeded)} succeeded, {len(found)} files opened")


if __name__ == "__main__":
    unittest.main()
