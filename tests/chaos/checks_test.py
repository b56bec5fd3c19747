"""Proves that the checks of a chaos run can fail: each kind of damage is told, and an undamaged job has none."""

import copy
import json
import pathlib
import tempfile
import types
import unittest

import checks
import jobs
from watcher import Watcher

KIND = jobs.Kind("tested", steps=8, every=2, validation=4)
DIGEST = "d" * 64


class Checks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.digest = DIGEST
        # Two attempts: the second began at step 5, after a checkpoint of step 4.
        self.steps = [{"step": step, "epoch": 1 if step < 5 else 2, "loss": 1 / step} for step in range(1, 9)]
        for step in (4, 8):
            self.steps[step - 1]["validation_loss"] = 2 / step
        self.peace = jobs.Undisturbed(DIGEST, jobs.losses(self.steps), jobs.validation_losses(self.steps), 1.0, 0.9)
        self.job = {"id": "j-1", "spec": {"name": "tested-1"}, "state": "JOB_STATE_SUCCEEDED", "state_reason": "",
                    "checkpoints": [self.save(2, 6), self.save(2, 8)]}
        self.watcher = Watcher(lambda: [])
        self.watcher.stop()
        self.watcher.add("j-1", self.directory)
        seen = self.watcher.jobs["j-1"]
        seen.epochs, seen.commits = {1: 0.0, 2: 10.0}, {(1, 4): 5.0, (2, 6): 11.0, (2, 8): 12.0}

    def test_the_seconds_of_steps_include_all_that_stands_beside_them(self):
        phases = {"data": 1, "forward": 2, "checkpoint": 4, "validation": 8}
        self.assertEqual(jobs.stepping_seconds([{"seconds": 16, "phases": phases}] * 2), 2 * (1 + 4 + 8 + 16))

    def save(self, epoch, step):
        path = self.directory / f"epoch-{epoch}/step-{step}"
        path.mkdir(parents=True)
        (path / "manifest.json").write_text(json.dumps({"data_position": step * jobs.BATCH}))
        return {"path": str(path), "epoch": epoch, "step": step}

    def problems(self):
        cluster = types.SimpleNamespace(
            lines=lambda *words: self.steps,
            trainyard=lambda *words: types.SimpleNamespace(code=0, output=f"{self.digest}  newest\n", errors=""))
        return checks.of_job(cluster, self.watcher, self.job, KIND, self.peace)

    def expect(self, text):
        self.assertTrue(any(text in problem for problem in self.problems()), (text, self.problems()))

    def test_a_job_that_lost_nothing_has_no_problem(self):
        self.assertEqual(self.problems(), [])

    def test_an_outcome_that_is_not_success(self):
        self.job.update(state="JOB_STATE_FAILED", state_reason="why")
        self.expect("FAILED instead of SUCCEEDED: why")

    def test_another_digest(self):
        self.digest = "e" * 64
        self.expect("digest is e")

    def test_a_hole_in_the_history(self):
        del self.steps[2]
        self.expect("7 of 8 steps")

    def test_a_step_that_is_there_twice(self):
        self.steps.insert(3, copy.copy(self.steps[2]))
        self.expect("1 of them twice")

    def test_a_loss_that_differs_in_its_last_bit(self):
        self.steps[6]["loss"] += 2 ** -55
        self.expect("the first at step 7")

    def test_a_lost_validation_loss(self):
        del self.steps[3]["validation_loss"]
        self.expect("those of steps [4] are missing")

    def test_a_checkpoint_that_is_not_listed(self):
        self.job["checkpoints"].pop()
        self.expect("1 checkpoints are listed instead of at least 2")
        self.expect("newest listed checkpoint is of step 6 instead of 8")

    def test_a_listed_checkpoint_that_does_not_exist(self):
        (self.directory / "epoch-2/step-6/manifest.json").unlink()
        self.expect("step 6 is listed and does not exist")

    def test_samples_that_were_left_out(self):
        (self.directory / "epoch-2/step-8/manifest.json").write_text('{"data_position": 28}')
        self.expect("data position is 28 instead of 32")

    def test_an_attempt_that_began_before_a_checkpoint_that_was_there(self):
        self.steps[3]["epoch"] = 2
        self.expect("epoch 2 began at step 4 although the checkpoint of step 4")

    def test_a_superseded_attempt_that_commits(self):
        self.watcher.jobs["j-1"].stale_commits[1, 6] = 3.0
        self.expect("epoch 1 committed step 6 after it had used 3.0 s of the processor beside a later attempt")

    def test_a_superseded_attempt_that_runs_on(self):
        self.watcher.jobs["j-1"].stale_run[1, 0] = 7.0
        self.expect("rank 0 of epoch 1 used 7.0 s")

    def test_jobs_that_are_lost_or_doubled(self):
        self.assertEqual(checks.of_the_list(["j-1"], {"j-1": self.job}), [])
        self.assertEqual(checks.of_the_list(["j-1", "j-2"], {"j-1": self.job}), ["job j-2 was acknowledged and is lost"])
        self.assertEqual(checks.of_the_list(["j-1"], {"j-1": self.job, "j-2": self.job}), ["job tested-1 is there twice"])


class Watching(unittest.TestCase):
    def test_commits_and_seconds_beside_a_later_attempt_are_counted_and_waiting_is_not(self):
        trainers = []
        with tempfile.TemporaryDirectory() as directory:
            watcher = Watcher(lambda: trainers)
            watcher.stop()
            watcher.add("j-1", pathlib.Path(directory))
            seen = watcher.jobs["j-1"]

            def save(epoch, step):
                path = pathlib.Path(directory) / f"epoch-{epoch}/step-{step}"
                path.mkdir(parents=True)
                (path / "manifest.json").touch()
                watcher.look_at_directory(seen, pathlib.Path(directory), 1.0)

            rank = types.SimpleNamespace(job="j-1", epoch=1, rank=0, pid=7, cpu_seconds=10.0)
            trainers.append(rank)
            save(1, 2)
            watcher.look_at_processes()
            self.assertEqual((seen.stale_commits, dict(seen.stale_run)), ({}, {}))
            save(2, 4)
            rank.cpu_seconds = 13.0
            watcher.look_at_processes()
            watcher.look_at_processes()  # It waited.
            save(1, 4)
            self.assertEqual((seen.stale_commits, dict(seen.stale_run)), ({(1, 4): 3.0}, {(1, 0): 3.0}))
            self.assertEqual(len(list(watcher.problems("j-1"))), 1)  # Not beyond what a busy machine may take.


if __name__ == "__main__":
    unittest.main()
