// The tokens of a vocabulary: text by id, and id by text.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

inline constexpr int64_t kMostTokens = 4'000'000;

// Not copyable, because its map points into its texts. Thread-safe once it is full.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // INVALID_ARGUMENT: the id is negative, kMostTokens or more, or taken, or the text is there.
  absl::Status Add(absl::string_view token, int64_t id);
  // Does the same, but another token may have the text: Find then returns the other one.
  absl::Status AddSecond(absl::string_view token, int64_t id);

  std::optional<int32_t> Find(absl::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // Returns null if there is no token of the id.
  const std::string* TextOf(int32_t id) const {
    return id < 0 || size_t(id) >= tokens_.size() ? nullptr : tokens_[size_t(id)].get();
  }
  int64_t size() const { return int64_t(ids_.size()); }    // How many texts there are.
  int64_t end() const { return int64_t(tokens_.size()); }  // One more than the largest id.

 private:
  absl::Status Store(absl::string_view token, int64_t id);

  std::vector<std::unique_ptr<const std::string>> tokens_;  // Null: there is no such id.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
};

}  // namespace trainyard
