#include "controller/jobs/job_codec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "controller/jobs/job_fields.h"

namespace trainyard::controller {

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::DataLossError("stored job: not JSON");
  return json;
}

template <typename T>
absl::Status Read(const Json& json, T& value) {
  const absl::Status status = ReadFields(json, value);
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat("stored job: ", status.message()));
}

}  // namespace

std::string EncodeFacts(const JobFacts& facts) {
  Json json;
  WriteFields(json, facts);
  return Text(json);
}

absl::StatusOr<JobFacts> DecodeFacts(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  JobFacts facts;
  RETURN_IF_ERROR(Read(json, facts));
  return facts;
}

std::string EncodeJob(const Job& job) {
  Json json;
  json["version"] = kVersion;
  WriteFields(json, job);
  return Text(json);
}

absl::StatusOr<Job> DecodeJob(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  Job job;
  RETURN_IF_ERROR(Read(json, job));
  // The first releases stored none of these, and later ones all.
  const auto later = {"resumes", "claimed", "epoch_floor", "storage_faults", "strikes"};
  const auto stored = std::count_if(later.begin(), later.end(),
                                    [&](const char* name) { return json.contains(name); });
  if (stored == 0) job.claimed = job.furthest_checkpoint > 0;
  if (stored != 0 && size_t(stored) != later.size()) {
    return absl::DataLossError("stored job: what is known of earlier attempts is not whole");
  }
  if (!absl::EndsWith(job.state_reason, job.consequence)) {
    return absl::DataLossError("stored job: its state_reason does not end with its consequence");
  }
  if (const auto version = json.find("version"); version == json.end() || *version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("stored job: wanted version ", kVersion, ", found ",
                     version == json.end() ? "none" : version->dump().substr(0, 20)));
  }
  return job;
}

}  // namespace trainyard::controller
