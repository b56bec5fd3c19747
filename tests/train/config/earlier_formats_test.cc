// Proves that a job which an earlier release resolved and stored means what it meant to that
// release. format_2_jobs.jsonl has a job of each family, as the last revision that wrote format 2
// (8199118) resolved it.

#include "train/config/earlier_formats.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "tests/models/hf/files.h"
#include "train/config/parse.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"
#include "train/data/indexed.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::vector<Json> StoredJobs() {
  std::ifstream file(testing::SourceFile("tests/train/config/format_2_jobs.jsonl"));
  std::vector<Json> jobs;
  for (std::string line; std::getline(file, line);) jobs.push_back(Json::parse(line));
  return jobs;
}

JobConfig Read(const Json& resolved) {
  absl::StatusOr<JobConfig> job = ParseAndValidateJob(resolved.dump());
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : JobConfig();
}

// The fields of a later text that the earlier one lacks. Expects that they agree in all others.
void AddLater(const std::string& path, const Json& earlier, const Json& later,
              std::map<std::string, Json>& added) {
  if (!earlier.is_object() || !later.is_object()) {
    EXPECT_EQ(earlier, later) << path;
    return;
  }
  for (const auto& [name, value] : earlier.items()) EXPECT_TRUE(later.contains(name)) << name;
  for (const auto& [name, value] : later.items()) {
    const std::string field = path.empty() ? name : absl::StrCat(path, ".", name);
    if (field == "format") continue;
    if (!earlier.contains(name)) {
      added[field] = value;
    } else {
      AddLater(field, earlier.at(name), value, added);
    }
  }
}

// Bug it must catch: the next release's defaults decide what a job trains that was checked before.
TEST(EarlierFormats, AJobOfFormat2MeansWhatItMeant) {
  const std::string model = "model.architecture.";
  std::set<std::string> families;
  for (const Json& stored : StoredJobs()) {
    ASSERT_EQ(stored.at("format"), 2);
    const std::string family = stored.at("model").at("architecture").at("family");
    SCOPED_TRACE(family);
    families.insert(family);
    const Json now = Json::parse(ResolvedJobText(Read(stored)));
    std::map<std::string, Json> added,
        wanted = {{"model.import", ""},   {"model.ignore_keys", Json::array()},
                  {"continues", nullptr}, {"adapter", nullptr},
                  {"fp8", nullptr},       {"preference", nullptr}};
    AddLater("", stored, now, added);
    if (family != "dit") {
      for (const char* name :
           {"vocab_multiple", "padding_token", "attention_dropout", "hidden_dropout"}) {
        wanted[model + name] = nullptr;
      }
    }
    if (!stored.at("checkpoint").is_null()) wanted["checkpoint.keep_best"] = 0;
    if (!stored.at("validation").is_null()) wanted["validation.generate"] = nullptr;
    if (stored.at("data").contains("indexed")) wanted["data.indexed.eod_mask_loss"] = false;
    if (stored.at("data").contains("text")) wanted["data.text.tokenizer_path"] = "";
    if (stored.at("data").contains("synthetic")) wanted["data.synthetic.document_tokens"] = 0;
    if (stored.at("model").at("architecture").contains("moe")) {
      wanted[model + "moe.aux_loss_scope"] = "BATCH";
    }
    if (stored.at("optimizer").contains("adamw")) wanted["optimizer.adamw.state"] = "F32";
    wanted["optimizer.offload"] = false;
    EXPECT_EQ(added, wanted);
  }
  EXPECT_EQ(families.size(), 11u);
}

// Also the balancing loss that was taken from a directory then: gpt-oss had 0.9.
TEST(EarlierFormats, AJobOfFormat3MeansWhatItMeant) {
  for (const Json& stored : StoredJobs()) {
    Json job = Json::parse(ResolvedJobText(Read(stored)));
    Json& model = job.at("model");
    model["import"] = "weights/a";
    if (model.at("architecture").contains("moe")) model["architecture"]["moe"]["aux_loss"] = 0.9;
    const Json now = job;
    job["format"] = 3;
    model.erase("ignore_keys");
    job.erase("continues");
    EXPECT_EQ(Json::parse(ResolvedJobText(Read(job))), now);
  }
}

// The first revisions that wrote format 2 had no packed documents.
TEST(EarlierFormats, WithoutTheFieldDocumentsAreNotPacked) {
  for (Json stored : StoredJobs()) {
    if (!stored.at("data").contains("indexed")) continue;
    EXPECT_TRUE(Read(stored).data.As<IndexedData>().reset_attention_mask);
    stored["data"]["indexed"].erase("reset_attention_mask");
    EXPECT_FALSE(Read(stored).data.As<IndexedData>().reset_attention_mask);
    return;
  }
  FAIL() << "no job with indexed data";
}

// No release has written a format with the field when it came.
TEST(EarlierFormats, WithoutTheFieldAllTargetsAreCounted) {
  for (const Json& stored : StoredJobs()) {
    if (!stored.at("data").contains("indexed")) continue;
    EXPECT_FALSE(stored.at("data").at("indexed").contains("eod_mask_loss"));
    EXPECT_FALSE(Read(stored).data.As<IndexedData>().eod_mask_loss);
    return;
  }
  FAIL() << "no job with indexed data";
}

TEST(EarlierFormats, OtherFieldsMustBeThereAndOtherFormatsAreRefused) {
  Json job = StoredJobs().at(0);
  job.erase("seed");
  EXPECT_THAT(std::string(ParseJobConfig(job.dump()).status().message()), HasSubstr("seed"));
  job = StoredJobs().at(0);
  for (const int64_t format : {kOldestResolvedJobFormat - 1, kResolvedJobFormat + 1}) {
    job["format"] = format;
    EXPECT_THAT(std::string(ParseJobConfig(job.dump()).status().message()),
                HasSubstr(absl::StrCat("format ", format)));
  }
  job["format"] = kResolvedJobFormat;  // In which a missing field was lost.
  EXPECT_THAT(std::string(ParseJobConfig(job.dump()).status().message()), HasSubstr("import"));
}

}  // namespace
}  // namespace trainyard
