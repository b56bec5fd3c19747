// Proves that the controller knows each path of a spec by its field. The roots of workers and of
// namespaces hold only for the paths that are known.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <functional>
#include <string>
#include <vector>

#include "controller/service/convert_job.h"
#include "train/config/declared_values.h"
#include "train/config/message_node.h"
#include "train/config/parse.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

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

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Calls use(path) once for each text below `message`, a part of `spec`, while it is the only text
// that the spec has.
void ForEachText(v1::JobSpec& spec, Message& message, const std::string& path,
                 const std::function<void(const std::string&)>& use) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string name = path + field.name();
    if (field.is_map()) continue;
    if (field.message_type() != nullptr) {
      Message& inner = field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                           : *reflection.MutableMessage(&message, &field);
      ForEachText(spec, inner, name + (field.is_repeated() ? "[0]." : "."), use);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      field.is_repeated() ? reflection.AddString(&message, &field, "here")
                          : reflection.SetString(&message, &field, "here");
      use(name);
    }
    reflection.ClearField(&message, &field);
  }
}

// Bug it must catch: a new field of the spec with a path that is open to everybody, because nobody
// told the controller that the field is a path.
TEST(SpecPaths, EachTextOfASpecIsAPathOrKnownToBeNone) {
  std::vector<std::string> paths, others;
  v1::JobSpec spec;
  ForEachText(spec, spec, "", [&](const std::string& field) {
    Violations violations;
    const YamlNode node = NodeOf(spec, violations);
    EXPECT_TRUE(violations.empty()) << violations.ToStatus();
    const JobConfig job = ParseSpec(node, violations);  // Much of the spec is missing.
    bool is_path = false;
    for (const SpecPath& path : PathsOf(job)) {
      is_path = is_path || (path.field == field && path.path == "here");
    }
    (is_path ? paths : others).push_back(field);
  });
  EXPECT_THAT(paths, UnorderedElementsAre(
                         "data.text.path", "data.text.tokenizer_path", "data.indexed.prefix",
                         "data.blend.datasets[0].path", "data.blend.datasets[0].prefix",
                         "data.arrays.labels", "data.arrays.latents", "data.chat.path",
                         "data.chat.tokenizer", "init_from", "checkpoint.directory",
                         "profile.directory", "model.import", "validation.generate.tokenizer"));
  EXPECT_THAT(others, UnorderedElementsAre(
                          "adapter.lora.modules_to_save", "adapter.lora.targets", "continues.allow",
                          "continues.job", "data.chat.date", "data.chat.format", "frozen",
                          "model.architecture.family", "model.ignore_keys",
                          "model.overrides.family", "model.preset", "name",
                          "parallelism.schedule_name", "trainable", "validation.generate.prompts"));
}

}  // namespace
}  // namespace trainyard::controller
