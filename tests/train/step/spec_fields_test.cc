// Proves that every field of a job spec that should change training does, and that others keep its
// bits. The list of fields is that of proto/trainyard/v1/job_spec.proto: a new one fails this test
// until it is named here. That each change is the right one, tests/e2e/golden_test.cc shows.
//
// Bug it must catch: a setting that is parsed, told and never used.

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "absl/strings/str_replace.h"
#include "common/rng.h"
#include "tests/families/family_case.h"
#include "tests/train/step/run_job.h"
#include "train/config/parse.h"
#include "train/config/validate.h"

namespace trainyard::testing {
namespace {

using Json = nlohmann::json;

constexpr char kLlama[] = R"({
  "name": "fields", "precision": "F64", "steps": 3, "seed": 3,
  "model": {"architecture": {"family": "llama", "layers": 2, "hidden": 16, "ffn": 24, "heads": 4,
            "kv_heads": 2, "head_dim": 4, "vocab": 256, "max_seq": 16, "norm_eps": 1e-5,
            "rope_base": 10000, "tied": false}},
  "batch": {"global": 4, "micro": 2, "sequence": 12},
  "data": {"text": {"path": "TEXT", "validation_fraction": 0.25}},
  "optimizer": {"adamw": {"learning_rate": 0.01, "epsilon": 1e-4, "weight_decay": 0.1},
                "schedule": {"cosine": {"warmup_steps": 1, "min_ratio": 0.1}}, "clip_norm": 0.2},
  "checkpoint": {"directory": "RUNS"}})";

// The same model with experts.
constexpr char kExperts[] = R"({"experts": 6, "top_k": 2, "expert_ffn": 12, "shared_experts": 1,
  "shared_ffn": 8, "router": "SOFTMAX", "expert_bias": false, "aux_loss": 0.1, "groups": 1,
  "topk_groups": 1, "norm_topk": true, "routed_scaling": 1})";

struct Change {
  std::string path;   // Of a field, by JSON pointer.
  std::string value;  // JSON.
};

const Change kChanges[] = {
    {"/precision", "\"F32\""},
    {"/steps", "4"},
    {"/seed", "4"},
    {"/init_from", "\"OTHER\""},
    {"/frozen", "[\"*.mlp.*\"]"},
    {"/trainable", "[\"*.mlp.*\"]"},
    {"/model/preset", "\"gpt2-124m\""},  // With all sizes overridden: another family.
    {"/model/overrides", "null"},        // The sizes of the line above.
    {"/model/architecture/family", "\"qwen3_moe\""},
    {"/model/architecture/layers", "1"},
    {"/model/architecture/hidden", "20"},
    {"/model/architecture/ffn", "28"},
    {"/model/architecture/heads", "2"},
    {"/model/architecture/kv_heads", "1"},
    {"/model/architecture/head_dim", "6"},
    {"/model/architecture/vocab", "260"},
    {"/model/architecture/norm_eps", "1e-3"},
    {"/model/architecture/rope_base", "500"},
    {"/model/architecture/tied", "true"},
    {"/batch/global", "8"},
    {"/batch/sequence", "10"},
    {"/data/synthetic", "{}"},
    {"/data/text/path", "\"OTHERTEXT\""},
    {"/data/text/validation_fraction", "0.1"},  // More to train on: another order.
    {"/optimizer/adamw/learning_rate", "0.02"},
    {"/optimizer/adamw/beta1", "0.8"},
    {"/optimizer/adamw/beta2", "0.9"},
    {"/optimizer/adamw/epsilon", "1e-3"},
    {"/optimizer/adamw/weight_decay", "0.2"},
    {"/optimizer/schedule/linear", R"({"warmup_steps": 1, "min_ratio": 0.1})"},
    {"/optimizer/schedule/constant", R"({"warmup_steps": 1})"},
    {"/optimizer/schedule/wsd", R"({"warmup_steps": 1, "min_ratio": 0.1, "decay_steps": 2})"},
    {"/optimizer/schedule/cosine/warmup_steps", "2"},
    {"/optimizer/schedule/cosine/min_ratio", "0.5"},
    {"/optimizer/clip_norm", "0.1"},
};

const Change kExpertChanges[] = {
    {"/model/architecture/moe/experts", "8"},
    {"/model/architecture/moe/top_k", "3"},
    {"/model/architecture/moe/expert_ffn", "10"},
    {"/model/architecture/moe/shared_experts", "0"},
    {"/model/architecture/moe/shared_ffn", "10"},
    {"/model/architecture/moe/router", "\"SIGMOID\""},
    {"/model/architecture/moe/expert_bias", "true"},
    {"/model/architecture/moe/aux_loss", "0.2"},
    {"/model/architecture/moe/aux_loss_scope", "\"SEQUENCE\""},
    {"/model/architecture/moe/aux_loss_scope", "\"MODEL\""},
    {"/model/architecture/moe/groups", "3"},  // With one of them to choose from.
    {"/model/architecture/moe/norm_topk", "false"},
    {"/model/architecture/moe/routed_scaling", "2"},
    {"/model/architecture/moe/fake_balanced", "true"},
};

// Changed while the field beside them, which they belong to, is changed as well.
const Change kWsdChanges[] = {
    {"/optimizer/schedule/wsd/warmup_steps", "2"},
    {"/optimizer/schedule/wsd/min_ratio", "0.5"},
    {"/optimizer/schedule/wsd/decay_steps", "1"},
    {"/optimizer/schedule/wsd/decay_style", "\"COSINE\""},
};
const Change kBiasChanges[] = {{"/model/architecture/moe/bias_update_rate", "0.01"}};
// With a wavelength, of 628 tokens, that is stretched in part.
constexpr char kScaling[] = R"({"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
  "original_max_seq": 1024})";
const Change kScalingChanges[] = {
    {"/model/architecture/rope_scaling/factor", "4"},
    {"/model/architecture/rope_scaling/low_freq_factor", "0.9"},
    {"/model/architecture/rope_scaling/high_freq_factor", "3"},
    {"/model/architecture/rope_scaling/original_max_seq", "900"},
};
const Change kLionChanges[] = {{"/optimizer/lion/learning_rate", "0.02"},
                               {"/optimizer/lion/beta1", "0.8"},
                               {"/optimizer/lion/beta2", "0.9"},
                               {"/optimizer/lion/weight_decay", "0.2"}};
const Change kMuonChanges[] = {
    {"/optimizer/muon/learning_rate", "0.02"}, {"/optimizer/muon/momentum", "0.9"},
    {"/optimizer/muon/beta1", "0.8"},          {"/optimizer/muon/beta2", "0.9"},
    {"/optimizer/muon/epsilon", "1e-3"},       {"/optimizer/muon/weight_decay", "0.2"}};
const Change kGroupChanges[] = {{"/model/architecture/moe/topk_groups", "2"}};

// These keep every bit.
const Change kKeeps[] = {
    {"/name", "\"another\""},
    {"/priority", "7"},
    {"/labels", R"({"a": "b"})"},
    {"/max_restarts", "9"},
    {"/deterministic", "false"},  // Of CPU ranks; models_plan_test has a GPU's.
    {"/model/architecture/max_seq", "14"},
    {"/batch/micro", "2"},
    {"/validation/every_steps", "1"},
    {"/validation/batches", "2"},
    {"/checkpoint/every_steps", "1"},
    {"/checkpoint/keep", "5"},
    {"/checkpoint/keep_best", "1"},
    {"/recompute/blocks", "1"},
    {"/recompute/norms_and_activations", "true"},
    {"/optimizer/offload", "true"},  // Of CPU ranks; cuda_offload_test has a GPU's.
};

// What is shown elsewhere, with the test.
const std::set<std::string> kElsewhere = {
    "/validation/generate",        // generated_test
    "/parallelism/schedule_name",  // parse_test
    "/checkpoint/directory",       // attempts_test
    "/data/indexed",               // train_data_test, documents_test
    "/data/arrays",                // the same
    "/data/blend",                 // blend_test
    "/data/chat",                  // train_chat_data_test
    "/data/text/tokenizer",        // one value
    "/data/text/tokenizer_path",   // text_data_test
    "/init_from_subset",           // start_state_test
    "/continues",                  // continued_run_test, e2e_continue_test
    "/model/import",               // import_job_test
    "/model/ignore_keys",          // import_job_test
    "/adapter/lora",               // golden_lora_test
    "/optimizer/adamw/state",      // compact_state_test
    "/preference/method",          // preference_jobs_test
    "/preference/beta",
    "/fp8/first_layers_in_bf16",  // fp8_jobs_test
    "/fp8/last_layers_in_bf16",
    "/devices",  // layouts_test, as all of parallelism: equal up to rounding
    "/parallelism/tensor",
    "/parallelism/pipeline",
    "/parallelism/virtual_pipeline",
    "/parallelism/context",
    "/parallelism/expert",
    "/parallelism/zero",
    "/parallelism/schedule",
    "/parallelism/context_exchange",
    "/parallelism/reduction",
    "/parallelism/expert_split",
    "/profile/directory",
    "/profile/start_step",  // profiler_test
    "/profile/steps",
    "/profile/ranks",
    "/profile/nccl_trace",
};

// Of the fields that a family has of its own, which go through one map.
std::vector<Change> ChangesOf(const FamilyCase& family) {
  std::vector<Change> changes;
  for (const auto& [field, value] : family.fields.changes) {
    changes.push_back(
        {absl::StrCat("/model/architecture/fields/", field), absl::StrCat("\"", value, "\"")});
  }
  return changes;
}

std::string Text(char first) {
  std::string text;
  for (int i = 0; i < 900; ++i)
    text += char(first + RandomBits(uint64_t(first), 1, uint64_t(i)) % 9);
  return text;
}

class SpecFields : public ::testing::Test {
 protected:
  SpecFields() {
    EXPECT_TRUE(MakeDirectories(root_).ok());
    EXPECT_TRUE(WriteFileAtomic(root_ + "/text", Text('a')).ok());
    EXPECT_TRUE(WriteFileAtomic(root_ + "/other_text", Text('k')).ok());
  }

  Json Parsed(const std::string& text) const {
    return Json::parse(absl::StrReplaceAll(text, {{"OTHERTEXT", root_ + "/other_text"},
                                                  {"TEXT", root_ + "/text"},
                                                  {"RUNS", root_ + "/runs"},
                                                  {"OTHER", root_ + "/other"}}));
  }
  Json Llama() const { return Parsed(kLlama); }
  Json Experts() const {
    Json spec = Llama();
    spec["model"]["architecture"]["family"] = "qwen3_moe";
    spec["model"]["architecture"]["moe"] = Json::parse(kExperts);
    return spec;
  }

  // A model of the family that has all of its own fields.
  Json Of(const FamilyCase& family) const {
    Json spec = Llama();
    Json& model = spec["model"]["architecture"];
    model["family"] = family.name;
    model.merge_patch(Json::parse(family.fields.architecture));
    return spec;
  }

  // What a run is by its bits: the digest of its last checkpoint, and its losses.
  std::string BitsOf(const Json& spec) {
    EXPECT_TRUE(RemoveTree(root_ + "/runs").ok());
    const absl::StatusOr<JobConfig> job = ParseAndValidateJob(spec.dump());
    if (!job.ok()) {
      ADD_FAILURE() << job.status() << "\n" << spec;
      return "";
    }
    const RankRun run = RunJob(*job)[0];
    EXPECT_TRUE(run.status.ok()) << run.status;
    std::string bits = run.status.ok() ? NewestDigest(root_ + "/runs") : "";
    for (const StepRecord& record : run.records) absl::StrAppend(&bits, " ", record.loss);
    return bits;
  }

  Json Changed(Json spec, const Change& change) {
    named_.insert(change.path);
    const std::string path = change.path;
    if (path.starts_with("/data/synthetic")) spec["data"].clear();
    const std::string shape = path.substr(0, path.find('/', path.find("schedule/") + 9));
    if (path.starts_with("/optimizer/schedule/") && !spec.contains(Json::json_pointer(shape))) {
      spec["optimizer"]["schedule"].clear();
    }
    if (path.starts_with("/model/preset") || path.starts_with("/model/overrides")) {
      Json sizes = spec["model"]["architecture"];
      for (const char* others : {"family", "rope_base", "ffn"}) sizes.erase(others);
      sizes["kv_heads"] = 4;
      spec["model"] = {{"preset", "gpt2-124m"}, {"overrides", sizes}};
      return spec;
    }
    if (path == "/model/architecture/family") return Experts();
    if (path.starts_with("/validation") || path.starts_with("/recompute") ||
        path == "/checkpoint/keep_best") {
      spec["validation"]["every_steps"] = 3;
    }
    if (path == "/model/architecture/moe/shared_experts") {
      spec["model"]["architecture"]["moe"].erase("shared_ffn");
    }
    spec[Json::json_pointer(path)] = Parsed(change.value);
    return spec;
  }

  const std::string root_ = FreshDirectory("spec_fields");
  std::set<std::string> named_;
};

TEST_F(SpecFields, ThatShouldChangeTrainingDo) {
  Json other = Llama();
  other["checkpoint"]["directory"] = root_ + "/other";
  other["seed"] = 77;
  ASSERT_TRUE(RunJob(*ParseAndValidateJob(other.dump()))[0].status.ok());

  Json with_bias = Experts(), with_groups = Experts(), with_scaling = Llama(),
       with_wsd = Changed(Llama(), {"/optimizer/schedule/wsd",
                                    R"({"warmup_steps": 1, "min_ratio": 0.1, "decay_steps": 2})"});
  Json with_lion = Llama(), with_muon = Llama();
  with_muon["optimizer"].erase("adamw");
  with_muon["optimizer"]["muon"] = {{"learning_rate", 0.01}, {"epsilon", 1e-4}};
  with_lion["optimizer"].erase("adamw");
  with_lion["optimizer"]["lion"] = {{"learning_rate", 0.01}};
  with_scaling["model"]["architecture"]["rope_scaling"] = Json::parse(kScaling);
  with_wsd["steps"] = 4;
  with_bias["model"]["architecture"]["moe"]["expert_bias"] = true;
  with_groups["model"]["architecture"]["moe"]["groups"] = 3;
  std::vector<std::pair<Json, std::vector<Change>>> bases;
  const auto add = [&](const Json& base, std::span<const Change> changes) {
    bases.emplace_back(base, std::vector<Change>(changes.begin(), changes.end()));
  };
  add(Llama(), kChanges);
  add(Experts(), kExpertChanges);
  add(with_bias, kBiasChanges);
  add(with_groups, kGroupChanges);
  add(with_scaling, kScalingChanges);
  add(with_wsd, kWsdChanges);
  add(with_lion, kLionChanges);
  add(with_muon, kMuonChanges);
  for (const FamilyCase& family : FamilyCases()) {
    if (!family.fields.changes.empty()) add(Of(family), ChangesOf(family));
  }
  for (const auto& [base, changes] : bases) {
    const std::string bits = BitsOf(base);
    ASSERT_EQ(BitsOf(base), bits) << "a run repeats itself";
    for (const Change& change : changes) {
      EXPECT_NE(BitsOf(Changed(base, change)), bits) << change.path << " has no effect";
    }
  }
}

TEST_F(SpecFields, ThatShouldNotKeepEveryBit) {
  const std::string bits = BitsOf(Llama());
  for (const Change& change : kKeeps) {
    EXPECT_EQ(BitsOf(Changed(Llama(), change)), bits) << change.path;
  }
}

// Leaves of a message, as JSON pointers; a field of a type that is no message of the file is one.
using Messages = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;
void AddLeaves(const Messages& messages, const std::string& type, const std::string& path,
               std::set<std::string>& leaves) {
  const auto it = messages.find(type);
  if (it == messages.end() || it->second.empty()) {
    leaves.insert(path);
    return;
  }
  for (const auto& [field, of] : it->second) {
    AddLeaves(messages, of, path + "/" + field, leaves);
  }
}

std::set<std::string> LeavesOfTheSpec() {
  const std::regex message(R"(message (\w+) \{.*)");
  const std::regex field(R"(\s*(?:optional |repeated )?(map<[^>]*>|\w+) (\w+) = \d+(?:;| \[).*)");
  Messages messages;
  for (const char* file : {"adapters.proto", "data.proto", "job_spec.proto", "optimizers.proto"}) {
    std::ifstream proto(std::string(std::getenv("TRAINYARD_SOURCE")) + "/proto/trainyard/v1/" +
                        file);
    EXPECT_TRUE(proto.good());
    std::string now, line;
    for (std::smatch match; std::getline(proto, line);) {
      if (std::regex_match(line, match, message)) {
        now = match[1];
        messages[now];
      } else if (std::regex_match(line, match, field) && !now.empty()) {
        messages[now].emplace_back(match[2], match[1]);
      }
    }
  }
  std::set<std::string> leaves;
  AddLeaves(messages, "JobSpec", "", leaves);
  return leaves;
}

TEST_F(SpecFields, AreAllNamedHere) {
  for (const auto& changes :
       {std::span<const Change>(kChanges), std::span<const Change>(kExpertChanges),
        std::span<const Change>(kBiasChanges), std::span<const Change>(kGroupChanges),
        std::span<const Change>(kScalingChanges), std::span<const Change>(kLionChanges),
        std::span<const Change>(kMuonChanges), std::span<const Change>(kKeeps)}) {
    for (const Change& change : changes) named_.insert(change.path);
  }
  for (const FamilyCase& family : FamilyCases()) {
    for (const Change& change : ChangesOf(family)) named_.insert(change.path);
  }
  named_.insert(kElsewhere.begin(), kElsewhere.end());
  int leaves = 0;
  for (const std::string& leaf : LeavesOfTheSpec()) {
    ++leaves;
    // Overrides have the fields of an architecture, of whose map fields are named; one shape of a
    // schedule, those of another.
    const bool named = std::any_of(named_.begin(), named_.end(), [&](const std::string& name) {
      return leaf == name || leaf.starts_with(name + "/") ||
             (leaf.ends_with("/fields") && name.starts_with(leaf + "/"));
    });
    EXPECT_TRUE(named) << leaf << ": say here whether it changes training";
  }
  EXPECT_GT(leaves, 80);
}

}  // namespace
}  // namespace trainyard::testing
