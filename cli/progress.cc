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

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string ShortState(v1::JobState state) { return ShortName(state, "JOB_STATE_"); }

std::string ProgressLine(const v1::Progress& progress) {
  std::string line = absl::StrCat("step ", progress.step(), "/", progress.total_steps());
  if (progress.step() == 0) return line;
  if (progress.has_loss()) absl::StrAppend(&line, "  loss ", FormatNumber(progress.loss(), 4));
  if (progress.has_validation_loss()) {
    absl::StrAppend(&line, "  val ", FormatNumber(progress.validation_loss(), 4));
  }
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&line, "  ", FormatCount(progress.tokens_per_second()), " tok/s");
  }
  if (progress.has_mfu()) absl::StrAppend(&line, "  MFU ", FormatPercent(progress.mfu()));
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
    ShowProgress(job);
  }
}

void ProgressPrinter::ShowProgress(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.step() == 0 || progress.step() == shown_step_) return;
  const absl::Duration now = clock_.Monotonic();
  if (output_.terminal().live) {
    output_.LiveLine(ProgressLine(progress));
  } else if (now - last_line_ >= kLineEvery) {
    output_.Line(ProgressLine(progress));
    last_line_ = now;
  } else {
    return;
  }
  shown_step_ = progress.step();
}

void ProgressPrinter::ShowEnd(const v1::Job& job) {
  if (job.progress().step() != 0 && job.progress().step() != shown_step_) {
    output_.Line(ProgressLine(job.progress()));
  }
  if (job.state() == v1::JOB_STATE_SUCCEEDED) output_.Line(StateLine(job));
  if (job.checkpoints_size() != 0) {
    output_.Line(absl::StrCat("checkpoint ", job.checkpoints(job.checkpoints_size() - 1).path()));
  }
}

}  // namespace trainyard::cli
