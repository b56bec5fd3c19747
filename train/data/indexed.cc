#include "train/data/indexed.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "train/data/indexed_format.h"
#include "train/data/token_stream.h"
#include "train/tokenizer/tokenizer_files.h"

namespace trainyard {
namespace {

// Sequences whose lengths and offsets are read together, and between which a running sum of tokens
// is kept.
constexpr uint64_t kBlock = 64;
constexpr uint64_t kRun = 8192;  // Sequences whose lengths are read together, one after the other.

template <typename... Parts>
absl::Status Damaged(const std::string& path, const Parts&... what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what...));
}

struct IndexHeader {
  IndexDType dtype = IndexDType::kUint16;
  uint64_t sequences = 0;
  uint64_t documents = 0;  // Length of the document index, minus one.

  uint64_t LengthsAt() const { return kIndexHeaderBytes; }
  uint64_t OffsetsAt() const { return LengthsAt() + 4 * sequences; }
  uint64_t DocumentsAt() const { return OffsetsAt() + 8 * sequences; }
};

absl::StatusOr<IndexHeader> ReadHeader(const InputFile& index) {
  if (index.size() < kIndexHeaderBytes) {
    return Damaged(index.path(), "wanted a header of ", kIndexHeaderBytes, " bytes, found ",
                   index.size());
  }
  char bytes[kIndexHeaderBytes];
  RETURN_IF_ERROR(index.ReadAt(0, bytes, sizeof(bytes)));
  if (std::memcmp(bytes, kIndexMagic, sizeof(kIndexMagic)) != 0) {
    return Damaged(index.path(), "does not begin with MMIDIDX: not a Megatron index");
  }
  uint64_t version = 0, boundaries = 0;
  IndexHeader header;
  std::memcpy(&version, bytes + 9, 8);
  std::memcpy(&header.dtype, bytes + 17, 1);
  std::memcpy(&header.sequences, bytes + 18, 8);
  std::memcpy(&boundaries, bytes + 26, 8);
  if (version != kIndexVersion) {
    return Damaged(index.path(), "wanted version ", kIndexVersion, ", found ", version);
  }
  if (TokenBytes(header.dtype) == 0) {
    return Damaged(index.path(), "wanted an integer dtype code (1 to 5 or 8), found ",
                   int(header.dtype));
  }
  // The first two comparisons keep the third from overflowing.
  const uint64_t size = index.size();
  if (header.sequences > size / 12 || boundaries > size / 8 ||
      size != kIndexHeaderBytes + 12 * header.sequences + 8 * boundaries) {
    return Damaged(index.path(), "the size ", size, " does not fit ", header.sequences,
                   " sequences and ", boundaries,
                   " document boundaries: truncated, or not a Megatron index");
  }
  if (boundaries < 2) return Damaged(index.path(), "holds no document");
  header.documents = boundaries - 1;
  return header;
}

class IndexedStream final : public TokenStream {
 public:
  static absl::StatusOr<std::unique_ptr<IndexedStream>> Open(const IndexedData& source,
                                                             int64_t vocab, const Roots& roots) {
    ASSIGN_OR_RETURN(InputFile index, InputFile::Open(source.prefix + kIndexSuffix, roots));
    ASSIGN_OR_RETURN(InputFile tokens, InputFile::Open(source.prefix + kTokensSuffix, roots));
    ASSIGN_OR_RETURN(const IndexHeader header, ReadHeader(index));
    std::unique_ptr<IndexedStream> stream(
        new IndexedStream(std::move(index), std::move(tokens), header, vocab));
    RETURN_IF_ERROR(stream->CheckSequences());
    RETURN_IF_ERROR(stream->CheckDocuments());
    return stream;
  }

  int64_t num_tokens() const override { return tokens_before_.back(); }
  int64_t vocab() const override { return vocab_; }
  IndexDType dtype() const override { return header_.dtype; }
  int64_t num_documents() const override { return int64_t(header_.documents); }

  // Tokens before a document. Of the document after the last one, all tokens.
  absl::StatusOr<int64_t> DocumentStart(uint64_t document) const {
    int64_t start = 0;
    RETURN_IF_ERROR(ReadDocumentStarts(int64_t(document), std::span(&start, 1)));
    return start;
  }

  // Reads the lengths of the documents' sequences in runs.
  absl::Status ReadDocumentStarts(int64_t first, std::span<int64_t> out) const override {
    std::vector<int64_t> sequences(out.size());
    RETURN_IF_ERROR(index_.ReadAt(header_.DocumentsAt() + 8 * uint64_t(first), sequences.data(),
                                  8 * sequences.size()));
    uint64_t at = uint64_t(sequences[0]) / kBlock * kBlock;  // The next sequence to be counted.
    if (at > header_.sequences) return Damaged(index_.path(), "changed after it was opened");
    int64_t tokens = tokens_before_[at / kBlock];
    std::vector<int32_t> lengths;
    uint64_t end = at;  // Of the lengths that were read.
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t sequence = uint64_t(sequences[i]);
      if (sequence < at || sequence > header_.sequences) {
        return Damaged(index_.path(), "changed after it was opened");
      }
      for (; at < sequence; ++at) {
        if (at == end) {
          const uint64_t last = uint64_t(sequences.back());
          lengths.resize(size_t(std::clamp<uint64_t>(last, at + 1, at + kRun) - at));
          RETURN_IF_ERROR(
              index_.ReadAt(header_.LengthsAt() + 4 * at, lengths.data(), 4 * lengths.size()));
          end = at + lengths.size();
        }
        tokens += lengths[lengths.size() - size_t(end - at)];
      }
      out[i] = tokens;
    }
    return absl::OkStatus();
  }

  absl::Status ReadDocumentBegins(int64_t first, std::span<int32_t> out) const override {
    ASSIGN_OR_RETURN(uint64_t document, DocumentAfter(first));
    for (int64_t begin = 0, size = int64_t(out.size()); begin < size; ++document) {
      ASSIGN_OR_RETURN(const int64_t start, DocumentStart(document));
      const int64_t end = std::clamp(start - first, begin, size);
      std::fill(out.begin() + begin, out.begin() + end, int32_t(begin));
      begin = end;
    }
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, std::span<int32_t> out) const override {
    CHECK(first >= 0 && first + int64_t(out.size()) <= num_tokens()) << first << ", " << out.size();
    const auto after = std::upper_bound(tokens_before_.begin(), tokens_before_.end(), first);
    uint64_t block = uint64_t(after - tokens_before_.begin()) - 1;
    int64_t skip = first - tokens_before_[block];
    for (; !out.empty(); ++block) {
      if (block * kBlock >= header_.sequences)
        return Damaged(index_.path(), "changed after it was opened");
      ASSIGN_OR_RETURN(const Entries entries, ReadBlock(block));
      for (size_t i = 0; i < entries.lengths.size() && !out.empty(); ++i) {
        const int64_t length = entries.lengths[i];
        if (skip >= length) {
          skip -= length;
          continue;
        }
        const size_t count = std::min(out.size(), size_t(length - skip));
        const uint64_t at =
            uint64_t(entries.offsets[i]) + uint64_t(skip) * TokenBytes(header_.dtype);
        RETURN_IF_ERROR(ReadTokens(at, block * kBlock + i, out.first(count)));
        out = out.subspan(count);
        skip = 0;
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Entries {
    std::vector<int32_t> lengths;
    std::vector<int64_t> offsets;
  };

  IndexedStream(InputFile index, InputFile tokens, IndexHeader header, int64_t vocab)
      : index_(std::move(index)), tokens_(std::move(tokens)), header_(header), vocab_(vocab) {}

  // The first document that begins after a token; documents() if there is none.
  absl::StatusOr<uint64_t> DocumentAfter(int64_t token) const {
    uint64_t low = 0, high = header_.documents;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      ASSIGN_OR_RETURN(const int64_t start, DocumentStart(middle));
      if (start > token) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Lengths and offsets of the block's sequences; the last block may have fewer, down to none.
  absl::StatusOr<Entries> ReadBlock(uint64_t block) const {
    const uint64_t first = block * kBlock;
    const size_t count =
        size_t(std::min(kBlock, header_.sequences - std::min(first, header_.sequences)));
    Entries entries{std::vector<int32_t>(count), std::vector<int64_t>(count)};
    RETURN_IF_ERROR(
        index_.ReadAt(header_.LengthsAt() + 4 * first, entries.lengths.data(), 4 * count));
    RETURN_IF_ERROR(
        index_.ReadAt(header_.OffsetsAt() + 8 * first, entries.offsets.data(), 8 * count));
    return entries;
  }

  absl::Status CheckSequences() {
    const uint64_t token_bytes = TokenBytes(header_.dtype);
    int64_t total = 0;
    for (uint64_t first = 0; first < header_.sequences; first += kBlock) {
      tokens_before_.push_back(total);
      ASSIGN_OR_RETURN(const Entries entries, ReadBlock(first / kBlock));
      for (size_t i = 0; i < entries.lengths.size(); ++i) {
        const int64_t length = entries.lengths[i], offset = entries.offsets[i];
        if (length < 0) {
          return Damaged(index_.path(), "sequence ", first + i, " has the length ", length);
        }
        const uint64_t bytes = uint64_t(length) * token_bytes;
        if (offset < 0 || bytes > tokens_.size() || uint64_t(offset) > tokens_.size() - bytes) {
          return Damaged(tokens_.path(), "sequence ", first + i, " (", length, " tokens at byte ",
                         offset, ") ends beyond the file's ", tokens_.size(), " bytes: truncated?");
        }
        if (__builtin_add_overflow(total, length, &total)) {
          return Damaged(index_.path(), "has more tokens than can be counted");
        }
      }
    }
    tokens_before_.push_back(total);
    return absl::OkStatus();
  }

  absl::Status CheckDocuments() const {
    constexpr uint64_t kChunk = 8192;
    std::vector<int64_t> boundaries;
    int64_t previous = 0;
    for (uint64_t first = 0; first <= header_.documents; first += kChunk) {
      boundaries.resize(size_t(std::min(kChunk, header_.documents + 1 - first)));
      RETURN_IF_ERROR(index_.ReadAt(header_.DocumentsAt() + 8 * first, boundaries.data(),
                                    8 * boundaries.size()));
      if (first == 0 && boundaries[0] != 0) {
        return Damaged(index_.path(), "the first document begins at sequence ", boundaries[0],
                       ", not 0");
      }
      for (size_t i = 0; i < boundaries.size(); ++i) {
        if (boundaries[i] < previous || uint64_t(boundaries[i]) > header_.sequences) {
          return Damaged(index_.path(), "document boundary ", first + i, " is ", boundaries[i],
                         ", wanted ", previous, " to ", header_.sequences);
        }
        previous = boundaries[i];
      }
    }
    if (uint64_t(previous) != header_.sequences) {
      return Damaged(index_.path(), "the last document ends at sequence ", previous, " of ",
                     header_.sequences);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTokens(uint64_t at, uint64_t sequence, std::span<int32_t> out) const {
    switch (header_.dtype) {
      case IndexDType::kUint8:
        return ReadAs<uint8_t>(at, sequence, out);
      case IndexDType::kInt8:
        return ReadAs<int8_t>(at, sequence, out);
      case IndexDType::kInt16:
        return ReadAs<int16_t>(at, sequence, out);
      case IndexDType::kUint16:
        return ReadAs<uint16_t>(at, sequence, out);
      case IndexDType::kInt32:
        return ReadAs<int32_t>(at, sequence, out);
      case IndexDType::kInt64:
        return ReadAs<int64_t>(at, sequence, out);
      default:
        return Damaged(index_.path(), "dtype");
    }
  }

  template <typename T>
  absl::Status ReadAs(uint64_t at, uint64_t sequence, std::span<int32_t> out) const {
    std::vector<T> raw(out.size());
    RETURN_IF_ERROR(tokens_.ReadAt(at, raw.data(), raw.size() * sizeof(T)));
    for (size_t i = 0; i < raw.size(); ++i) {
      const int64_t token = int64_t(raw[i]);
      if (token < 0 || token >= vocab_) {
        return absl::OutOfRangeError(absl::StrCat(
            tokens_.path(), ": token ", token, " at byte ", at + i * sizeof(T), " (sequence ",
            sequence, "), wanted 0 to ", vocab_ - 1, ", the model's vocabulary"));
      }
      out[i] = int32_t(token);
    }
    return absl::OkStatus();
  }

  const InputFile index_;
  const InputFile tokens_;
  const IndexHeader header_;
  const int64_t vocab_;
  std::vector<int64_t> tokens_before_;  // Of each block of sequences; last, of the end.
};

void VisitIndexed(DataConfig& data, SourceVisit visit) {
  IndexedData& indexed = data.As<IndexedData>();
  visit(PrefixRule(), &indexed.prefix);
  visit({.name = "validation_fraction"}, &indexed.validation_fraction);
  visit({.name = "reset_attention_mask"}, &indexed.reset_attention_mask);
  visit({.name = "eod_mask_loss"}, &indexed.eod_mask_loss);
}

SourceFacts IndexedFacts(const DataConfig& data) {
  const IndexedData& indexed = data.As<IndexedData>();
  return {.inputs = DeliveredTokens(),
          .validation_fraction = indexed.validation_fraction,
          .of_token_files = true,
          .reset_attention_mask = indexed.reset_attention_mask};
}

absl::StatusOr<DataSplits> OpenIndexedSamples(const DataConfig& data, const DataOptions& options) {
  const IndexedData& indexed = data.As<IndexedData>();
  ASSIGN_OR_RETURN(const SplitStream split,
                   OpenIndexed(indexed, VocabularyOf(options), options.roots));
  ASSIGN_OR_RETURN(DataSplits splits,
                   CutStream(split, options.sequence,
                             {.reset_attention_mask = indexed.reset_attention_mask,
                              .eod_mask_loss = indexed.eod_mask_loss}));
  splits.streams = {split.stream};
  ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizerOf(indexed.prefix, options));
  RETURN_IF_ERROR(AddTokenizer(tokenizer, splits));
  return splits;
}

}  // namespace

SourceRule PrefixRule() { return {.name = "prefix", .files = {kIndexSuffix, kTokensSuffix}}; }

const DataSource& IndexedSource() {
  static const DataSource kSource = {.name = "indexed",
                                     .example = "indexed: {prefix: ...}",
                                     .make = [] { return DataConfig(IndexedData()); },
                                     .visit = VisitIndexed,
                                     .facts = IndexedFacts,
                                     .open = OpenIndexedSamples};
  return kSource;
}

absl::StatusOr<SplitStream> OpenIndexed(const IndexedData& source, int64_t vocab,
                                        const Roots& roots) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const IndexedStream> stream,
                   IndexedStream::Open(source, vocab, roots));
  int64_t split = stream->num_tokens();
  if (source.validation_fraction > 0) {
    const uint64_t documents = uint64_t(stream->num_documents());
    const uint64_t held_out =
        std::max<uint64_t>(1, uint64_t(source.validation_fraction * double(documents)));
    if (held_out >= documents) {
      return absl::InvalidArgumentError(
          absl::StrCat(source.prefix, ".idx: validation_fraction ", source.validation_fraction,
                       " holds out ", held_out, " of ", documents,
                       " documents: nothing is left to train on; "
                       "write several documents, or give no validation_fraction"));
    }
    ASSIGN_OR_RETURN(split, stream->DocumentStart(documents - held_out));
  }
  return SplitStream{.stream = stream, .file = source.prefix + kTokensSuffix, .split = split};
}

absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenTokenizerOf(const std::string& prefix,
                                                                    const DataOptions& options) {
  const auto directory = options.roots.FindDirectory(prefix + kTokenizerSuffix);
  if (absl::IsNotFound(directory.status())) return nullptr;
  RETURN_IF_ERROR(directory.status());
  const std::string vocabulary = FindVocabulary(*directory);
  if (vocabulary.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*directory, ": wanted the file of the tokenizer that made the tokens, as ",
                     "trainyard-tokenize writes it, found none; remove the directory if nobody ",
                     "knows the tokenizer"));
  }
  CHECK(options.open_lines != nullptr) << "nothing opens tokenizers";
  return options.open_lines({.tokenizer = vocabulary,
                             .vocab = VocabularyOf(options),
                             .texts = true,
                             .roots = options.roots});
}

absl::Status AddTokenizer(const std::shared_ptr<const LineEncoding>& encoding, DataSplits& splits) {
  if (encoding == nullptr) return absl::OkStatus();
  if (!splits.tokenizer.empty() && splits.tokenizer_sha256 != encoding->tokenizer_sha256()) {
    return absl::InvalidArgumentError(absl::StrCat(
        encoding->tokenizer_path(), ": wanted the tokenizer of the other datasets, as ",
        splits.tokenizer, ", found another; make the datasets with one tokenizer"));
  }
  splits.encoding = encoding->digest();
  splits.tokenizer = encoding->tokenizer_path();
  splits.tokenizer_sha256 = encoding->tokenizer_sha256();
  return absl::OkStatus();
}

}  // namespace trainyard
