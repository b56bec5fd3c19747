"""Proves that `trainyard export-steps` gives TensorBoard each step once, with the values of `trainyard steps`: over a job whose rank
is killed, so that it runs steps again, over exporters that are killed, and from files that were cut at any byte. The reader is
TensorBoard's own, the service real."""
import datetime
import os
import pathlib
import signal
import struct
import subprocess
import unittest

from tensorboard.backend.event_processing import event_accumulator, event_file_loader, plugin_event_accumulator

from real_service import BIN, RealService, until

SPEC = """
name: board
model: {preset: llama3-8b, overrides: {layers: 2, hidden: 64, ffn: 128, heads: 4, kv_heads: 2, vocab: 256}}
precision: F32
batch: {global: 16, micro: 1, sequence: 64}
data: {text: {path: corpus.txt, validation_fraction: 0.1}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
validation: {every_steps: 10, generate: {prompts: [In the, word], tokens: 5}}
steps: 100
devices: 2
checkpoint: {directory: run, every_steps: 40}
"""
SAME = ["loss", "validation_loss", "grad_norm", "learning_rate", "seconds", "mfu",
        "model_flops_per_second_per_device"]  # As in the step's record.


def f32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def read(run):
    """What TensorBoard shows of a run."""
    found = event_accumulator.EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def points(found, tag):
    """Step and value of every point; a step that has two stands there twice."""
    return [(point.step, point.value) for point in found.Scalars(tag)]


def last_step(run):
    found = read(run) if run.exists() else None
    return points(found, "loss")[-1][0] if found and "loss" in found.Tags()["scalars"] else 0


def ranks(directory):
    """Process ids of the trainers in this directory."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            here = os.fsencode(directory) in path.read_bytes() and words[0].endswith(b"trainyard-trainer")
            if here and path.parent.joinpath("stat").read_text().split(") ")[1][0] != "Z":
                yield int(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            pass


class ExportSteps(RealService):
    def setUp(self):
        super().setUp()
        self.environment = {"HOME": str(self.directory / "home")}
        # Two threads and two ranks on few cores: slow enough to be killed at a step of the test's choice.
        _, ready = self.start("up", "trainyard", "up", "--workers", "2", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                              "--state", "state")
        self.address = ready["controller"]
        (self.directory / "corpus.txt").write_text("In the beginning was the word. " * 2000)

    def submit_spec(self):
        (self.directory / "spec.yaml").write_text(SPEC)
        return self.trainyard("submit", "spec.yaml", "-q").split()[0]

    def follow(self, job):
        process = subprocess.Popen([BIN / "trainyard", "export-steps", job, "--tensorboard", "board", "--follow", "--controller",
                                    self.address], cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **self.environment})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def expect_the_history(self, job, run):
        records = self.lines("steps", job)
        found = read(run)
        for tag in SAME:
            wanted = [(r["step"], f32(r[tag])) for r in records if tag in r]
            self.assertTrue(wanted, tag)
            self.assertEqual(points(found, tag), wanted, tag)
        for phase in records[0]["phases"]:
            self.assertEqual(points(found, f"phase_seconds/{phase}"), [(r["step"], f32(r["phases"][phase])) for r in records], phase)
        # The other reader, of `tensorboard --load_fast=false`.
        other = plugin_event_accumulator.EventAccumulator(str(run), size_guidance={}, tensor_size_guidance={"scalars": 0}).Reload()
        self.assertEqual([point.step for point in other.Tensors("loss")], [r["step"] for r in records])
        rates = [(r["step"], r["tokens"] / r["seconds"]) for r in records]
        self.assertEqual(points(found, "tokens_per_second"), [(step, f32(rate)) for step, rate in rates])
        self.assertEqual(points(found, "tokens_per_second_per_device"), [(step, f32(rate / 2)) for step, rate in rates])
        times = [datetime.datetime.fromisoformat(r["finish_time"]).timestamp() for r in records]
        for point, time in zip(found.Scalars("loss"), times, strict=True):
            self.assertAlmostEqual(point.wall_time, time, places=2)
        (spec,) = found.Tensors("spec")
        # The first reader forgets only numbers at a restart.
        for i, prompt in enumerate(["In the", "word"]):
            texts = [(point.step, point.tensor_proto.string_val[0].decode()) for point in other.Tensors(f"generated/{i}")]
            wanted = [(r["step"], r["generated"][i]) for r in records if r["generated"]]
            self.assertEqual([step for step, _ in texts], list(range(10, 101, 10)))
            self.assertEqual(texts, [(step, f"```\n{prompt}{told['text']}\n```\n") for step, told in wanted])
        self.assertIn('"name": "board"', spec.tensor_proto.string_val[0].decode())
        return records

    def test_each_step_is_there_once(self):
        job = self.submit_spec()
        run = self.directory / "board" / job
        first = self.follow(job)
        until(lambda: last_step(run) >= 10, "the first exporter")
        first.kill()
        second = self.follow(job)
        until(lambda: last_step(run) >= 45, "the second one, beyond a checkpoint")
        os.kill(next(ranks(self.directory)), signal.SIGKILL)
        output, errors = second.communicate(timeout=90)
        self.assertEqual(second.returncode, 0, errors)
        (file,) = run.iterdir()
        self.assertEqual(output, str(file.relative_to(self.directory)) + "\n")
        self.assertIn("up to step 100", errors)

        records = self.expect_the_history(job, run)
        self.assertEqual([r["step"] for r in records], list(range(1, 101)))
        self.assertEqual({r["epoch"] for r in records}, {1, 2})
        raw = list(event_file_loader.LegacyEventFileLoader(str(file)).Load())
        self.assertGreater(sum(event.HasField("summary") for event in raw), 101, "no step was taken back, so that this shows nothing")

        before = file.read_bytes()
        self.trainyard("export-steps", job, "--tensorboard", "board")
        self.assertEqual(file.read_bytes(), before)
        self.cut_anywhere(job, file, before)
        self.wrong_input(job)

    def cut_anywhere(self, job, file, whole):
        """Readers of a file that ends at any byte of its second and third step; an export into some of them."""
        ends = [0]
        while ends[-1] < len(whole):
            ends.append(ends[-1] + 16 + struct.unpack_from("<Q", whole, ends[-1])[0])
        version, start, spec, first, second, third = ends[1:7]
        cut = self.directory / "cut"
        cut.mkdir()
        for size in range(first, third):
            (cut / file.name).write_bytes(whole[:size])
            self.assertEqual(len(points(read(cut), "loss")), 1 if size < second else 2, size)
        for size in (version - 1, start - 1, spec - 1, second, ends[-2] + 100, len(whole) - 1):
            file.write_bytes(whole[:size])
            self.trainyard("export-steps", job, "--tensorboard", "board")
            self.expect_the_history(job, file.parent)

    def wrong_input(self, job):
        def export(job, directory, *before):
            ran = subprocess.run([*before, BIN / "trainyard", "export-steps", job, "--tensorboard", directory, "--controller", self.address],
                                 cwd=self.directory, capture_output=True, text=True, check=False, timeout=60,
                                 env={**os.environ, **self.environment})
            return ran.returncode, ran.stderr

        self.assertEqual(export("j-nobody", "board"), (1, "error: no job 'j-nobody'\n"))
        self.assertEqual(export(job, "")[0], 2)
        (self.directory / "file").write_text("mine")
        code, message = export(job, "file")
        self.assertEqual((code, "Not a directory" in message, str("file/" + job) in message), (1, True, True), message)
        closed = self.directory / "closed"
        closed.mkdir(mode=0o555)
        # The owner of everything is bound by permissions without this capability.
        as_others = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.getuid() == 0 else []
        code, message = export(job, "closed", *as_others)
        self.assertEqual((code, message), (1, f"error: cannot create directory closed/{job}: Permission denied\n"))


if __name__ == "__main__":
    unittest.main()
