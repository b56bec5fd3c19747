#include "controller/jobs/job_codec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "controller/jobs/job_fields.h"

namespace trainyard::controller {

namespace {

using Json = nlohmann::json;

template <typename T>
std::string Encode(const T& value) {
  Json json;
  WriteFields(json, value);
  return JsonText(json);
}

absl::Status Damaged(absl::string_view how) {
  return absl::DataLossError(absl::StrCat("stored job: ", how));
}

template <typename T>
absl::StatusOr<T> Decode(const Json& json) {
  if (json.is_discarded()) return Damaged("not JSON");
  T value;
  const absl::Status read = ReadFields(json, value);
  if (!read.ok()) return Damaged(read.message());
  return value;
}

}  // namespace

std::string EncodeFacts(const JobFacts& facts) { return Encode(facts); }

absl::StatusOr<JobFacts> DecodeFacts(const std::string& text) {
  return Decode<JobFacts>(ParseJson<Json>(text));
}

std::string EncodeJob(const Job& job) { return Encode(job); }

absl::StatusOr<Job> DecodeJob(const std::string& text) {
  const Json json = ParseJson<Json>(text);
  ASSIGN_OR_RETURN(Job job, Decode<Job>(json));
  // The first releases stored none of these, and later ones all.
  const auto later = {"resumes", "claimed", "epoch_floor", "storage_faults", "strikes"};
  const int64_t stored = std::count_if(later.begin(), later.end(),
                                       [&](const char* name) { return json.contains(name); });
  if (stored == 0) job.claimed = job.furthest_checkpoint > 0;
  if (stored != 0 && stored != int64_t(later.size())) {
    return Damaged("what is known of earlier attempts is not whole");
  }
  // Earlier releases stored no parts, or the consequence alone.
  if (job.happened.empty()) {
    absl::string_view happened = job.state_reason;
    const bool ends_with_it = absl::ConsumeSuffix(&happened, job.consequence);
    job.Explain(std::string(happened), ends_with_it ? job.consequence : "");
  }
  return job;
}

}  // namespace trainyard::controller
