#include "train/generate/continue_prompts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// A prompt that the model goes on with.
struct Running {
  Running(size_t prompt, const Tokenizer& tokenizer, EncodedPrompt encoded,
          ContinuationOptions options)
      : number(prompt),
        writer(tokenizer, std::move(encoded), std::move(options),
               [this](absl::string_view more) { absl::StrAppend(&text, more); }) {}

  const size_t number;
  std::string text;
  Continuation writer;
};

// Calls `done` in the order of the prompts, although they end in another one.
class InOrder {
 public:
  explicit InOrder(const std::function<void(size_t, const WrittenText&)>& done) : done_(done) {}
  void Add(size_t prompt, WrittenText continued) {
    early_.emplace(prompt, std::move(continued));
    while (!early_.empty() && early_.begin()->first == next_) {
      done_(next_++, early_.begin()->second);
      early_.erase(early_.begin());
    }
  }

 private:
  const std::function<void(size_t, const WrittenText&)>& done_;
  std::map<size_t, WrittenText> early_;
  size_t next_ = 0;
};

}  // namespace

absl::Status ContinuePrompts(InferenceModel& model, std::vector<EncodedPrompt> prompts,
                             const ContinuationOptions& options, Draws draws,
                             const std::function<void(size_t, const WrittenText&)>& done) {
  InOrder in_order(done);
  std::vector<std::unique_ptr<Running>> places(model.texts());
  size_t next = 0;
  // Gives a place to the next prompt of which something is to be written.
  const auto fill = [&](std::unique_ptr<Running>& place) -> absl::Status {
    while (place == nullptr && next < prompts.size()) {
      ContinuationOptions own = options;
      if (draws == Draws::kOwn) own.number += next;
      place = std::make_unique<Running>(next, model.tokenizer(), std::move(prompts[next]), own);
      ++next;
      RETURN_IF_ERROR(place->writer.Begin());
      if (!place->writer.ended()) break;
      in_order.Add(place->number, {std::move(place->text), 0, place->writer.ending()});
      place = nullptr;
    }
    return absl::OkStatus();
  };
  while (true) {
    std::vector<std::span<const int32_t>> texts;
    for (std::unique_ptr<Running>& place : places) {
      RETURN_IF_ERROR(fill(place));
      texts.push_back(place != nullptr ? place->writer.ids() : std::span<const int32_t>());
    }
    if (std::all_of(texts.begin(), texts.end(), [](const auto& text) { return text.empty(); })) {
      return absl::OkStatus();
    }
    model.Read(texts);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] == nullptr || !model.IsRead(i)) continue;
      Continuation& writer = places[i]->writer;
      RETURN_IF_ERROR(writer.Add(model.After(i)));
      if (!writer.ended()) continue;
      in_order.Add(places[i]->number,
                   {std::move(places[i]->text), writer.tokens(), writer.ending()});
      places[i] = nullptr;
      model.Forget(i);
    }
  }
}

}  // namespace trainyard
