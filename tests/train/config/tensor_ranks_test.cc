// Proves which numbers of tensor ranks may hold a model together without a job: those that training
// could take, with as much padding of the vocabulary as they need.

#include "gmock/gmock.h"
#include "models/arch/registry.h"
#include "train/config/mesh.h"
#include "train/config/validate_layout.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig Llama(int64_t heads, int64_t kv_heads, int64_t vocab) {
  ModelConfig model = FindFamily("llama")->defaults;
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, int64_t>>{{"layers", 2},
                                                    {"hidden", 16},
                                                    {"ffn", 24},
                                                    {"heads", heads},
                                                    {"kv_heads", kv_heads},
                                                    {"head_dim", 4},
                                                    {"vocab", vocab},
                                                    {"max_seq", 16}}) {
    SetField(model, field, value);
  }
  return model;
}

int64_t VocabMultiple(const ModelConfig& model) {
  for (const Field& field : FieldsOf(model)) {
    if (std::string(field.rule.name) == "vocab_multiple") return std::get<int64_t>(field.value);
  }
  return 0;
}

TEST(DividedOverTensorRanks, PadsTheVocabulary) {
  EXPECT_EQ(*DividedOverTensorRanks(Llama(4, 2, 256), 4), Llama(4, 2, 256));
  const auto padded = DividedOverTensorRanks(Llama(4, 2, 257), 2);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_EQ(VocabMultiple(*padded), 2);
}

TEST(DividedOverTensorRanks, NamesTheNearestNumber) {
  EXPECT_THAT(std::string(DividedOverTensorRanks(Llama(4, 2, 256), 3).status().message()),
              AllOf(HasSubstr("tensor: wanted a number that divides ffn = 24, heads = 4"),
                    HasSubstr("kv_heads = 2"), HasSubstr("found 3; nearest 2")));
  EXPECT_THAT(std::string(DividedOverTensorRanks(Llama(4, 2, 256), 64).status().message()),
              HasSubstr("found 64; nearest 4"));
  ModelConfig experts = FindFamily("mixtral")->defaults;
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, int64_t>>{{"layers", 2},
                                                    {"hidden", 16},
                                                    {"heads", 4},
                                                    {"kv_heads", 4},
                                                    {"head_dim", 4},
                                                    {"vocab", 256},
                                                    {"max_seq", 16},
                                                    {"moe.experts", 6},
                                                    {"moe.top_k", 2},
                                                    {"moe.expert_ffn", 8}}) {
    SetField(experts, field, value);
  }
  EXPECT_TRUE(DividedOverTensorRanks(experts, 2).ok());
  EXPECT_THAT(std::string(DividedOverTensorRanks(experts, 4).status().message()),
              AllOf(HasSubstr("divides experts = 6"), HasSubstr("found 4; nearest 2")));
}

TEST(MeshOfTensorRanks, SharesKeyValueHeads) {
  EXPECT_EQ(MeshOfTensorRanks(4, Llama(4, 2, 256)).kv_replicas, 2);
  EXPECT_EQ(MeshOfTensorRanks(2, Llama(4, 2, 256)).kv_replicas, 1);
}

}  // namespace
}  // namespace trainyard
