// Proves that a spec which comes as a message is read as the same spec in YAML: every kind of value
// is carried over, and what the message can say and a spec cannot is refused by name.

#include "train/config/message_node.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/violations.h"
#include "controller/service/convert_job.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

// The tree as a line of text.
std::string Shown(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return node.text;
  std::string text;
  for (const YamlNode& item : node.items) absl::StrAppend(&text, Shown(item), " ");
  for (const auto& [key, value] : node.fields) absl::StrAppend(&text, key, "=", Shown(value), " ");
  return node.kind == YamlNode::Kind::kMapping ? absl::StrCat("{", text, "}")
                                               : absl::StrCat("[", text, "]");
}

v1::JobSpec OfEveryKind() {
  v1::JobSpec spec;
  spec.set_name("a b");
  spec.set_precision(v1::PRECISION_F32);
  spec.set_seed(18446744073709551615u);
  spec.set_priority(-7);
  spec.set_max_restarts(0);
  spec.set_deterministic(false);
  spec.mutable_optimizer()->set_clip_norm(1e-3);
  spec.mutable_data()->mutable_synthetic();
  spec.mutable_profile()->add_ranks(3);
  spec.mutable_profile()->add_ranks(0);
  spec.add_frozen("*norm*");
  (*spec.mutable_labels())["team"] = "x";
  (*spec.mutable_model()->mutable_overrides()->mutable_fields())["window"] = "128";
  return spec;
}

TEST(MessageNode, CarriesEveryKindOfValue) {
  Violations violations;
  EXPECT_EQ(Shown(NodeOf(OfEveryKind(), violations)),
            "{name=a b model={overrides={fields={window=128 } } } precision=PRECISION_F32 "
            "data={synthetic={} } optimizer={clip_norm=0.001 } seed=18446744073709551615 "
            "priority=-7 max_restarts=0 labels={team=x } profile={ranks=[3 0 ] } "
            "deterministic=false frozen=[*norm* ] }");
  EXPECT_TRUE(violations.empty());
}

TEST(MessageNode, TheTreeMakesTheMessageAgain) {
  Violations violations;
  v1::JobSpec again;
  ASSERT_TRUE(FillMessage(NodeOf(OfEveryKind(), violations), again).ok());
  EXPECT_EQ(again.SerializeAsString(), OfEveryKind().SerializeAsString());
}

TEST(MessageNode, AValueThatTheEnumLacksIsNamedByItsNumber) {
  v1::JobSpec spec;
  spec.set_precision(v1::Precision(77));
  std::string found;
  for (const FieldViolation& violation : Violations::FromStatus(FromProto(spec).status())) {
    if (violation.field == "precision") found = violation.Description();
  }
  EXPECT_THAT(found, HasSubstr("FP8_ROWWISE, found \"77\""));
}

// Each of them would be a violation of its own.
TEST(MessageNode, ALongListIsRefusedAsAWhole) {
  v1::JobSpec spec;
  for (int i = 0; i < 30'000; ++i) spec.mutable_profile()->add_ranks(9);
  const std::vector<FieldViolation> list = Violations::FromStatus(FromProto(spec).status());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].ToString(), "spec: wanted at most 20000 values, found 30003");
}

TEST(MessageNode, ANumberThatTheFieldCannotHoldIsNoMessage) {
  v1::JobSpec spec;
  YamlNode devices{.kind = YamlNode::Kind::kMapping};
  devices.fields.push_back({"devices", {.kind = YamlNode::Kind::kScalar, .text = "-1"}});
  EXPECT_THAT(std::string(FillMessage(devices, spec).message()),
              HasSubstr("JobSpec.devices cannot hold \"-1\""));
}

}  // namespace
}  // namespace trainyard::controller
