// Texts that grow with tiny models, on the tested backend.

#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "tests/kernels/call.h"
#include "tests/models/tiny.h"
#include "train/generate/growing_texts.h"

namespace trainyard::testing {

inline constexpr int64_t kTinyWindow = 16;  // Of the tiny models.

// The families of text. On an emulated GPU, which is slow, those whose kernels differ.
inline std::vector<std::string> TextFamilies() {
  if (TestedBackend().device() == DeviceKind::kCuda) {
    return {"gpt3", "gpt_oss", "deepseek_v3", "nemotron_h"};
  }
  std::vector<std::string> families;
  for (const Family& family : Families()) {
    if (CaseOf(family.name).is_decoder) families.push_back(family.name);
  }
  return families;
}

inline std::unique_ptr<Executable> Bound(const Model& model, const RecordOptions& options) {
  Program program = RecordInference(model, options);
  const MemoryPlan plan = PlanMemory(program);
  auto executable = *Executable::Create(std::move(program), plan, TestedBackend(), 1, {});
  executable->WriteStepState({.seed = 3});
  executable->Run(Action::kInit);
  executable->Run(Action::kPrepare);
  return executable;
}

using RowOfLogits = std::vector<double>;

inline RowOfLogits Row(const Executable& executable, const std::string& output, int64_t row) {
  const ValueInfo& info = executable.program().info(executable.program().outputs.at(output));
  std::vector<double> all(size_t(info.shape.elements()));
  if (info.dtype == DType::kF32) {
    std::vector<float> some(all.size());
    executable.ReadOutput(output, 0, some.data(), some.size() * sizeof(float));
    std::copy(some.begin(), some.end(), all.begin());
  } else {
    executable.ReadOutput(output, 0, all.data(), all.size() * sizeof(double));
  }
  const auto begin = all.begin() + row * info.shape[1];
  return {begin, begin + info.shape[1]};
}

// The logits of each text that is not empty.
inline std::vector<RowOfLogits> ReadTexts(GrowingTexts& texts, const Executable& executable,
                                          const std::vector<std::vector<int32_t>>& all) {
  std::vector<RowOfLogits> logits(all.size());
  const std::vector<std::span<const int32_t>> views(all.begin(), all.end());
  texts.Read(views, [&](const GrowingTexts::Rows& rows) {
    for (const auto& [place, row] : rows.of_places) {
      EXPECT_TRUE(logits[place].empty()) << "place " << place << " has logits twice";
      logits[place] = Row(executable, rows.output, row);
    }
  });
  return logits;
}

}  // namespace trainyard::testing
