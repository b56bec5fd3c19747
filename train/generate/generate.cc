#include "train/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {
namespace {

absl::Status Validate(const GenerateOptions& options) {
  if (options.tokens < 0 || options.tokens > kMaxGeneratedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: wanted 0 to ", kMaxGeneratedTokens, ", found ", options.tokens));
  }
  if (!(options.temperature >= 0 && options.temperature <= kMaxTemperature)) {  // Or NaN.
    return absl::InvalidArgumentError(absl::StrCat("temperature: wanted 0 to ", kMaxTemperature,
                                                   ", found ", options.temperature));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SampleToken(std::span<const float> logits, double temperature, double u) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return largest - logits.begin();
  std::vector<double> weights;
  double sum = 0;
  for (float logit : logits) {
    weights.push_back(std::exp((double(logit) - double(*largest)) / temperature));
    sum += weights.back();
  }
  double left = u * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return int64_t(i);
  }
  return largest - logits.begin();  // Rounding has left a small rest.
}

absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(InferenceModel model,
                   InferenceModel::Load(options.model, InferenceModel::Use::kGrowing, backend));
  const Tokenizer& tokenizer = model.tokenizer();
  // Without a prompt, the text begins after a line break.
  const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
  std::vector<int32_t> text = tokenizer.prefix();
  RETURN_IF_ERROR(tokenizer.NewEncoder()->Encode(prompt, text));
  TextStream readable(tokenizer, text);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const double u = Uniform(options.seed, HashName("generate"), uint64_t(i));
    const auto likely = model.After(text).first(size_t(tokenizer.vocab()));
    text.push_back(int32_t(SampleToken(likely, options.temperature, u)));
    ASSIGN_OR_RETURN(const std::string more, readable.Add(text.back()));
    write(more);
  }
  ASSIGN_OR_RETURN(const std::string rest, readable.End());
  write(rest);
  return absl::OkStatus();
}

}  // namespace trainyard
