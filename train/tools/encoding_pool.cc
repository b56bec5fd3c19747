#include "train/tools/encoding_pool.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/utf8.h"
#include "train/chat/json_line.h"

namespace trainyard {
namespace {

absl::Status AtLine(const DocumentBlock& block, const DocumentPart& part,
                    const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat(block.input.path, ":", block.first_line + part.line, ": ", status.message()));
}

absl::StatusOr<std::string> TextOfLine(absl::string_view line, const std::string& field) {
  std::string valid;
  if (!IsUtf8(line)) {
    valid = ReplaceMalformed(line);
    line = valid;
  }
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonLine(line));
  const auto text = json.find(field);
  if (text != json.end() && text->is_string()) return text->get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat("wanted a text in the field ", VisibleUtf8(ValidUtf8(field)), ", found ",
                   text == json.end() ? "no such field" : absl::StrCat("a ", text->type_name())));
}

}  // namespace

// What a thread encodes with. `chat` is null unless documents are chats.
struct EncodingPool::Encoders {
  std::unique_ptr<Encoder> plain;
  std::unique_ptr<ChatEncoder> chat;
  EncodedLine line;
};

EncodingPool::EncodingPool(const Tokenizer& tokenizer, EncodingOptions options, int threads)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  CHECK(threads > 0) << threads;
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

EncodingPool::~EncodingPool() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void EncodingPool::Add(DocumentBlock block) {
  MutexLock lock(mutex_);
  work_.emplace_back(added_++, std::move(block));
  changed_.NotifyAll();
}

absl::StatusOr<EncodedBlock> EncodingPool::Take() {
  CHECK(waiting() > 0);
  MutexLock lock(mutex_);
  auto block = done_.find(taken_);
  for (; block == done_.end(); block = done_.find(taken_)) changed_.Wait(mutex_);
  absl::StatusOr<EncodedBlock> encoded = std::move(block->second);
  done_.erase(block);
  ++taken_;
  return encoded;
}

void EncodingPool::Run() {
  Encoders encoders{.plain = tokenizer_.NewEncoder(), .chat = nullptr, .line = {}};
  if (options_.chat != nullptr) encoders.chat = options_.chat->NewEncoder();
  MutexLock lock(mutex_);
  for (;;) {
    while (work_.empty() && !ends_) changed_.Wait(mutex_);
    if (ends_) return;
    const auto [number, block] = std::move(work_.front());
    work_.pop_front();
    lock.Unlock();
    absl::StatusOr<EncodedBlock> encoded = Encode(encoders, block);
    lock.Lock();
    done_.emplace(number, std::move(encoded));
    changed_.NotifyAll();
  }
}

absl::Status EncodingPool::EncodeDocument(Encoders& encoders, DocumentSplit split,
                                          absl::string_view document,
                                          std::vector<int32_t>& tokens) const {
  if (split == DocumentSplit::kChat) {
    RETURN_IF_ERROR(encoders.chat->Encode(document, encoders.line));
    tokens.insert(tokens.end(), encoders.line.ids.begin(), encoders.line.ids.end());
    return absl::OkStatus();
  }
  if (split != DocumentSplit::kJsonLines) return encoders.plain->Encode(document, tokens);
  ASSIGN_OR_RETURN(const std::string text, TextOfLine(document, options_.field));
  return encoders.plain->Encode(text, tokens);
}

absl::StatusOr<EncodedBlock> EncodingPool::Encode(Encoders& encoders,
                                                  const DocumentBlock& block) const {
  EncodedBlock encoded{.end = block.end, .bytes = int64_t(block.bytes.size())};
  for (const DocumentPart& part : CutDocuments(block.bytes, block.input.split)) {
    const size_t begin = encoded.tokens.size();
    encoded.tokens.insert(encoded.tokens.end(), options_.before.begin(), options_.before.end());
    const absl::Status status =
        EncodeDocument(encoders, block.input.split, part.bytes, encoded.tokens);
    if (!status.ok()) return AtLine(block, part, status);
    if (encoded.tokens.size() == begin + options_.before.size()) {
      encoded.tokens.resize(begin);
      continue;
    }
    encoded.tokens.insert(encoded.tokens.end(), options_.after.begin(), options_.after.end());
    const size_t length = encoded.tokens.size() - begin;
    if (length > size_t(std::numeric_limits<int32_t>::max())) {
      return AtLine(block, part, absl::OutOfRangeError("the document has 2^31 tokens or more"));
    }
    encoded.lengths.push_back(int32_t(length));
  }
  return encoded;
}

}  // namespace trainyard
