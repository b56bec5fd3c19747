// Declares each field of a job and of its reports once. The store writes and reads the fields as
// JSON (job_codec.cc). The API sends and receives some of them as messages
// (controller/service/convert_job.cc). A field has its name of job.proto, if job.proto has the
// field.

#pragma once

#include "common/worker_fields.h"
#include "controller/jobs/job.h"
#include "controller/jobs/step_record.h"

namespace trainyard::controller {

void VisitFields(auto& v, JobFacts& f) {
  v("name", f.name), v("model", f.model), v("precision", f.precision);
  v("ranks", f.ranks);
  ForEachAxis(f, [&](const JobAxis& axis, auto& size) { v(axis.name, size); });
  v("global_batch", f.global_batch), v("micro_batch", f.micro_batch), v("sequence", f.sequence);
  v("priority", f.priority), v("steps", f.steps), v("max_restarts", f.max_restarts);
  v("cpu_only", f.cpu_only), v("checkpoint_directory", f.checkpoint_directory);
  v.Seldom("checkpoint_every_steps", f.checkpoint_every_steps);
  v("namespace", f.name_space), v("submitter", f.submitter), v("roots", f.roots);
  v.Seldom("paths", f.paths);  // Absent: a waiting job is bound to the roots of its submission.
  v.Seldom("continues", f.continues), v.Seldom("continues_epoch", f.continues_epoch);
}

void VisitFields(auto& v, Rank& rank) {
  v("worker", rank.worker_id), v("host", rank.hostname), v("device", rank.device);
  v("phase", rank.phase), v("cause", rank.cause);
}

void VisitFields(auto& v, Progress& p) {
  v("step", p.step), v("furthest_step", p.furthest_step);
  // Rows of jobs are short, so they have only the numbers that the API shows of a job. After a
  // start, the book takes all numbers from the row of the step.
  std::optional<double> loss = p.loss(), mfu = p.mfu();
  v.ZeroIfAbsent("loss", loss), v("mfu", mfu);
  if constexpr (std::remove_reference_t<decltype(v)>::kReads) {
    if (loss || mfu) p.numbers = StepNumbers{.loss = loss.value_or(0), .mfu = mfu};
  }
  v("tokens_per_second", p.tokens_per_second), v("seconds_per_step", p.seconds_per_step);
  v("validation_loss", p.validation_loss), v.Seldom("peak_flops", p.peak_flops);
}

void VisitFields(auto& v, Checkpoint& c) {
  v("step", c.step), v("epoch", c.epoch), v("path", c.path), v("size_bytes", c.size_bytes);
  v("create_time", c.create_time);
}

void VisitFields(auto& v, BatchFrom& b) { v.Pair("step", b.step, "tokens", b.tokens); }

void VisitFields(auto& v, Resume& resume) { v.Pair("epoch", resume.epoch, "step", resume.step); }

void VisitFields(auto& v, Job& job) {
  v("state", job.state), v("state_reason", job.state_reason), v("revision", job.revision);
  v("epoch", job.epoch), v("restarts", job.restarts);
  v("restarts_without_progress", job.restarts_without_progress);
  v("furthest_checkpoint", job.furthest_checkpoint);
  v("create_time", job.create_time), v("start_time", job.start_time);
  v("finish_time", job.finish_time), v("ranks", job.ranks), v("progress", job.progress);
  v("checkpoints", job.checkpoints), v("resumed_step", job.resumed_step);
  v("stop_mode", job.stop_mode), v("outcome", job.outcome), v("culprit", job.culprit);
  v("attempt_end_time", job.attempt_end_time);
  v.Later("resumes", job.resumes), v.Later("claimed", job.claimed);
  v.Seldom("happened", job.happened), v.Seldom("consequence", job.consequence);
  v.Later("epoch_floor", job.epoch_floor), v.Later("storage_faults", job.storage_faults);
  v.Later("strikes", job.strikes), v.Seldom("earlier_workers", job.earlier_workers);
  v.Seldom("continued_by", job.continued_by);
  v.Seldom("earlier_batches", job.earlier_batches);
  v("best_checkpoint", job.best_checkpoint);
  v.Version(1);
}

void VisitFields(auto& v, JobStep& step) {
  VisitStepMessage(v, step), v("finish_time", step.finish_time);
}

void VisitFields(auto& v, EventRecord& event) {
  v("time", event.time), v("type", event.type), v("epoch", event.epoch);
  v("message", event.message);
}

}  // namespace trainyard::controller
