#include "train/generate/generate.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/generate/stop_texts.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {
namespace {

absl::Status Validate(const GenerateOptions& options) {
  if (options.tokens < 0 || options.tokens > kMaxGeneratedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: wanted 0 to ", kMaxGeneratedTokens, ", found ", options.tokens));
  }
  return Check(options.sampling);
}

}  // namespace

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
  StopTexts stop(options.stop);
  for (int64_t i = 0; i < options.tokens && !stop.stopped(); ++i) {
    const double u = Uniform(options.seed, HashName("generate"), uint64_t(i));
    const auto likely = model.After(text).first(size_t(tokenizer.vocab()));
    text.push_back(int32_t(SampleToken(likely, options.sampling, u)));
    ASSIGN_OR_RETURN(const std::string more, readable.Add(text.back()));
    write(stop.Add(more));
  }
  ASSIGN_OR_RETURN(const std::string rest, readable.End());
  write(stop.Add(rest));
  write(stop.End());
  return absl::OkStatus();
}

}  // namespace trainyard
