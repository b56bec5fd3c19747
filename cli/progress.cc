#include "cli/progress.h"

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/message_json.h"
#include "common/json.h"

namespace trainyard::cli {
namespace {

constexpr absl::Duration kLineEvery = absl::Seconds(2);

std::string StateLine(const v1::Job& job) {
  std::string line = absl::StrCat(job.id(), " ", ShortState(job.state()));
  if (job.has_finish_time() && job.has_start_time()) {
    const absl::Duration took = ToTime(job.finish_time()) - ToTime(job.start_time());
    absl::StrAppend(&line, " (", FormatSeconds(absl::ToDoubleSeconds(took)), ")");
  }
  // Why a job stops is printed once, after it has stopped.
  if (!job.state_reason().empty() && job.state() != v1::JOB_STATE_STOPPING) {
    absl::StrAppend(&line, ": ", job.state_reason());
  }
  return line;
}

std::string LowPeak(const v1::Progress& progress) {
  const double peak = progress.peak_flops();
  return absl::StrCat("the devices' peak",
                      peak > 0 ? absl::StrCat(" of ", FormatCount(peak), " FLOP/s") : "",
                      " is too low");
}

std::string WhatTheStepIs(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_RECOVERING) {
    return absl::StrCat("reached by attempt ", job.epoch(), ", which has ended");
  }
  if (job.has_resumed_step()) return absl::StrCat("where attempt ", job.epoch(), " goes on");
  return absl::StrCat("reached before attempt ", job.epoch());
}

// Returns "attempt 2 goes on after step 40; steps 41 to 57 are trained again".
std::string AttemptLine(const v1::Job& job) {
  const uint64_t after = job.resumed_step(), furthest = job.progress().furthest_step();
  std::string line = absl::StrCat(
      "attempt ", job.epoch(),
      after == 0 ? " begins again at step 1" : absl::StrCat(" goes on after step ", after));
  if (furthest == after + 1) absl::StrAppend(&line, "; step ", furthest, " is trained again");
  if (furthest > after + 1) {
    absl::StrAppend(&line, "; steps ", after + 1, " to ", furthest, " are trained again");
  }
  return line;
}

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string ShortState(v1::JobState state) { return ShortName(state, "JOB_STATE_"); }

bool WaitsForAttempt(v1::JobState state) {
  return state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RECOVERING;
}

std::string ProgressLine(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  std::string line = absl::StrCat("step ", progress.step(), "/", progress.total_steps());
  if (progress.step() == 0) return line;
  if (progress.has_loss()) absl::StrAppend(&line, "  loss ", FormatNumber(progress.loss(), 4));
  if (progress.has_validation_loss()) {
    absl::StrAppend(&line, "  val ", FormatNumber(progress.validation_loss(), 4));
  }
  if (WaitsForAttempt(job.state())) return absl::StrCat(line, "  ", WhatTheStepIs(job));
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&line, "  ", FormatCount(progress.tokens_per_second()), " tok/s");
  }
  if (progress.has_mfu()) absl::StrAppend(&line, "  MFU ", FormatPercent(progress.mfu()));
  if (progress.mfu() > 1) absl::StrAppend(&line, " (", LowPeak(progress), ")");
  if (progress.step() < progress.total_steps() && progress.eta_seconds() > 0) {
    absl::StrAppend(&line, "  ETA ", FormatSeconds(progress.eta_seconds()));
  }
  return line;
}

absl::Status Outcome(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return absl::OkStatus();
  return OutcomeError(absl::StrCat("job ", StateLine(job)));
}

void ProgressPrinter::Show(const v1::Job& job) {
  if (output_.quiet()) return;
  if (output_.format() != Format::kTable) {
    output_.Text(output_.format() == Format::kJson ? ProtobufJson(job)
                                                   : JsonText(PlainJson(job)) + "\n");
    return;
  }
  const std::string state = StateLine(job);
  const bool changed = state != last_state_;
  last_state_ = state;
  if (IsTerminal(job.state())) {
    ShowEnd(job);
  } else {
    if (changed) output_.Line(state);
    ShowAttempt(job);
    ShowProgress(job);
  }
}

void ProgressPrinter::ShowAttempt(const v1::Job& job) {
  const bool said = job.has_resumed_step();
  // What was said before this program began to watch is no news.
  if (!attempt_) attempt_ = said ? job.epoch() : 0;
  if (!said || job.epoch() == *attempt_) return;
  attempt_ = job.epoch();
  if (job.restarts() > 0) output_.Line(AttemptLine(job));
}

void ProgressPrinter::ShowProgress(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.step() == 0 || progress.step() == shown_step_) return;
  if (job.state() == v1::JOB_STATE_STARTING) return;  // The step is that of another attempt.
  const absl::Duration now = clock_.Monotonic();
  if (output_.terminal().live) {
    output_.LiveLine(ProgressLine(job));
  } else if (now - last_line_ >= kLineEvery) {
    output_.Line(ProgressLine(job));
    last_line_ = now;
  } else {
    return;
  }
  shown_step_ = progress.step();
}

std::string BestText(const v1::Job& job) {
  if (!job.has_best_checkpoint()) return "";
  const v1::BestCheckpoint& best = job.best_checkpoint();
  std::string path;  // Stays empty if the job lists newer checkpoints alone.
  for (const v1::Checkpoint& one : job.checkpoints()) {
    if (one.step() == best.step() && one.epoch() == best.epoch()) path = one.path();
  }
  const std::string words = absl::StrCat("step ", best.step(), ", validation loss ",
                                         FormatNumber(best.validation_loss(), 6));
  return path.empty() ? words : absl::StrCat(path, " (", words, ")");
}

void ProgressPrinter::ShowEnd(const v1::Job& job) {
  if (job.progress().step() != 0 && job.progress().step() != shown_step_) {
    output_.Line(ProgressLine(job));
  }
  if (job.state() == v1::JOB_STATE_SUCCEEDED) output_.Line(StateLine(job));
  if (job.checkpoints_size() != 0) {
    output_.Line(absl::StrCat("checkpoint ", job.checkpoints(job.checkpoints_size() - 1).path()));
  }
  if (job.has_best_checkpoint()) output_.Line(absl::StrCat("best ", BestText(job)));
}

}  // namespace trainyard::cli
