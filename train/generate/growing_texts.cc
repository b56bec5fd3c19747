#include "train/generate/growing_texts.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "models/model.h"
#include "models/program/input.h"

namespace trainyard {
namespace {

// With how many tokens a piece of a text takes as long by itself as one by one beside other texts.
// Reading the weights takes as long as the products of some 8 rows, as a CPU of 2026 has it.
int64_t AloneFrom(int64_t at_once, int64_t texts) {
  constexpr int64_t kRowsOfWeights = 8;
  return texts == 1 ? 1 : std::max<int64_t>(1, at_once * texts / (texts + kRowsOfWeights));
}

}  // namespace

GrowingTexts::GrowingTexts(Executable& executable, Replay replay, int64_t texts)
    : replay_(
          replay
              ? replay
              : [&executable](
                    int chunk,
                    std::span<const NewToken> tokens) { ReplayTokens(executable, chunk, tokens); }),
      cache_(executable.program().cache),
      at_once_(executable.program().sequence),
      kept_(size_t(executable.program().cached_texts)),
      rows_(RowsOfText(cache_)),
      alone_(AloneFrom(at_once_, texts > 0 ? texts : int64_t(kept_))),
      seen_(texts > 0 ? size_t(texts) : kept_) {
  CHECK(cache_ > 0) << "a program without a cache";
  CHECK(seen_.size() <= kept_) << seen_.size() << " texts of a program for " << kept_;
  if (!replay) ZeroCaches(executable);
}

void GrowingTexts::Read(std::span<const std::span<const int32_t>> texts,
                        const std::function<void(const Rows&)>& use) {
  CHECK(texts.size() <= places()) << texts.size() << " texts at " << places() << " places";
  std::vector<NewToken> next(kept_);
  Rows together = {"logits", {}};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    const int64_t size = int64_t(texts[i].size()), half = std::max<int64_t>(1, cache_ / 2);
    const int64_t begin = size <= cache_ ? 0 : (size - cache_ + half - 1) / half * half;
    const std::span<const int32_t> visible = texts[i].subspan(size_t(begin));
    std::vector<int32_t>& seen = seen_[i];
    // Pieces of another size would round otherwise, so only what was added is read.
    const bool grown =
        seen.size() < visible.size() && std::equal(seen.begin(), seen.end(), visible.begin());
    if (!grown) Forget(i);
    int64_t row = 0;
    while (int64_t(visible.size() - seen.size()) > alone_) {
      const size_t several = std::min(size_t(at_once_), visible.size() - seen.size());
      ReadSeveral(i, visible.subspan(seen.size(), several));
      row = int64_t(several) - 1;
    }
    if (seen.size() == visible.size()) {
      use({kSeveralLogits, {{i, row}}});
      continue;
    }
    next[i] = {.token = visible[seen.size()],
               .position = int64_t(seen.size()),
               .first_row = 0,
               .cache_row = int64_t(i) * rows_};
    seen.push_back(next[i].token);
    if (seen.size() == visible.size()) together.of_places.push_back({i, int64_t(i)});
  }
  if (std::all_of(next.begin(), next.end(), [](const NewToken& of) { return of.position < 0; })) {
    return;
  }
  replay_(1, next);
  if (!together.of_places.empty()) use(together);
}

void GrowingTexts::ReadSeveral(size_t place, std::span<const int32_t> tokens) {
  std::vector<int32_t>& seen = seen_[place];
  const int64_t first = int64_t(place) * rows_;
  std::vector<NewToken> several;
  for (const int32_t token : tokens) {
    several.push_back(
        {.token = token, .position = int64_t(seen.size()), .first_row = first, .cache_row = first});
    seen.push_back(token);
  }
  several.resize(size_t(at_once_));
  replay_(0, several);
}

void ZeroCaches(Executable& executable) {
  for (const auto& [name, value] : executable.program().inputs) {
    if (absl::StartsWith(name, kCache)) executable.ZeroInput(value, 0);
  }
}

void ReplayTokens(Executable& executable, int chunk, std::span<const NewToken> tokens) {
  const size_t count = tokens.size();
  std::vector<int32_t> ids(count), positions(count), rows(count, -1), begins(count), ends(count);
  // Tokens that nobody reads follow the others of a text, and see nothing.
  int64_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    const NewToken& of = tokens[i];
    if (of.position < 0) {
      begins[i] = ends[i] = int32_t(chunk == 0 ? last : 0);
      continue;
    }
    ids[i] = of.token;
    positions[i] = int32_t(of.position);
    rows[i] = int32_t(of.cache_row + of.position);
    last = of.first_row + of.position + 1;
    ends[i] = int32_t(last);
  }
  const Program& program = executable.program();
  const size_t own = count / size_t(program.mesh.size(kTensorAxes));
  const size_t first = own * size_t(program.mesh.coordinate(kTensorAxes));
  for (const auto& [name, value] : program.inputs) {
    if (program.chunk_of(program.info(value).block) != chunk) continue;
    if (name == "tokens") executable.WriteInput(value, 0, ids);
    if (name == kCachePositions) executable.WriteInput(value, 0, positions);
    if (name == kOwnCachePositions) {
      executable.WriteInput(value, 0, std::span<const int32_t>(positions).subspan(first, own));
    }
    if (name == kCacheRows) executable.WriteInput(value, 0, rows);
    if (name == kCacheEnds) executable.WriteInput(value, 0, ends);
    absl::string_view window_text = name;
    if (!absl::ConsumePrefix(&window_text, kCacheBegins)) continue;
    int64_t window = 0;
    CHECK(absl::SimpleAtoi(window_text, &window)) << name;
    for (size_t i = 0; i < count; ++i) {
      const NewToken& of = tokens[i];
      if (of.position < 0) continue;
      const int64_t unseen = window > 0 ? std::max<int64_t>(0, of.position + 1 - window) : 0;
      begins[i] = int32_t(of.first_row + unseen);
    }
    executable.WriteInput(value, 0, begins);
  }
  executable.Run(Action::kForward, {.chunk = chunk});
}

}  // namespace trainyard
