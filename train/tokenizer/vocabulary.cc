#include "train/tokenizer/vocabulary.h"

#include "absl/strings/str_cat.h"
#include "common/shown.h"
#include "common/status_macros.h"

namespace trainyard {

absl::Status Vocabulary::Store(absl::string_view token, int64_t id) {
  if (id < 0 || id >= kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("token ", Shown(ValidUtf8(token)),
                                                   ": wanted an id of 0 to ", kMostTokens - 1,
                                                   ", found ", id));
  }
  if (size_t(id) >= tokens_.size()) tokens_.resize(size_t(id) + 1);
  if (const std::string* const other = TextOf(int32_t(id))) {
    return absl::InvalidArgumentError(absl::StrCat("token ", Shown(ValidUtf8(token)),
                                                   ": wanted an id of its own, found ", id,
                                                   ", the id of ", Shown(ValidUtf8(*other))));
  }
  tokens_[size_t(id)] = std::make_unique<const std::string>(token);
  return absl::OkStatus();
}

absl::Status Vocabulary::Add(absl::string_view token, int64_t id) {
  if (const auto other = Find(token)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token ", Shown(ValidUtf8(token)), ": wanted it once, found it as ", *other, " and ", id));
  }
  return AddSecond(token, id);
}

absl::Status Vocabulary::AddSecond(absl::string_view token, int64_t id) {
  RETURN_IF_ERROR(Store(token, id));
  ids_.emplace(*tokens_[size_t(id)], int32_t(id));  // Nothing happens if the text is there.
  return absl::OkStatus();
}

}  // namespace trainyard
