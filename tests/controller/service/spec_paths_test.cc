// Proves that the controller knows each path of a spec by its field. The roots of workers and of
// namespaces hold only for the paths that are known.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "controller/service/convert_job.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SpecPaths, OfArraysAndOfEverythingBesideTheDataAreKnown) {
  v1::JobSpec spec;
  spec.set_name("dit");
  spec.mutable_model()->set_preset("dit-s-2");
  spec.mutable_batch()->set_global(4);
  spec.mutable_batch()->set_micro(4);
  spec.mutable_batch()->set_sequence(256);
  spec.mutable_data()->mutable_arrays()->set_latents("a/latents.npy");
  spec.mutable_data()->mutable_arrays()->set_labels("b/labels.npy");
  spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-4);
  spec.set_steps(10);
  spec.mutable_checkpoint()->set_directory("runs/a");
  spec.mutable_checkpoint()->set_every_steps(5);
  spec.set_init_from("runs/b");
  spec.mutable_profile()->set_directory("traces");
  spec.mutable_profile()->set_start_step(2);
  const auto read = FromProto(spec);
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<std::string> found;
  for (const SpecPath& path : (*read)->facts.paths) found.push_back(path.field + "=" + path.path);
  EXPECT_THAT(found, ElementsAre("data.arrays.latents=a/latents.npy",
                                 "data.arrays.labels=b/labels.npy", "checkpoint.directory=runs/a",
                                 "profile.directory=traces", "init_from=runs/b"));
}

TEST(SpecPaths, OfAnImportIsKnown) {
  v1::JobSpec spec;
  spec.set_name("imported");
  v1::Architecture& model = *spec.mutable_model()->mutable_architecture();
  model.set_family("llama");
  model.set_layers(2);
  model.set_hidden(32);
  model.set_ffn(64);
  model.set_heads(4);
  model.set_vocab(256);
  spec.mutable_model()->set_import("weights/model");
  spec.mutable_batch()->set_global(4);
  spec.mutable_batch()->set_micro(4);
  spec.mutable_batch()->set_sequence(64);
  spec.mutable_data()->mutable_synthetic();
  spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-4);
  spec.set_steps(10);
  const auto read = FromProto(spec);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ((*read)->facts.paths.size(), 1u);
  EXPECT_EQ((*read)->facts.paths[0].field, "model.import");
  EXPECT_EQ((*read)->facts.paths[0].path, "weights/model");
}

v1::JobSpec Blended() {
  v1::JobSpec spec;
  spec.set_name("blend");
  spec.mutable_model()->set_preset("gpt2-124m");
  spec.mutable_batch()->set_global(4);
  spec.mutable_batch()->set_micro(4);
  spec.mutable_batch()->set_sequence(256);
  for (const char* prefix : {"a/web", "b/code"}) {
    v1::BlendedDataset& dataset = *spec.mutable_data()->mutable_blend()->add_datasets();
    dataset.set_weight(1);
    dataset.set_prefix(prefix);
  }
  spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-4);
  spec.set_steps(10);
  return spec;
}

TEST(SpecPaths, OfEveryDatasetOfABlendAreKnown) {
  const auto read = FromProto(Blended());
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<std::string> found;
  for (const SpecPath& path : (*read)->facts.paths) found.push_back(path.field + "=" + path.path);
  EXPECT_THAT(found, ElementsAre("data.blend.datasets[0].prefix=a/web",
                                 "data.blend.datasets[1].prefix=b/code"));
}

// A tokenizer that is not named is that of the imported model.
TEST(SpecPaths, OfChatsAreKnown) {
  v1::JobSpec spec = Blended();
  v1::ChatData& chat = *spec.mutable_data()->mutable_chat();
  chat.set_path("a/chats.jsonl");
  chat.set_tokenizer("b/tokenizer.json");
  const auto read = FromProto(spec);
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<std::string> found;
  for (const SpecPath& path : (*read)->facts.paths) found.push_back(path.field + "=" + path.path);
  EXPECT_THAT(found,
              ElementsAre("data.chat.path=a/chats.jsonl", "data.chat.tokenizer=b/tokenizer.json"));
}

// Catches a search for unknown fields that stops at lists.
TEST(SpecPaths, AFieldOfADatasetThatTheControllerDoesNotKnowIsRefused) {
  v1::JobSpec spec = Blended();
  v1::BlendedDataset& second = *spec.mutable_data()->mutable_blend()->mutable_datasets(1);
  second.GetReflection()->MutableUnknownFields(&second)->AddVarint(99, 1);
  EXPECT_THAT(
      std::string(FromProto(spec).status().message()),
      HasSubstr("data.blend.datasets[1].#99: wanted a field of JobSpec, found a field that "));
}

void FindTexts(const google::protobuf::Descriptor& message, const std::string& path,
               std::set<std::string>& texts) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const std::string name = path + field.name();
    if (field.is_map()) continue;
    if (field.cpp_type() == field.CPPTYPE_STRING) texts.insert(name);
    if (field.message_type() != nullptr) FindTexts(*field.message_type(), name + ".", texts);
  }
}

// Bug it must catch: a new field of the spec with a path that is open to everybody, because nobody
// told the controller that the field is a path.
TEST(SpecPaths, EachTextOfASpecIsAPathOrKnownToBeNone) {
  std::set<std::string> texts;
  FindTexts(*v1::JobSpec::descriptor(), "", texts);
  const std::set<std::string> paths = {
      "data.text.path",       "data.indexed.prefix",        "data.blend.datasets.path",
      "data.arrays.labels",   "data.blend.datasets.prefix", "data.arrays.latents",
      "data.chat.path",       "data.chat.tokenizer",        "init_from",
      "checkpoint.directory", "profile.directory",          "model.import",
  };
  std::set<std::string> others;
  std::set_difference(texts.begin(), texts.end(), paths.begin(), paths.end(),
                      std::inserter(others, others.end()));
  EXPECT_THAT(others, ElementsAre("adapter.lora.modules_to_save", "adapter.lora.targets",
                                  "continues.allow", "continues.job", "data.chat.date",
                                  "data.chat.format", "frozen", "model.architecture.family",
                                  "model.ignore_keys", "model.overrides.family", "model.preset",
                                  "name", "parallelism.schedule_name", "trainable"));
}

}  // namespace
}  // namespace trainyard::controller
