#include "train/trainer/generated.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "kernels/device/dtype.h"
#include "models/language_model.h"
#include "train/config/generation.h"
#include "train/data/dataset.h"
#include "train/generate/sampling.h"
#include "train/step/prefetch.h"

namespace trainyard {
namespace {

// Samples of which each is one document: a text, and zeros behind it. No target counts.
class Documents final : public Dataset {
 public:
  // `texts` may be fewer than the samples; the others are empty.
  Documents(const std::vector<InputSpec>& inputs, int64_t sequence, int64_t samples,
            std::vector<const std::vector<int32_t>*> texts)
      : inputs_(inputs), sequence_(sequence), samples_(samples), texts_(std::move(texts)) {}

  int64_t num_samples() const override { return samples_; }
  bool is_shuffled() const override { return true; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto add = [&](auto& values) {
        values.resize(values.size() + size_t(UnitsOf(inputs_[i])), Filling(inputs_[i]));
        if constexpr (std::is_same_v<decltype(values), std::vector<int32_t>&>) {
          if (inputs_[i].name != "tokens" || size_t(sample.index) >= texts_.size()) return;
          const std::vector<int32_t>& text = *texts_[size_t(sample.index)];
          std::copy(text.begin(), text.end(), values.end() - sequence_);
        }
      };
      std::visit(add, out[i]);
    }
    return absl::OkStatus();
  }

 private:
  int64_t UnitsOf(const InputSpec& input) const {
    return (input.unit == InputSpec::Unit::kToken ? sequence_ : 1) * input.shape.elements();
  }
  static int32_t Filling(const InputSpec& input) {
    if (input.name == "targets") return kNotCounted;
    return input.name == kPreferenceSides ? -1 : 0;  // Of no answer.
  }

  const std::vector<InputSpec>& inputs_;
  const int64_t sequence_, samples_;
  const std::vector<const std::vector<int32_t>*> texts_;
};

// An output of the program, as f32.
std::vector<float> ReadLogits(const Executable& executable, Value value) {
  const ValueInfo& info = executable.program().info(value);
  const auto read = [&](auto scalar) {
    std::vector<decltype(scalar)> values(size_t(info.shape.elements()));
    executable.ReadOutput("logits", 0, values.data(), info.bytes());
    return std::vector<float>(values.begin(), values.end());
  };
  std::vector<float> logits;
  DispatchFloat(info.dtype, [&](auto scalar) { logits = read(scalar); });
  return logits;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextGenerator>> TextGenerator::Create(const Options& options) {
  std::unique_ptr<TextGenerator> generator(new TextGenerator(options));
  for (size_t i = 0; i < options.config.prompts.size(); ++i) {
    ASSIGN_OR_RETURN(EncodedPrompt prompt, options.codec.Encode(options.config.prompts[i]));
    if (int64_t(prompt.ids.size()) >= options.sequence) {
      return absl::InvalidArgumentError(absl::StrCat(
          "validation.generate.prompts[", i, "]: wanted at most ", options.sequence - 1,
          " tokens, fewer than batch.sequence; found ", prompt.ids.size()));
    }
    generator->prompts_.push_back(std::move(prompt));
  }
  return generator;
}

int64_t TextGenerator::head_rows() const {
  return options_.shape.micro * options_.engine.part().rows /
         options_.engine.mesh().size(kTensorAxes);
}

absl::StatusOr<std::vector<GeneratedText>> TextGenerator::Write() {
  std::vector<Text> texts;
  for (const EncodedPrompt& prompt : prompts_) texts.push_back({prompt.ids});
  const size_t together = size_t(options_.shape.micro * options_.shape.data_parallel);
  for (size_t begin = 0; begin < texts.size(); begin += together) {
    const size_t count = std::min(together, texts.size() - begin);
    const std::span<Text> some = std::span(texts).subspan(begin, count);
    for (int64_t token = 0; token < options_.config.tokens; ++token) {
      if (std::all_of(some.begin(), some.end(), [](const Text& text) { return text.ended; })) break;
      AddTokens(some, std::span(prompts_).subspan(begin, count), token);
    }
  }
  std::vector<GeneratedText> generated;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t>& prompt = prompts_[i].ids;
    const std::span<const int32_t> written = std::span(texts[i].ids).subspan(prompt.size());
    ASSIGN_OR_RETURN(const std::string text, options_.codec.Decode(prompt, written));
    generated.push_back(
        {options_.config.prompts[i], std::string(CutUtf8(text, kMostGeneratedBytes))});
  }
  return generated;
}

void TextGenerator::AddTokens(std::span<Text> texts, std::span<const EncodedPrompt> prompts,
                              int64_t token) {
  const BatchShape shape = {.global = options_.shape.micro * options_.shape.data_parallel,
                            .micro = options_.shape.micro,
                            .data_parallel = options_.shape.data_parallel,
                            .data_rank = options_.shape.data_rank};
  std::vector<const std::vector<int32_t>*> ids;
  for (const Text& text : texts) ids.push_back(&text.ids);
  const Documents documents(options_.inputs, options_.sequence, shape.global, std::move(ids));
  const BatchReader reader(documents, SampleOrder::kSequential, options_.seed, shape);
  absl::StatusOr<StepBatch> batch = ReadStepBatch(reader, options_.engine.part(), 0);
  CHECK(batch.ok() && batch->size() == 1) << batch.status();
  const std::vector<Place> places = LastPlaces(texts);
  const int tensor_rank = options_.engine.mesh().coordinate(kTensorAxes);
  std::vector<int32_t> rows;
  for (const Place& place : places) {
    rows.push_back(int32_t(place.tensor_rank == tensor_rank ? place.row : head_rows()));
  }
  batch->front()[kLastRows] = std::move(rows);
  if (options_.progress) options_.progress();
  options_.engine.runner().Forward(*batch, /*tokens=*/1);

  const size_t vocab = size_t(options_.codec.vocab());
  std::vector<float> logits(texts.size() * vocab);
  AddLogits(places, logits);
  options_.everyone.AllReduceSum(
      Tensor{{logits.data(), DType::kF32, Shape{int64_t(logits.size())}}});
  const double u = Uniform(options_.seed, HashName("generated"), uint64_t(token));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].ended) continue;
    const int32_t next = int32_t(SampleToken(std::span(logits).subspan(i * vocab, vocab),
                                             {.temperature = options_.config.temperature}, u));
    texts[i].ended = next == prompts[i].end;
    if (texts[i].ended) continue;
    texts[i].ids.push_back(next);
    texts[i].ended = int64_t(texts[i].ids.size()) == options_.sequence;
  }
}

std::vector<TextGenerator::Place> TextGenerator::LastPlaces(std::span<const Text> texts) const {
  const SequencePart part = options_.engine.part();
  const int64_t first = options_.shape.data_rank * options_.shape.micro;
  std::vector<Place> places(size_t(options_.shape.micro));
  for (int64_t slot = 0; slot < options_.shape.micro; ++slot) {
    const int64_t text = first + slot;
    if (text >= int64_t(texts.size())) break;
    const int64_t last = int64_t(texts[size_t(text)].ids.size()) - 1;
    for (int64_t s = 0; s < part.rows; ++s) {
      if (part.position(s) != last) continue;
      const int64_t row = slot * part.rows + s;
      places[size_t(slot)] = {.tensor_rank = row / head_rows(), .row = row % head_rows()};
    }
  }
  return places;
}

void TextGenerator::AddLogits(const std::vector<Place>& places, std::span<float> logits) const {
  const Executable& executable = options_.engine.executable();
  const auto output = executable.program().outputs.find("logits");
  if (output == executable.program().outputs.end()) return;  // Another stage has the head.
  // The rows of all tensor ranks, one rank after another, and this rank's part of the vocabulary.
  const std::vector<float> all = ReadLogits(executable, output->second);
  const int64_t columns = executable.program().info(output->second).shape[1];
  const int64_t vocab = options_.codec.vocab();
  const int64_t begin = options_.engine.mesh().coordinate(kTensorAxes) * columns;
  const int64_t ids = std::clamp<int64_t>(vocab - begin, 0, columns);
  const int64_t micro = options_.shape.micro;
  for (int64_t slot = 0; slot < micro; ++slot) {
    if (places[size_t(slot)].tensor_rank < 0) continue;
    const auto row = all.begin() + (places[size_t(slot)].tensor_rank * micro + slot) * columns;
    const int64_t text = options_.shape.data_rank * micro + slot;
    std::copy(row, row + ids, logits.begin() + text * vocab + begin);
  }
}

}  // namespace trainyard
