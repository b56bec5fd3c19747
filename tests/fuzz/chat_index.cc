// The index beside a file of chats, whose size, time and checksum are right: so all that follows
// them is believed as far as it can be. The first byte says whether there are pairs, and the rest
// is the arrays. Whatever the arrays say, samples have their length, and a sample that cannot be
// read says why.

#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32.h"
#include "models/language_model.h"
#include "tests/fuzz/input.h"
#include "train/chat/line_encoder.h"
#include "train/data/chat.h"
#include "train/data/line_index.h"

namespace trainyard {
namespace {

constexpr int64_t kSequence = 12;
constexpr char kChats[] = "abcde\nfg\n\nhijklmnopqrstuvw\nxyz\n";

// Each byte is a token, and all but the first count.
class BytesOfLines final : public LineEncoding {
 public:
  std::unique_ptr<LineEncoder> NewEncoder() const override { return std::make_unique<Each>(); }
  const std::string& digest() const override { return digest_; }
  const std::string& tokenizer_path() const override { return path_; }
  std::string tokenizer_sha256() const override { return ""; }

 private:
  class Each final : public LineEncoder {
   public:
    absl::Status Encode(absl::string_view line, EncodedLine& out) override {
      out.clear();
      for (const char c : line) out.ids.push_back(uint8_t(c));
      out.counts.assign(line.size(), 1);
      return absl::OkStatus();
    }
  };
  const std::string digest_ = std::string(64, 'd'), path_ = "bytes";
};

// As train/data/line_index.cc writes it.
std::string Header(const std::string& chats, uint64_t lines, bool pairs, absl::string_view arrays) {
  struct stat info;
  CHECK(::stat(chats.c_str(), &info) == 0) << chats;
  struct {
    char magic[8] = {'T', 'Y', 'L', 'I', 'N', 'E', 'S', '3'};
    uint64_t file_bytes = 0;
    int64_t changed_ns = 0;
    uint64_t lines = 0;
    uint32_t crc = 0;
    char encoding[64] = {};
    uint32_t pairs = 0;
  } header;
  static_assert(sizeof(header) == 104);
  header.file_bytes = uint64_t(info.st_size);
  header.changed_ns = info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec;
  header.lines = lines;
  header.crc = arrays.empty() ? 0 : Crc32(0, arrays.data(), arrays.size());
  std::memset(header.encoding, 'd', sizeof(header.encoding));
  header.pairs = pairs;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

void CheckSamples(const Dataset& dataset) {
  for (int64_t index = 0; index < 4; ++index) {
    std::vector<InputData> inputs(dataset.inputs().size(), std::vector<int32_t>());
    const absl::Status status = dataset.Read({.index = index}, inputs);
    if (!status.ok()) {
      fuzz::CheckRefusal(status);
      continue;
    }
    for (const InputData& input : inputs) {
      CHECK(std::get<std::vector<int32_t>>(input).size() == kSequence);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string chats = fuzz::FileOf("chats.txt", kChats);
  fuzz::Input input(data, size);
  const bool pairs = (input.Byte() & 1) != 0;
  const size_t line_bytes = pairs ? 24 : 16;
  const std::string rest(input.Rest());
  const uint64_t lines = rest.size() / line_bytes;
  const absl::string_view arrays = absl::string_view(rest).substr(0, lines * line_bytes);
  const auto encoding = std::make_shared<const BytesOfLines>();
  fuzz::FileOf(absl::StrCat("chats.txt.", encoding->digest().substr(0, 12), kLineIndexSuffix),
               absl::StrCat(Header(chats, lines, pairs, arrays), arrays));
  for (const TooLong too_long : {TooLong::kCut, TooLong::kDrop}) {
    const auto splits = OpenData(
        {.source =
             ChatData{
                 .path = chats, .tokenizer = "bytes", .format = "chatml", .too_long = too_long},
         .inputs = TokenInputs(256),
         .sequence = kSequence,
         .roots = Roots(),
         .open_lines = [&](const LineEncodingOptions&) {
           return std::shared_ptr<const LineEncoding>(encoding);
         }});
    if (!splits.ok()) {
      fuzz::CheckRefusal(splits.status());
    } else {
      CheckSamples(*splits->train);
    }
  }
  return 0;
}

}  // namespace trainyard
