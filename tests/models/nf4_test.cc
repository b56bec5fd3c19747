// Proves weights in NF4: codes, scales, groups and numbers are to the bit what bitsandbytes makes
// of the same numbers (make_nf4.py), of normal ones and of the worst ones. A program with a base in
// NF4 has 4.127 bits for each number of its linear layers and experts, multiplies by the codes, so
// that no numbers have a place in memory, and counts the model's parameters and FLOPs as without.
#include "models/program/nf4.h"

#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/products/dequantize_nf4.h"
#include "models/hf/safetensors.h"
#include "models/program/op.h"
#include "models/program/plan.h"
#include "tests/models/hf/files.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::vector<T> Read(const std::string& name) {
  static const SafetensorsFile* const file = [] {
    auto opened = SafetensorsFile::Open(SourceFile("tests/golden/nf4/blocks.safetensors"));
    CHECK(opened.ok()) << opened.status();
    return new SafetensorsFile(*std::move(opened));
  }();
  const SafetensorsTensor& tensor = file->tensors().at(name);
  CHECK(SizeOf(tensor.dtype) == sizeof(T)) << name;
  std::vector<T> values(tensor.bytes / sizeof(T));
  CHECK(file->Read(tensor, 0, values.data(), tensor.bytes).ok());
  return values;
}

template <typename T>
void ExpectSameBits(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0) << what << " " << i;
  }
}

class GoldenNf4 : public ::testing::TestWithParam<const char*> {
 protected:
  template <typename T>
  static std::vector<T> Golden(const char* part) {
    return Read<T>(absl::StrCat(GetParam(), ".", part));
  }
};

TEST_P(GoldenNf4, PartsAreThoseOfBitsandbytes) {
  const absl::StatusOr<Nf4Tensor> parts = QuantizeNf4(Golden<float>("numbers"));
  ASSERT_TRUE(parts.ok()) << parts.status();
  ExpectSameBits(parts->codes, Golden<uint8_t>("codes"), "code");
  ExpectSameBits(parts->groups, Golden<float>("groups"), "group");
  ExpectSameBits(parts->scales, Golden<uint8_t>("scales"), "scale");
}

// On the host, and by the kernel, also for numbers that begin within a group.
TEST_P(GoldenNf4, NumbersAreThoseOfBitsandbytes) {
  auto codes = Golden<uint8_t>("codes"), scales = Golden<uint8_t>("scales");
  auto groups = Golden<float>("groups");
  const std::vector<float> want = Golden<float>("f32");
  std::vector<float> numbers(want.size());
  const size_t blocks = scales.size();
  for (size_t block = 0; block < blocks; ++block) {
    DequantizeNf4({.codes = std::span(codes).subspan(block * 32, 32),
                   .scales = std::span(scales).subspan(block, 1),
                   .groups = groups,
                   .first_block = int64_t(block)},
                  std::span(numbers).subspan(block * 64, 64));
  }
  ExpectSameBits(numbers, want, "number");

  const auto matrix = [&](void* data, DType dtype, size_t columns) {
    return Tensor{{data, dtype, {int64_t(blocks), int64_t(columns)}}};
  };
  std::vector<bf16> rounded(want.size());
  Exec exec = CpuBackend().NewExec(1);
  const auto run = [&](void* y, DType dtype) {
    CpuBackend().kernel<DequantizeNf4Args>()(
        exec, {.codes = matrix(codes.data(), DType::kU8, 32),
               .scales = matrix(scales.data(), DType::kU8, 1),
               .groups = Tensor{{groups.data(), DType::kF32, {int64_t(groups.size())}}},
               .first_block = 0,
               .row_blocks = 1,
               .y = matrix(y, dtype, 64)});
  };
  run(numbers.data(), DType::kF32);
  ExpectSameBits(numbers, want, "number of the kernel");
  run(rounded.data(), DType::kBF16);
  ExpectSameBits(rounded, Golden<bf16>("bf16"), "rounded number of the kernel");
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenNf4,
                         ::testing::Values("normal", "adversarial", "huge", "two_blocks"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Nf4, ValuesAndMapAreInOrder) {
  EXPECT_TRUE(std::is_sorted(kNf4Values.begin(), kNf4Values.end()));
  const std::array<float, 256> map = Nf4Map();
  EXPECT_TRUE(std::is_sorted(map.begin(), map.end()));
  EXPECT_EQ(map[127], 0);
  EXPECT_EQ(map[255], 1);
}

TEST(Nf4, RefusesNumbersThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> numbers(128, 1.0f);
    numbers[77] = bad;
    EXPECT_THAT(std::string(QuantizeNf4(numbers).status().message()),
                HasSubstr("wanted finite numbers for NF4, found "));
    EXPECT_THAT(std::string(QuantizeNf4(numbers).status().message()), HasSubstr("as element 77"));
  }
}

TEST(Nf4, PartsAreDividedAsTheWeight) {
  const ParameterSpec weight = {
      .name = "a.weight", .shape = {192, 128}, .shard = Shard::Rows(kTensorAxes, {64, 64, 64})};
  const Nf4Parts parts = PartsInNf4(weight);
  EXPECT_EQ(parts.codes.shape, Shape({192, 64}));
  EXPECT_EQ(parts.scales.shape, Shape({192, 2}));
  EXPECT_EQ(parts.groups.shape, Shape({3})) << "384 blocks, and the mean";
  EXPECT_EQ(parts.codes.shard, weight.shard);
  EXPECT_EQ(parts.scales.shard, weight.shard);
  EXPECT_EQ(parts.groups.shard, Shard::None());
  EXPECT_EQ(parts.codes.numbers() + parts.scales.numbers() + parts.groups.numbers(), 192 * 128);
  for (const ParameterSpec& part : {parts.codes, parts.scales, parts.groups}) {
    EXPECT_EQ(WeightInNf4(part.name), "a.weight");
  }
  EXPECT_EQ(WeightInNf4("a.weight"), "");
}

// Each expert's matrix has its own groups and mean, which lie where the expert lies.
TEST(Nf4, PartsOfExpertsAreDividedAsTheExperts) {
  const ParameterSpec weight = {.name = "experts.*.up.weight",
                                .shape = {6, 320, 128},
                                .shard = Shard::Rows(kTensorAxes),
                                .stacked = true};
  const Nf4Parts parts = PartsInNf4(weight);
  EXPECT_EQ(parts.codes.shape, Shape({6, 320, 64}));
  EXPECT_EQ(parts.scales.shape, Shape({6, 320, 2}));
  EXPECT_EQ(parts.groups.shape, Shape({6, 4})) << "640 blocks, and the mean";
  for (const ParameterSpec& part : {parts.codes, parts.scales, parts.groups}) {
    EXPECT_EQ(part.shard, weight.shard);
    EXPECT_TRUE(part.stacked);
    EXPECT_EQ(WeightInNf4(part.name), weight.name);
  }
}

// Layers of whole blocks.
ModelConfig WideLlama(int64_t layers) {
  ModelConfig config = TinyLlama();
  DecoderConfig& decoder = AsDecoder(config);
  decoder.layers = layers;
  decoder.hidden = 128;
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_dim = 32;
  decoder.ffn = 256;
  return config;
}

Program Record(const ModelConfig& config, bool nf4, const RecomputeOptions& recompute = {},
               bool dora = false) {
  TrainingOptions options = {
      .record = {.precision = Precision::BF16(),
                 .micro_batch = 1,
                 .sequence = 4,
                 .adapter = {.rank = 2, .magnitudes = dora, .nf4 = nf4}},
      .recompute = recompute,
      .frozen = [](const ParameterSpec& spec) { return !IsLowRank(spec.name); }};
  return RecordTraining(*CreateModel(config), options);
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

TEST(Nf4Program, HasFourBitsAndAnEighthForANumber) {
  const ModelConfig config = WideLlama(3);
  const Program plain = Record(config, false), packed = Record(config, true);
  EXPECT_EQ(packed.num_parameters, plain.num_parameters);
  int64_t want = 0;
  size_t weights = 0;
  for (const ParameterStorage& storage : plain.storages) {
    if (!storage.frozen) continue;
    const ParameterSpec& first = storage.parameters.front();
    if (!absl::StrContains(first.name, "_proj.")) {
      want += RoundUp(2 * storage.shape.elements(), 256);
      continue;
    }
    ++weights;
    const int64_t numbers = storage.shape.elements();
    int64_t groups = 0;
    for (const ParameterSpec& spec : storage.parameters) {
      groups += (spec.shape.elements() / 64 + 255) / 256 + 1;
    }
    want += RoundUp(numbers / 2, 256) + RoundUp(numbers / 64, 256) + RoundUp(4 * groups, 256);
  }
  EXPECT_EQ(weights, 12u) << "four products of each layer";
  const MemoryPlan plan = PlanMemory(packed);
  EXPECT_EQ(int64_t(plan.flat_bytes[size_t(FlatBuffer::kFrozen)]), want);
}

// Products read the codes, in forward and in backward; so do the norms of magnitudes. Nothing else
// makes numbers.
TEST(Nf4Program, ProductsReadTheCodes) {
  for (const RecomputeOptions& recompute :
       {RecomputeOptions{}, RecomputeOptions{.norms_and_activations = true},
        RecomputeOptions{.blocks = 2}}) {
    const Program program = Record(WideLlama(2), true, recompute, /*dora=*/true);
    std::map<std::pair<std::string, std::string>, int> readers;
    for (const Instance& instance : program.instances) {
      if (instance.list == List::kInit) continue;
      for (const Value input : instance.inputs) {
        const std::string name = program.info(input).name;
        if (!absl::StrContains(name, kNf4Codes)) continue;
        ++readers[{std::string(instance.op->name()), name}];
      }
    }
    // The input of the first layer has no gradient, so only forward reads the weights there.
    std::map<std::string, int> of_op;
    for (const auto& [reader, count] : readers) of_op[reader.first] += count;
    EXPECT_EQ(of_op.at("matmul"), recompute.blocks > 0 ? 16 : 8);
    EXPECT_EQ(of_op.at("magnitude"), recompute.blocks > 0 ? 16 : 8);
    EXPECT_EQ(of_op.at("matmul_input_gradient_add") + of_op["matmul_input_gradient"], 7);
    EXPECT_EQ(of_op.size(), 4u);
  }
}

// No kernel computes GELU of a product with codes. The adapter leaves the layer before GELU alone.
TEST(Nf4Program, GeluIsAPassOfItsOwn) {
  ModelConfig config = TinyGpt3();
  DecoderConfig& decoder = AsDecoder(config);
  decoder.hidden = 128;
  decoder.heads = decoder.kv_heads = 4;
  decoder.head_dim = 32;
  decoder.ffn = 256;
  const auto adapts = [](absl::string_view target) { return !absl::StrContains(target, "c_fc"); };
  const Program program =
      RecordTraining(*CreateModel(config),
                     {.record = {.precision = Precision::BF16(),
                                 .sequence = 4,
                                 .adapter = {.rank = 2, .nf4 = true, .adapts = adapts}},
                      .frozen = [](const ParameterSpec& spec) { return !IsLowRank(spec.name); }});
  std::map<std::string, int64_t> count;
  for (const Instance& instance : program.instances) ++count[std::string(instance.op->name())];
  EXPECT_EQ(count["gelu"], decoder.layers);
  EXPECT_EQ(count["gelu_backward"], decoder.layers);
  EXPECT_EQ(count["matmul_gelu"] + count["matmul_gelu_backward"], 0);
}

// No numbers have a place in the plan: memory is that of a base in bf16, less the base. With
// magnitudes, some rows have.
TEST(Nf4Program, NoNumbersAreInMemory) {
  const auto plan = [](bool nf4, bool dora, bool gpu) {
    return PlanMemory(Record(WideLlama(6), nf4, {}, dora), {.gpu = gpu});
  };
  EXPECT_EQ(plan(true, false, false).activation_bytes(),
            plan(false, false, false).activation_bytes());
  const size_t of_rows = 2 * 256 * 256;  // At most, of down_proj.
  EXPECT_LE(plan(true, true, false).activation_bytes(),
            plan(false, true, false).activation_bytes() + of_rows);
  // On a GPU, one part of the largest product, which is all of gate and up here, behind the
  // workspace of its product.
  EXPECT_EQ(plan(true, false, true).workspace_bytes - plan(false, false, true).workspace_bytes,
            (size_t{64} << 20) + 2 * 512 * 128);
}

// A mixture whose experts have whole blocks.
ModelConfig WideMoe(int64_t layers) {
  ModelConfig config = TinyMoe();
  DecoderConfig& decoder = AsDecoder(config);
  decoder.layers = layers;
  decoder.hidden = 128;
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_dim = 32;
  decoder.moe->expert_ffn = 192;
  return config;
}

TEST(Nf4Experts, HaveFourBitsAndAnEighthForANumber) {
  const ModelConfig config = WideMoe(2);
  const Program plain = Record(config, false), packed = Record(config, true);
  EXPECT_EQ(packed.num_parameters, plain.num_parameters);
  const auto bytes = [](const Program& program) {
    size_t sum = 0;
    for (const ParameterStorage& storage : program.storages) {
      const ParameterSpec& first = storage.parameters.front();
      if (first.stacked && storage.frozen) sum += size_t(storage.flat.elements);
    }
    return sum;
  };
  // Of three matrices of 384 blocks, each of two groups with their mean.
  const int64_t matrices = 2 * 3 * AsDecoder(config).moe->experts;
  EXPECT_EQ(bytes(plain), size_t(matrices * 2 * 192 * 128));
  EXPECT_EQ(bytes(packed), size_t(matrices * (192 * 128 / 2 + 384 + 4 * 3)));
}

// In forward, again if the layer is computed again, and in backward.
TEST(Nf4Experts, ProductsReadTheCodes) {
  for (const int64_t again : {0, 2}) {
    const Program program = Record(WideMoe(2), true, {.blocks = again});
    std::map<std::string, int> readers;
    for (const Instance& instance : program.instances) {
      if (instance.list == List::kInit) continue;
      CheckOperands(instance);
      for (const Value input : instance.inputs) {
        const ValueInfo& info = program.info(input);
        if (!absl::StrContains(info.name, ".experts.")) continue;
        EXPECT_NE(info.dtype, DType::kBF16) << info;
        readers[std::string(instance.op->name())] += absl::EndsWith(info.name, kNf4Codes);
      }
    }
    EXPECT_EQ(readers["expert_mlp"], 4);
    EXPECT_EQ(readers["expert_mlp_backward"], 4);
    EXPECT_EQ(readers["expert_mlp_arrival"], again == 0 ? 0 : 2) << "the first product's";
  }
}

TEST(Nf4Experts, CountTheSameProducts) {
  const auto flops = [](bool nf4) {
    const Program program = Record(WideMoe(2), nf4, {.blocks = 2});
    double sum = 0;
    for (const Instance& instance : program.instances) {
      sum += instance.op->CostOf(program, instance).flops;
    }
    return sum;
  };
  EXPECT_EQ(flops(true), flops(false));
}

// No numbers have a place in the plan. On a GPU the part of a large expert is larger than that of a
// small layer, with the workspace of its product: 1,024 columns of the second product.
TEST(Nf4Experts, NoNumbersAreInMemory) {
  ModelConfig config = WideMoe(3);
  const auto plan = [&](bool nf4, bool gpu) {
    return PlanMemory(Record(config, nf4), {.gpu = gpu});
  };
  EXPECT_EQ(plan(true, false).activation_bytes(), plan(false, false).activation_bytes());
  AsDecoder(config).hidden = 1024;
  AsDecoder(config).moe->expert_ffn = 65536;
  EXPECT_EQ(plan(true, true).workspace_bytes - plan(false, true).workspace_bytes,
            size_t{2} * 1024 * 65536);
}

}  // namespace
}  // namespace trainyard::testing
