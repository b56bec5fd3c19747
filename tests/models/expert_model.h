// A model of one layer of experts, whose choice the host writes.

#pragma once

#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/program/low_rank.h"
#include "models/program/ops/ops.h"

namespace trainyard::testing {

inline constexpr int64_t kTokens = 6, kWidth = 4, kFfn = 3, kExperts = 5, kChoices = 2, kVocab = 7;
inline constexpr int64_t kRank = 2;
inline constexpr double kScale = 1.5;  // Of what adapters add.

inline ParameterSpec Matrix(const std::string& name, const Shape& shape, bool stacked = false) {
  return {.name = name, .shape = shape, .init = Init::Normal(0.4), .stacked = stacked};
}

struct Form {
  bool gated = true;
  double expert_rows = 2;
  bool first_adapter = false, second_adapter = false;
  bool bias = false;

  int64_t up_width() const { return (gated ? 2 : 1) * kFfn; }
};

// Embedding, one layer of experts that the host chooses, output projection.
class ExpertModel final : public LanguageModel {
 public:
  explicit ExpertModel(const Form& form = {}) : LanguageModel(kVocab), form_(form) {}
  int64_t layers() const override { return 1; }
  int64_t max_sequence() const override { return kTokens; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return ops::Embedding(recorder, recorder.Parameter(Matrix("embedding", {kVocab, kWidth})),
                          tokens);
  }
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    recorder.set_label("mlp");
    const Value experts = recorder.Input("experts", {kTokens, kChoices}, DType::kI32, {});
    const Value gate = recorder.Parameter(Matrix("gate", {kChoices, kWidth}));
    std::vector<ParameterSpec> first = {Matrix("e.*.up", {kExperts, kFfn, kWidth}, true)};
    if (form_.gated) {
      first.insert(first.begin(), Matrix("e.*.gate", {kExperts, kFfn, kWidth}, true));
    }
    const auto adapter = [&](const std::string& name, int64_t in, int64_t out) {
      const auto matrix = [&](const char* ending, const Shape& shape) {
        return recorder.Parameter(Matrix("e.*." + name + ending, shape, true));
      };
      return ops::ExpertAdapter{.down = matrix(kLowRankDown, {kExperts, kRank, in}),
                                .up = matrix(kLowRankUp, {kExperts, out, kRank})};
    };
    ops::ExpertMlpInputs inputs{
        .x = x,
        .experts = experts,
        .weights = ops::Linear(recorder, ProductKind::kRouter, x, gate),
        .gate_up = recorder.Parameters(first),
        .down = recorder.Parameter(Matrix("e.*.down", {kExperts, kWidth, kFfn}, true)),
        .gated = form_.gated,
        .adapter_scale = kScale};
    if (form_.bias) {
      inputs.gate_up_bias =
          recorder.Parameter(Matrix("e.*.up.bias", {kExperts, form_.up_width()}, true));
      inputs.down_bias = recorder.Parameter(Matrix("e.*.down.bias", {kExperts, kWidth}, true));
    }
    if (form_.first_adapter) inputs.first_adapter = adapter("first", kWidth, form_.up_width());
    if (form_.second_adapter) inputs.second_adapter = adapter("second", kFfn, kWidth);
    return ops::ExpertMlp(recorder, inputs);
  }
  Projection Head(Recorder& recorder, const Carried& carried) const override {
    return {.x = carried.only(), .weight = recorder.Parameter(Matrix("output", {kVocab, kWidth}))};
  }

 private:
  const Form form_;
};

// None chose expert 3.
inline const std::vector<int32_t> kChosen = {4, 0, 1, 4, 4, 2, 0, 4, 2, 1, 4, 0};

}  // namespace trainyard::testing
