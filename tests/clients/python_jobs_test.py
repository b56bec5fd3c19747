"""Proves that the Python client does with jobs what the command line does: each answer is compared with that of `trainyard`, whose
service it shares. Catches fields that are lost or mistyped on the way, calls that are not idempotent, pages that are skipped, and
streams that lose or double something when the controller is killed."""
import asyncio
import json
import math
import os
import pathlib
import pickle
import threading
import time
import unittest
from unittest import mock

import grpc
import installed
import pandas
from google.protobuf import json_format
from forwarder import Forwarder
from local_service import SPEC, LocalService

import trainyard
from trainyard import _calls, records
from trainyard.v1 import job_pb2


def setUpModule():
    global service, client
    environment = mock.patch.dict(os.environ)
    environment.start()
    unittest.addModuleCleanup(environment.stop)
    service = LocalService()
    unittest.addModuleCleanup(service.stop)
    client = trainyard.Client()
    unittest.addModuleCleanup(client.close)


def lines(*words):
    return [json.loads(line) for line in service.trainyard(*words, "-o", "jsonl").splitlines()]


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


def flat(record):
    """A step of `-o jsonl` with the names of the client."""
    phases = {f"{name}_seconds": value for name, value in record.pop("phases").items()}
    return {**record, **phases, "gpu_throttle_reasons": ",".join(record["gpu_throttle_reasons"]),
            "generated": tuple((text["prompt"], text["text"]) for text in record["generated"])}


def long(**more):
    """A job that does not end by itself while a test runs."""
    return {**SPEC, "steps": 1_000_000, **more}


class Jobs(unittest.TestCase):
    def test_a_job_is_submitted_watched_and_read_as_by_the_command_line(self):
        job = client.submit({**SPEC, "validation": {"every_steps": 10}, "labels": {"team": "a"}})
        self.assertEqual((job.name, job.state, job.finished, job.labels), ("tiny", "QUEUED", False, {"team": "a"}))
        seen = list(client.watch(job))
        self.assertEqual(sorted({s.revision for s in seen}), [s.revision for s in seen])
        self.assertEqual((seen[-1].state, seen[-1].step, seen[-1].finished), ("SUCCEEDED", 20, True))
        self.assertEqual(client.wait(job), seen[-1])
        self.assertEqual(client.get(job.id), seen[-1])
        self.assertEqual(seen[-1].spec, {**SPEC, "validation": {"every_steps": 10}, "labels": {"team": "a"}})

        told, = lines("get", job.id)
        for field in ("id", "state_reason", "revision", "epoch", "namespace", "submitter"):
            self.assertEqual(getattr(seen[-1], field), told[field], field)
        for field in ("loss", "validation_loss", "tokens_per_second", "step", "total_steps"):
            self.assertEqual(getattr(seen[-1], field), told["progress"][field], field)
        self.assertEqual([e.message for e in client.events(job)], [e["message"] for e in lines("events", job.id)])
        self.assertEqual([("EVENT_TYPE_" + e.type) for e in client.events(job)], [e["type"] for e in lines("events", job.id)])
        logs = lines("logs", job.id)
        self.assertTrue(logs)
        self.assertEqual([(line.rank, line.text) for line in client.logs(job)], [(line["rank"], line["text"]) for line in logs])
        self.assertEqual(list(client.logs(job, rank=0, follow=True)), list(client.logs(job)))
        worker, = client.workers()
        told, = lines("workers")
        self.assertEqual((worker.id, worker.state, worker.devices), (told["id"], "READY", 2))

    def test_steps_are_a_table_with_typed_columns(self):
        job = client.submit({**SPEC, "validation": {"every_steps": 10}})
        client.wait(job)
        table = pandas.DataFrame(client.steps(job))
        self.assertEqual(list(table.step), list(range(1, 21)))
        for column, kind in table.dtypes.items():
            wanted = {"step": "int64", "epoch": "int64", "tokens": "int64", "skipped": "bool"}.get(column, "float64")
            if column not in ("finish_time", "gpu_throttle_reasons", "generated"):
                self.assertEqual(str(kind), wanted, column)
        self.assertRegex(str(table.dtypes["finish_time"]), r"^datetime64\[\w+, UTC\]$")
        self.assertEqual(list(table.step[table.validation_loss.notna()]), [10, 20])
        for step, told in zip(client.steps(job), lines("steps", job.id), strict=True):
            told = flat(told)
            self.assertEqual(pandas.Timestamp(told.pop("finish_time")), pandas.Timestamp(step.finish_time).floor("ms"))
            # What is not known is absent there, and NaN here.
            self.assertEqual(told, {name: value for name, value in step._asdict().items() if value == value and name != "finish_time"})
        self.assertEqual([s.step for s in client.steps(job, after=15)], [16, 17, 18, 19, 20])

    def test_a_step_has_the_fields_of_its_message(self):
        """Bug it must catch: setup.py does not see a field of step.proto, because it is written over several lines."""
        fields = [f.name for f in job_pb2.StepRecord.DESCRIPTOR.fields]
        phases = [f"{f.name}_seconds" for f in job_pb2.PhaseSeconds.DESCRIPTOR.fields]
        at = fields.index("phases")
        self.assertEqual(list(trainyard.Step._fields), fields[:at] + phases + fields[at + 1:])
        # As if a controller had sent nothing, but that there each number which cannot be absent is 0.
        nothing = records.step(job_pb2.StepRecord())
        self.assertEqual([type(value) for value in trainyard.Step()], [type(value) for value in nothing])
        self.assertEqual(repr(trainyard.Step(step=3))[:13], "Step(step=3, ")

    def test_a_step_has_the_values_of_its_message(self):
        message = job_pb2.StepRecord(step=3, epoch=2, loss=0.5, mfu=0, gpu_power_watts=300, skipped=True,
                                     gpu_throttle_reasons=["a", "b"], generated=[{"prompt": "p", "text": "t"}])
        message.phases.grad_sync = 2
        step = records.step(message)
        self.assertEqual((step.step, step.epoch, step.loss, step.mfu, step.gpu_power_watts, step.skipped), (3, 2, 0.5, 0, 300, True))
        self.assertEqual((step.grad_sync_seconds, step.data_seconds), (2, 0))
        self.assertEqual((step.gpu_throttle_reasons, step.generated), ("a,b", (("p", "t"),)))
        self.assertIsNone(step.finish_time)
        self.assertTrue(math.isnan(step.validation_loss))
        self.assertEqual(step.grad_norm, 0)

    def test_a_job_that_has_gone_back_has_no_loss_until_its_next_step(self):
        message = job_pb2.Job(state=job_pb2.JOB_STATE_RUNNING)
        message.progress.step = 40
        job = records.job(message)
        self.assertEqual(job.step, 40)
        for number in (job.loss, job.tokens_per_second, job.mfu, job.validation_loss):
            self.assertTrue(math.isnan(number))
        message.progress.loss = 0
        self.assertEqual(records.job(message).loss, 0)

    def test_the_best_checkpoint_is_a_record_or_none(self):
        message = job_pb2.Job()
        self.assertIsNone(records.job(message).best_checkpoint)
        message.best_checkpoint.CopyFrom(job_pb2.BestCheckpoint(step=40, epoch=2, validation_loss=1.25))
        self.assertEqual(records.job(message).best_checkpoint, trainyard.BestCheckpoint(40, 2, 1.25))

    def test_a_repeated_submit_is_one_job(self):
        job = client.submit({**SPEC, "steps": 1}, request_id="the-same")
        self.assertEqual(client.submit({**SPEC, "steps": 1}, request_id="the-same").id, job.id)
        with self.assertRaises(trainyard.AlreadyExists):
            client.submit({**SPEC, "steps": 2}, request_id="the-same")
        self.assertNotEqual(client.submit({**SPEC, "steps": 1}).id, job.id)

    def test_pages_of_jobs_are_one_iterator(self):
        made = [client.submit({**SPEC, "steps": 1}).id for _ in range(5)]
        for job in made:
            client.wait(job)
        self.assertEqual([job.id for job in client.list(page_size=2)], [job["id"] for job in lines("list")])
        self.assertEqual([job.id for job in client.list(page_size=2)][:5], made[::-1])
        waiting = client.submit({**SPEC, "devices": 1, "priority": -5, "steps": 1})
        client.cancel(waiting, "enough")
        states = {job.state for job in client.list(states=["CANCELLED", "FAILED"])}
        self.assertLessEqual(states, {"CANCELLED", "FAILED"})
        with self.assertRaisesRegex(trainyard.InvalidArgument, "SUCCEEDED.*found 'DONE'"):
            list(client.list(states=["DONE"]))

    def test_the_end_of_a_job_that_did_not_succeed_is_raised(self):
        job = client.submit(long())
        with self.assertRaises(TimeoutError):
            client.wait(job, timeout=0.3)
        self.assertFalse(client.get(job).finished)
        client.cancel(job, "enough")
        with self.assertRaises(trainyard.JobCancelled) as raised:
            client.wait(job)
        self.assertEqual(raised.exception.job.id, job.id)
        job = client.submit({**SPEC, "data": {"text": {"path": "absent.txt"}}})
        with self.assertRaisesRegex(trainyard.JobFailed, f"{job.id} FAILED: .*absent.txt"):
            client.wait(job, timeout=60)

    def test_specs_are_read_as_the_command_line_reads_them(self):
        text = (installed.ROOT / "recipes/tiny.yaml").read_text()
        odd = text + 'labels: {on: yes, n: 1, "null": "null", empty: ""}\nprofile:\n  directory: p\n  start_step: 1e0\n  ranks: [0]\n'
        (service.directory / "odd.yaml").write_text(odd)
        told = json.loads(service.trainyard("submit", "odd.yaml", "--validate-only", "-o", "json"))["spec"]
        wanted = json_format.ParseDict(told, job_pb2.JobSpec())
        tree = trainyard._spec.to_dict(wanted)
        for spec in (odd, service.directory / "odd.yaml", str(service.directory / "odd.yaml"), json.dumps(tree), tree, wanted):
            self.assertEqual(trainyard._spec.to_message(spec), wanted, spec)
        client.validate(tree)

    def test_items_of_a_list_may_be_mappings(self):
        datasets = [{"weight": "7e-1", "prefix": "a"}, {"weight": 2, "prefix": "b"}]
        spec = {**SPEC, "data": {"blend": {"datasets": datasets}}}
        message = trainyard._spec.to_message(spec)
        self.assertEqual([(one.weight, one.prefix) for one in message.data.blend.datasets], [(0.7, "a"), (2, "b")])
        self.assertEqual(trainyard._spec.to_message(trainyard._spec.to_dict(message)), message)
        client.validate(spec)
        for wrong, field in ((3, "data.blend.datasets[1]"), ({"weigth": 1}, "data.blend.datasets[1].weigth")):
            datasets[1] = wrong
            with self.assertRaises(trainyard.InvalidSpec) as raised:
                trainyard._spec.to_message(spec)
            self.assertEqual([v.field for v in raised.exception.violations], [field])

    def test_names_that_only_the_controller_knows_are_sent_as_text(self):
        overrides = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 256, "window": 16,
                     "moe": {"experts": 4, "expert_ffn": 32}}
        spec = {**SPEC, "model": {"preset": "gpt-oss-20b", "overrides": overrides},
                "parallelism": {"schedule": "V_MIN", "pipeline": 2}, "devices": 2}
        self.assertEqual(trainyard._spec.to_message(spec).model.overrides.fields, {"window": "16"})
        client.validate(spec)
        overrides["window"] = "wide"
        spec["parallelism"]["schedule"] = "V_MINI"
        self.assertEqual(trainyard._spec.to_message(spec).parallelism.schedule_name, "V_MINI")
        with self.assertRaises(trainyard.InvalidSpec) as raised:
            client.validate(spec)
        found = {v.field: v.description for v in raised.exception.violations}
        self.assertEqual(set(found), {"model.overrides.window", "parallelism.schedule"})
        self.assertIn("nearest V_MIN", found["parallelism.schedule"])
        overrides.update(window=16, fields={"window": 8})
        with self.assertRaisesRegex(trainyard.InvalidSpec, "model.overrides.fields.window: wanted once"):
            client.validate(spec)

    def test_a_spec_is_validated_and_not_stored(self):
        before = [job.id for job in client.list()]
        client.validate(SPEC)
        asyncio.run(self.validate())
        self.assertEqual([job.id for job in client.list()], before)

    @staticmethod
    async def validate():
        async with trainyard.aio.Client() as other:
            await other.validate(SPEC)

    def test_wrong_fields_are_named_all_at_once(self):
        wrong = {"stepss": 3, "model": {"overrides": {"layers": -1}}, "data": {"synthetic": {}, "text": {}}, "precision": "F33",
                 "batch": 4, "profile": {"ranks": [1, "x"]}, "seed": 2**64, "priority": 1.5, "deterministic": 1}
        with self.assertRaises(trainyard.InvalidSpec) as raised:
            client.submit(wrong)
        self.assertEqual([v.field for v in raised.exception.violations],
                         ["stepss", "model.overrides.layers", "data", "precision", "batch", "profile.ranks[1]", "seed", "priority",
                          "deterministic"])
        self.assertIn("did you mean 'steps'?", str(raised.exception))
        for submit in (client.submit, client.validate):
            with self.assertRaises(trainyard.InvalidSpec) as raised:
                submit({**SPEC, "batch": {"global": 7, "micro": 2, "sequence": 32}, "steps": 0})
            found = {v.field: v.description for v in raised.exception.violations}
            self.assertLessEqual({"batch.global", "steps"}, set(found))
            self.assertIn("nearest", found["batch.global"])
        job = client.submit({**SPEC, "steps": 1})
        with self.assertRaisesRegex(trainyard.InvalidArgument, "^rank: wanted") as raised:
            list(client.logs(job, rank=9))
        self.assertNotIsInstance(raised.exception, trainyard.InvalidSpec)
        for text, message in (("steps: [", "the spec: "), ("- 1", "wanted a mapping"), ("{steps: 1, steps: 2}", "a second time")):
            with self.assertRaisesRegex(trainyard.InvalidArgument, message):
                client.submit(text)
        with self.assertRaises(trainyard.NotFound):
            client.submit(pathlib.Path("absent.yaml"))

    def test_errors_pass_between_processes(self):
        with self.assertRaises(trainyard.InvalidSpec) as raised:
            client.validate({**SPEC, "steps": 0})
        job = client.submit({**SPEC, "steps": 1})
        for error in (raised.exception, trainyard.JobFailed(client.wait(job)), trainyard.NotFound("gone")):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), repr(vars(copy))), (type(error), repr(vars(error))))

    def test_a_job_that_is_not_there_is_not_found(self):
        for call in (client.get, client.cancel, client.wait, client.events, lambda j: list(client.steps(j)), lambda j: list(client.logs(j))):
            with self.assertRaises(trainyard.NotFound):
                call("j-aaaaaaaaa0")


class Killed(unittest.TestCase):
    def test_streams_go_on_behind_a_killed_controller(self):
        job = client.submit({**SPEC, "steps": 1500})
        waiting = client.submit({**SPEC, "batch": {"global": 8, "micro": 4, "sequence": 32}, "devices": 2, "steps": 1, "priority": -1})
        steps, logs, states, queued = [], [], [], []

        async def read_states():
            async with trainyard.aio.Client() as other:
                async for state in other.watch(job):
                    states.append(state)

        def read(iterator, seen):
            for item in iterator:
                seen.append(item)

        readers = [threading.Thread(target=lambda: asyncio.run(read_states()))]
        for iterator, seen in ((client.steps(job, follow=True), steps), (client.logs(job, follow=True), logs), (client.watch(waiting), queued)):
            readers.append(threading.Thread(target=read, args=(iterator, seen)))
        for reader in readers:
            reader.start()
        until(lambda: len(steps) >= 50 and logs and states and queued, "something of each stream")
        service.kill_controller()
        self.assertEqual(client.get(job).id, job.id)  # A call waits for the next controller.
        before = len(steps)
        for reader in readers:
            reader.join()
        self.assertLess(before, 1500, "the controller was killed too late to show anything")
        self.assertEqual([step.step for step in steps], list(range(1, 1501)))
        self.assertEqual(logs, list(client.logs(job)))
        for seen in (states, queued):
            self.assertEqual((seen[-1].state, seen[-1].restarts), ("SUCCEEDED", 0))
            self.assertEqual(sorted({s.revision for s in seen}), [s.revision for s in seen])

    def test_a_connection_that_breaks_is_not_noticed(self):
        both = {**long(), "devices": 2, "batch": {"global": 8, "micro": 4, "sequence": 32}}
        running, waiting = client.submit(both), client.submit(both)
        for reader in (client.watch(running), client.steps(running, follow=True)):
            next(reader)  # It has started, and the other one waits.
        token, = (pathlib.Path(os.environ["XDG_CONFIG_HOME"]) / "trainyard/loopback").iterdir()
        seen = []
        with Forwarder(service.address) as forwarder, trainyard.Client(forwarder.address, token=token) as other:
            reader = threading.Thread(target=lambda: seen.extend(other.watch(waiting)))
            reader.start()
            until(lambda: seen, "the job as it is")
            forwarder.cut()
            # HTTP/2 opens with some 100 bytes; a call has more than 200, and is not answered before the job changes.
            until(lambda: forwarder.connections == 2 and forwarder.asked_bytes > 250, "the second connection")
            client.cancel(waiting)
            reader.join()
        self.assertEqual([job.state for job in seen], ["QUEUED", "CANCELLED"])
        client.cancel(running)


class Streams(unittest.TestCase):
    def served(self, streams, numbered):
        """What a follower of logs returns, whose streams end with these lines; a controller keeps four."""
        logs, texts = _calls.Logs("j-1", None, True), []
        for last, numbers in zip(streams, numbered):
            asked = logs.request().after
            after = asked if numbers else 0
            first = max(after, last - 4) + 1 if all(numbered) else after + 1
            texts += [line.text for line in logs.take(job_pb2.StreamLogsResponse(
                lines=[job_pb2.LogLine(text=str(n), n=n if numbers else 0) for n in range(first, last + 1)]))]
        return texts

    def test_logs_go_on_behind_the_last_line_whatever_is_still_kept(self):
        self.assertEqual(self.served([4, 8, 12], [True, True, True]), [str(n) for n in range(1, 13)])

    def test_lines_without_numbers_are_counted(self):
        self.assertEqual(self.served([3, 6, 9], [False, False, False]), [str(n) for n in range(1, 10)])
        self.assertEqual(self.served([3, 6, 9], [False, True, False]), [str(n) for n in range(1, 10)])

    def test_a_stream_that_was_opened_counts_as_served(self):
        away = mock.Mock(**{"code.return_value": grpc.StatusCode.UNAVAILABLE, "details.return_value": "away"})
        late = mock.Mock(**{"code.return_value": grpc.StatusCode.DEADLINE_EXCEEDED, "details.return_value": ""})
        for metadata, served in (((), False), ((("trainyard-stream-open", "1"),), True)):
            attempts = _calls.Attempts(client._target)
            attempts.opened(metadata)
            with mock.patch("time.monotonic", return_value=0.0):
                attempts.pause_after(away)
            with mock.patch("time.monotonic", return_value=10.0):
                if served:
                    attempts.pause_after(away)
                    self.assertEqual(attempts.pause_after(late), 0.0)
                else:
                    self.assertRaises(trainyard.Unavailable, attempts.pause_after, away)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_the_asyncio_form_does_the_same(self):
        async with trainyard.aio.Client() as other:
            jobs = await asyncio.gather(*(other.submit({**SPEC, "name": f"a{i}"}) for i in range(3)))
            ended = await asyncio.gather(*(other.wait(job, timeout=60) for job in jobs))
            self.assertEqual([job.state for job in ended], ["SUCCEEDED"] * 3)
            job = jobs[0]
            self.assertEqual([s async for s in other.watch(job)][-1], ended[0])
            self.assertEqual([s async for s in other.steps(job, follow=True)], list(client.steps(job)))
            self.assertEqual([line async for line in other.logs(job)], list(client.logs(job)))
            self.assertEqual(await other.events(job), client.events(job))
            self.assertEqual([j.id async for j in other.list(page_size=1)], [j.id for j in client.list()])
            self.assertEqual([w.id for w in await other.workers()], [w.id for w in client.workers()])
            with self.assertRaises(trainyard.InvalidSpec):
                await other.validate({**SPEC, "steps": 0})
            with self.assertRaises(trainyard.NotFound):
                await other.get("j-aaaaaaaaa0")
            job = await other.submit(long())
            with self.assertRaises(TimeoutError):
                await other.wait(job, timeout=0.3)
            await other.cancel(job)
            with self.assertRaises(trainyard.JobCancelled):
                await other.wait(job)


class Shown(unittest.TestCase):
    """What the documents show runs as it is shown."""

    def test_the_notebook_runs(self):
        said = installed.run(installed.CLIENT / "examples/quickstart.py", cwd=service.directory)
        self.assertIn("batch.global - wanted", said)
        self.assertIn("RUNNING step", said)
        self.assertRegex(said, r"\n39 +40 +\d\.\d+")
        self.assertIn("FINISHED", said)

    def test_the_code_of_the_readme_runs(self):
        blocks = (installed.CLIENT / "README.md").read_text().split("```python\n")[1:]
        self.assertTrue(blocks)
        program = service.directory / "readme.py"
        program.write_text("".join(block.split("```")[0] for block in blocks))
        spec = (installed.ROOT / "recipes/tiny.yaml").read_text()
        (service.directory / "spec.yaml").write_text(spec)
        self.assertIn("SUCCEEDED", installed.run(program, cwd=service.directory))

    def test_what_the_trackers_are_sent_is_finite_numbers(self):
        job = client.submit(SPEC)
        for step in client.steps(job, follow=True):
            numbers = step.numbers()
            self.assertLessEqual({"loss", "seconds", "learning_rate"}, set(numbers))
            self.assertNotIn("validation_loss", numbers)
            json.dumps(numbers, allow_nan=False)


if __name__ == "__main__":
    unittest.main()
