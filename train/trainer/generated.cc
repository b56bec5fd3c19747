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
#include "train/step/agree.h"
#include "train/step/prefetch.h"

namespace trainyard {
namespace {

// Samples of which each is one document: a text, and zeros behind it. No target counts.
class Documents final : public Dataset {
 public:
  // Null: the sample is empty.
  Documents(const std::vector<InputSpec>& inputs, int64_t sequence,
            std::vector<const std::vector<int32_t>*> texts)
      : inputs_(inputs), sequence_(sequence), texts_(std::move(texts)) {}

  int64_t num_samples() const override { return int64_t(texts_.size()); }
  bool is_shuffled() const override { return true; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto add = [&](auto& values) {
        values.resize(values.size() + size_t(UnitsOf(inputs_[i])), Filling(inputs_[i]));
        if constexpr (std::is_same_v<decltype(values), std::vector<int32_t>&>) {
          const std::vector<int32_t>* const text = texts_[size_t(sample.index)];
          if (inputs_[i].name != "tokens" || text == nullptr) return;
          std::copy(text->begin(), text->end(), values.end() - sequence_);
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
  const int64_t sequence_;
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
  const bool first = options.everyone.rank() == 0;
  RETURN_IF_ERROR(AgreeOnStatus(options.everyone, first ? generator->Encode() : absl::OkStatus()));
  generator->SharePrompts();
  return generator;
}

absl::Status TextGenerator::Encode() {
  const std::vector<std::string>& prompts = options_.config.prompts;
  vocab_ = options_.codec->vocab();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string field = absl::StrCat("validation.generate.prompts[", i, "]: ");
    absl::StatusOr<EncodedPrompt> prompt = options_.codec->Encode(prompts[i]);
    if (!prompt.ok()) {
      return absl::Status(prompt.status().code(), field + std::string(prompt.status().message()));
    }
    const int64_t tokens = int64_t(prompt->ids.size());
    if (tokens == 0 || tokens >= options_.sequence) {
      return absl::InvalidArgumentError(absl::StrCat(field, "wanted 1 to ", options_.sequence - 1,
                                                     " tokens, fewer than batch.sequence; found ",
                                                     tokens));
    }
    prompts_.push_back(*std::move(prompt));
  }
  return absl::OkStatus();
}

void TextGenerator::SharePrompts() {
  const auto share = [&](int64_t value) {
    options_.everyone.Broadcast(Tensor{{&value, DType::kI64, Shape{1}}}, 0);
    return value;
  };
  vocab_ = share(vocab_);
  prompts_.resize(options_.config.prompts.size());
  for (EncodedPrompt& prompt : prompts_) {
    const int64_t end = share(prompt.end.value_or(-1));
    if (end >= 0) prompt.end = int32_t(end);
    std::vector<int64_t> ids(size_t(share(int64_t(prompt.ids.size()))));
    std::copy(prompt.ids.begin(), prompt.ids.end(), ids.begin());
    options_.everyone.Broadcast(Tensor{{ids.data(), DType::kI64, Shape{int64_t(ids.size())}}}, 0);
    prompt.ids.assign(ids.begin(), ids.end());
  }
}

std::vector<GeneratedText> TextGenerator::Write() {
  std::vector<Text> texts;
  for (const EncodedPrompt& prompt : prompts_) texts.push_back({prompt.ids});
  const size_t together = size_t(texts_of_rank() * options_.shape.data_parallel);
  for (size_t begin = 0; begin < texts.size(); begin += together) {
    const size_t count = std::min(together, texts.size() - begin);
    const std::span<Text> some = std::span(texts).subspan(begin, count);
    for (int64_t token = 0; token < options_.config.tokens; ++token) {
      if (std::all_of(some.begin(), some.end(), [](const Text& text) { return text.ended; })) break;
      if (!AddTokens(some, begin, token)) return {};
    }
  }
  std::vector<GeneratedText> generated;
  if (options_.everyone.rank() != 0) return generated;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t>& prompt = prompts_[i].ids;
    const std::span<const int32_t> written = std::span(texts[i].ids).subspan(prompt.size());
    const std::string text = options_.codec->Decode(prompt, written);
    generated.push_back(
        {options_.config.prompts[i], std::string(CutUtf8(text, kMostGeneratedBytes))});
  }
  return generated;
}

bool TextGenerator::AddTokens(std::span<Text> texts, size_t first, int64_t token) {
  BatchShape shape = options_.shape;
  shape.global = shape.micro * shape.data_parallel;
  std::vector<const std::vector<int32_t>*> samples(size_t(shape.global), nullptr);
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t rank = int64_t(i) / texts_of_rank(), slot = int64_t(i) % texts_of_rank();
    samples[size_t(rank * shape.micro + slot)] = &texts[i].ids;
  }
  const Documents documents(options_.inputs, options_.sequence, std::move(samples));
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

  // The logits, and behind them how many ranks want to stop.
  std::vector<float> sums(texts.size() * size_t(vocab_) + 1);
  AddLogits(places, std::span(sums).first(sums.size() - 1));
  if (options_.stop && options_.stop()) sums.back() = 1;
  options_.everyone.AllReduceSum(Tensor{{sums.data(), DType::kF32, Shape{int64_t(sums.size())}}});
  if (sums.back() > 0) return false;
  std::vector<int64_t> next(texts.size(), -1);
  if (options_.everyone.rank() == 0) next = Draw(texts, first, sums, token);
  options_.everyone.Broadcast(Tensor{{next.data(), DType::kI64, Shape{int64_t(next.size())}}}, 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (next[i] >= 0) texts[i].ids.push_back(int32_t(next[i]));
    texts[i].ended = next[i] < 0 || int64_t(texts[i].ids.size()) == options_.sequence;
  }
  return true;
}

std::vector<int64_t> TextGenerator::Draw(std::span<const Text> texts, size_t first,
                                         std::span<const float> logits, int64_t token) const {
  std::vector<int64_t> next;
  for (size_t i = 0; i < texts.size(); ++i) {
    next.push_back(-1);
    if (texts[i].ended) continue;
    const uint64_t place = (uint64_t(first + i) << 32) + uint64_t(token);
    const double u = Uniform(options_.seed, HashName("generated"), place);
    const int64_t drawn = SampleToken(logits.subspan(i * size_t(vocab_), size_t(vocab_)),
                                      {.temperature = options_.config.temperature}, u);
    if (drawn != prompts_[first + i].end) next.back() = drawn;
  }
  return next;
}

int64_t TextGenerator::head_rows() const {
  return options_.shape.micro * options_.engine.part().rows /
         options_.engine.mesh().size(kTensorAxes);
}

std::vector<TextGenerator::Place> TextGenerator::LastPlaces(std::span<const Text> texts) const {
  const SequencePart part = options_.engine.part();
  const int64_t count = texts_of_rank(), first = options_.shape.data_rank * count;
  std::vector<Place> places(static_cast<size_t>(count));
  for (int64_t slot = 0; slot < count; ++slot) {
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
  const int64_t begin = options_.engine.mesh().coordinate(kTensorAxes) * columns;
  const int64_t ids = std::min(vocab_ - begin, columns);
  if (ids <= 0) return;  // The tokenizer has fewer ids than the model.
  for (int64_t slot = 0; slot < texts_of_rank(); ++slot) {
    const Place& place = places[size_t(slot)];
    if (place.tensor_rank < 0) continue;
    const auto row = all.begin() + (place.tensor_rank * texts_of_rank() + slot) * columns;
    const int64_t text = options_.shape.data_rank * texts_of_rank() + slot;
    std::copy(row, row + ids, logits.begin() + text * vocab_ + begin);
  }
}

}  // namespace trainyard
