// Lines of pairs of answers that are token ids already, so that tests need no tokenizer:
//   {"prompt": [1, 2], "chosen": [3, 4], "rejected": [5]}

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/chat/line_encoder.h"

namespace trainyard::testing {

class PairLines final : public LineEncoding {
 public:
  explicit PairLines(std::string path) : path_(std::move(path)) {}

  std::unique_ptr<LineEncoder> NewEncoder() const override {
    struct Encoder final : LineEncoder {
      absl::Status Encode(absl::string_view line, EncodedLine& out) override {
        const auto json = nlohmann::json::parse(line);
        out.clear();
        for (const char* const side : {"chosen", "rejected"}) {
          out.rejected = out.ids.size();
          for (const char* const part : {"prompt", side}) {
            const auto ids = json.at(part).get<std::vector<int32_t>>();
            out.ids.insert(out.ids.end(), ids.begin(), ids.end());
            out.counts.resize(out.ids.size(), uint8_t(part == side));
          }
        }
        return absl::OkStatus();
      }
    };
    return std::make_unique<Encoder>();
  }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return path_; }  // Any file that is there.

 private:
  const std::string path_;
  const std::string digest_ = std::string(64, 'a');
};

inline absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenPairLines(
    const LineEncodingOptions& options) {
  return std::make_shared<const PairLines>(options.tokenizer);
}

}  // namespace trainyard::testing
