"""Proves that a change which the last release would not understand is found, named, and said whom it breaks, and that
additions are free. Each case changes one text of the real .proto files."""

import os
import pathlib
import shutil
import tempfile
import unittest

import last_release

PROTO = pathlib.Path(os.environ["TRAINYARD_SOURCE"]) / "proto"


class LastRelease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.today = last_release.describe(PROTO)

    def changed(self, file, text, becomes):
        """What is wrong with that change after today's release."""
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "proto"
            shutil.copytree(PROTO, copy)
            path = copy / "trainyard/v1" / file
            before = path.read_text()
            self.assertEqual(before.count(text), 1, f"{text} in {file}")
            path.write_text(before.replace(text, becomes))
            return last_release.compare(self.today, last_release.describe(copy))

    def broken(self, file, text, becomes, *words):
        problems = self.changed(file, text, becomes)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_the_file_is_read_as_it_is_written(self):
        self.assertEqual(last_release.from_text(last_release.to_text(self.today)), self.today)

    def test_additions_are_free(self):
        self.assertEqual(self.changed("worker.proto", "message Heartbeat {}", "message Heartbeat { uint64 beats = 1; }\nmessage Next {}"), [])
        self.assertEqual(self.changed("worker.proto", "    Ack ack = 5;", "    Ack ack = 5;\n    Ack other = 6;"), [])
        self.assertEqual(self.changed("worker.proto", "  STOP_MODE_KILL = 2;", "  STOP_MODE_KILL = 2;\n  STOP_MODE_PAUSE = 3;"), [])
        self.assertEqual(self.changed("job.proto", "message GetJobRequest {", "message NextRequest {}\nmessage GetJobRequest {"), [])

    def test_a_type_stays(self):
        self.broken("worker.proto", "string worker_id = 2 ", "bytes worker_id = 2 ", "field trainyard.v1.Register 2",
                    "breaks workers of the last release", "WorkerService.Connect")

    def test_one_stays_one_and_a_oneof_stays_a_oneof(self):
        self.broken("worker.proto", "  string instance_id = 3 ", "  repeated string instance_id = 3 ", "Register 3")
        self.broken("job.proto", "  optional uint32 rank = 2;", "  uint32 rank = 2;", "StreamLogsRequest 2", "command lines",
                    "JobService.StreamLogs")
        self.broken("job_spec.proto", "  oneof shape {\n    WarmupThen cosine = 1;", "  WarmupThen cosine = 1;\n  oneof shape {", "Schedule 1")

    def test_a_field_may_become_absent_but_not_the_other_way_round(self):
        self.assertEqual(self.changed("job.proto", "  double eta_seconds = 7;", "  optional double eta_seconds = 7;"), [])
        self.broken("job.proto", "  double eta_seconds = 7;", "  optional float eta_seconds = 7;", "Progress 7", "became float")
        self.broken("job.proto", "  optional double loss = 3; ", "  double loss = 3; ", "Progress 3", "command lines")

    def test_a_name_stays_because_json_has_it(self):
        self.broken("job_spec.proto", "  string name = 1 ", "  string title = 1 ", "JobSpec 1", "command lines")

    def test_a_field_goes_only_where_its_number_is_reserved(self):
        self.broken("worker.proto", "  string metrics_url = 8 [(bounds) = {bytes: 1024}];\n", "", "Register 8", "is gone", "reserve its number")
        self.assertEqual(self.changed("worker.proto", "  string metrics_url = 8 [(bounds) = {bytes: 1024}];\n", "  reserved 8;\n"), [])

    def test_a_reserved_number_is_not_used_again(self):
        self.broken("worker.proto", "  reserved 9;\n", "  string next = 9;\n", "Register 9", "was reserved and is used")
        self.broken("worker.proto", "  reserved 9;\n", "", "Register 9", "was reserved and is free")

    def test_a_number_is_not_used_for_something_else(self):
        self.broken("worker.proto", "  uint32 detach_seconds = 11;", "  string colour = 11;", "Register 11", "became string colour")

    def test_values_of_enums_keep_their_numbers(self):
        self.broken("worker.proto", "  STOP_MODE_KILL = 2;", "  STOP_MODE_PAUSE = 2;", "StopMode 2", "workers")
        problems = self.changed("worker.proto", "  STOP_MODE_KILL = 2;", "  STOP_MODE_KILL = 3;")
        self.assertEqual([problem.split(":")[0] for problem in problems], ["value trainyard.v1.StopMode 2"])
        self.assertEqual(self.changed("worker.proto", "  STOP_MODE_KILL = 2;", "  reserved 2;"), [])

    def test_methods_stay_with_their_messages_and_streams(self):
        with_stream = "rpc Connect(stream ConnectRequest) returns (stream ConnectResponse)"
        self.broken("worker.proto", with_stream, with_stream.replace("(stream ConnectRequest", "(ConnectRequest"),
                    "method trainyard.v1.WorkerService.Connect", "workers")
        self.broken("worker.proto", with_stream, with_stream.replace("rpc Connect", "rpc Link"), "is gone", "keep the method")
        self.broken("worker.proto", with_stream, with_stream.replace("returns (stream ConnectResponse", "returns (stream Registered"),
                    "became stream trainyard.v1.ConnectRequest -> stream trainyard.v1.Registered")


if __name__ == "__main__":
    unittest.main()
