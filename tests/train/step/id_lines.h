// Lines of conversations and of pairs of answers that are token ids already, so that tests need no
// tokenizer:
//   {"segments": [{"ids": [1, 2], "train": false}, {"ids": [3], "train": true}]}
//   {"prompt": [1, 2], "chosen": [3, 4], "rejected": [5]}

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/chat/line_encoder.h"

namespace trainyard::testing {

class IdLines final : public LineEncoding {
 public:
  explicit IdLines(std::string path) : path_(std::move(path)) {}

  std::unique_ptr<LineEncoder> NewEncoder() const override {
    struct Encoder final : LineEncoder {
      absl::Status Encode(absl::string_view line, EncodedLine& out) override {
        const auto json = nlohmann::json::parse(line);
        out.clear();
        const auto append = [&](const nlohmann::json& tokens, bool counts) {
          const auto ids = tokens.get<std::vector<int32_t>>();
          out.ids.insert(out.ids.end(), ids.begin(), ids.end());
          out.counts.resize(out.ids.size(), uint8_t(counts));
        };
        if (json.contains("segments")) {
          for (const auto& segment : json["segments"]) {
            append(segment.at("ids"), segment.at("train").get<bool>());
          }
          return absl::OkStatus();
        }
        for (const char* const side : {"chosen", "rejected"}) {
          out.rejected = out.ids.size();
          append(json.at("prompt"), false);
          append(json.at(side), true);
        }
        return absl::OkStatus();
      }
    };
    return std::make_unique<Encoder>();
  }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return path_; }  // Any file that is there.
  std::string tokenizer_sha256() const override { return ""; }

 private:
  const std::string path_;
  const std::string digest_ = std::string(64, 'a');
};

inline absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenIdLines(
    const LineEncodingOptions& options) {
  return std::make_shared<const IdLines>(options.tokenizer);
}

}  // namespace trainyard::testing
