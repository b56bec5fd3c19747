#include "train/tools/tokenize.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/files.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/sha256.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tools/encoding_pool.h"
#include "train/tools/indexed_writer.h"
#include "train/tools/prefix_lock.h"

namespace trainyard {
namespace {

constexpr int64_t kMegatronMostUint16 = 65500;  // Vocabularies below this have uint16.
constexpr char kStateSuffix[] = ".state";

// How far the temporary files go.
struct CorpusState {
  std::string identity;  // Of inputs, options and tokenizer.
  int64_t input = 0, offset = 0, line = 1;
  int64_t documents = 0, tokens = 0;
};

template <typename V>
void VisitFields(V& v, CorpusState& state) {
  v.Version(1);
  v("identity", state.identity);
  v.Whole("input", state.input), v.Whole("offset", state.offset), v.Whole("line", state.line);
  v.Whole("documents", state.documents), v.Whole("tokens", state.tokens);
}

void AddPart(std::string& identity, absl::string_view part) {
  absl::StrAppend(&identity, part.size(), ":", part, ",");
}

DocumentSplit SplitOf(const CorpusOptions& options, const std::string& path) {
  return options.split.value_or(SplitOfName(path));
}

// Returns the sizes of the inputs. Opens each for its error message.
absl::StatusOr<std::vector<int64_t>> SizesOf(const std::vector<std::string>& inputs) {
  std::vector<int64_t> sizes;
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const std::string& path : inputs) {
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
    sizes.push_back(int64_t(file.size()));
    struct stat about;
    if (::stat(path.c_str(), &about) != 0) return ErrnoStatus(errno, "open", path);
    const auto [first, fresh] = seen.try_emplace({about.st_dev, about.st_ino}, path);
    if (fresh) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": wanted each input once, found the same file before",
                     first->second == path ? "" : absl::StrCat(", as ", first->second),
                     "; to train more often on one, give it a weight in data.blend"));
  }
  return sizes;
}

// A digest of all that decides on the tokens.
absl::StatusOr<std::string> IdentityOf(const CorpusOptions& options) {
  std::string identity;
  // Another program may read the same tokenizer in another way.
  for (const absl::string_view part :
       {absl::string_view(Version()), absl::string_view(Revision()),
        absl::string_view(options.field), absl::string_view(options.before),
        absl::string_view(options.after), absl::string_view(options.tokenizer)}) {
    AddPart(identity, part);
  }
  if (options.chat != nullptr) {
    const auto& [format, settings] = options.chat->chosen();
    for (const absl::string_view part :
         {absl::string_view(format == nullptr ? kNoChatFormat : format->name),
          absl::string_view(settings.begin), absl::string_view(settings.end),
          absl::string_view(settings.date)}) {
      AddPart(identity, part);
    }
  }
  for (const std::string& path : options.inputs) {
    struct stat about;
    if (::stat(path.c_str(), &about) != 0) return ErrnoStatus(errno, "open", path);
    AddPart(identity, path);
    AddPart(identity, absl::StrCat(int(SplitOf(options, path))));
    AddPart(identity,
            absl::StrCat(about.st_size, " ", about.st_mtim.tv_sec, " ", about.st_mtim.tv_nsec));
  }
  return Sha256Of(identity);
}

absl::StatusOr<CorpusState> ReadState(const std::string& path, const std::string& identity) {
  CorpusState state;
  if (!Exists(path)) {
    state.identity = identity;
    return state;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 16));
  auto json = ParseUniqueJson(text);
  const absl::Status read = json.ok() ? ReadFields(*json, state) : json.status();
  if (!read.ok()) return absl::DataLossError(absl::StrCat(path, ": ", read.message()));
  if (state.identity == identity) return state;
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   ": wanted to go on with the inputs, the options, the tokenizer and the program "
                   "of the run that was interrupted, found others; remove the file to begin anew"));
}

absl::StatusOr<std::unique_ptr<IndexedWriter>> GoOn(PrefixLock lock, IndexDType dtype,
                                                    const CorpusState& state,
                                                    const std::string& state_path) {
  auto writer = IndexedWriter::Resume(std::move(lock), dtype, state.documents, state.tokens);
  if (writer.ok()) return writer;
  return absl::Status(writer.status().code(),
                      absl::StrCat(writer.status().message(), "; ", state_path,
                                   " goes with that file: remove ", state_path, " to begin anew"));
}

absl::Status PreparePrefix(const std::string& prefix) {
  const std::filesystem::path out(prefix);
  if (out.filename().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted where to write and a name, as data/corpus, found '", prefix, "'"));
  }
  return out.has_parent_path() ? MakeDirectories(out.parent_path()) : absl::OkStatus();
}

// Whether a run was interrupted when PREFIX.idx was there and PREFIX.state was not yet removed.
bool OnlyStateIsLeft(const std::string& prefix) {
  return Exists(prefix + kStateSuffix) && Exists(prefix + ".idx") && Exists(prefix + ".bin") &&
         !Exists(prefix + ".bin.tmp");
}

absl::Status CheckNoDataset(const std::string& prefix) {
  const bool resumes = Exists(prefix + kStateSuffix);
  for (const char* suffix : {kIndexSuffix, kTokensSuffix, kTokenizerSuffix}) {
    const std::string old = prefix + suffix;
    // A run that was interrupted at its very end has left a PREFIX.bin.
    if (!Exists(old) || (resumes && !Exists(prefix + ".idx"))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(old,
                     ": wanted a prefix without files, found one; remove it first, or take "
                     "another prefix"));
  }
  return absl::OkStatus();
}

// Writes PREFIX.tokenizer/, by which jobs know what the tokens mean.
absl::Status WriteTokenizerOf(const CorpusOptions& options) {
  if (options.tokenizer_files.empty()) return absl::OkStatus();
  const std::string directory = options.prefix + kTokenizerSuffix;
  RETURN_IF_ERROR(MakeDirectories(directory));
  for (const auto& [name, text] : options.tokenizer_files) {
    RETURN_IF_ERROR(WriteFileAtomic(absl::StrCat(directory, "/", name), text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> IdsOf(const Tokenizer& tokenizer, const std::string& token) {
  if (token.empty()) return std::vector<int32_t>();
  const auto id = tokenizer.Find(token);
  if (id) return std::vector<int32_t>{*id};
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a token of the tokenizer to put around documents, found ", Shown(token)));
}

// Reads, encodes and writes from a state on.
class CorpusRun {
 public:
  CorpusRun(const CorpusOptions& options, const std::vector<int64_t>& sizes, IndexedWriter& writer,
            CorpusState state)
      : options_(options), sizes_(sizes), writer_(writer), state_(std::move(state)) {}

  // Returns whether the inputs are at their end.
  absl::StatusOr<bool> Work(const Tokenizer& tokenizer, EncodingOptions encoding,
                            const std::function<bool()>& stop) {
    EncodingPool pool(tokenizer, std::move(encoding), options_.threads);
    std::vector<CorpusInput> inputs;
    for (const std::string& path : options_.inputs) {
      inputs.push_back({path, SplitOf(options_, path)});
    }
    DocumentBlockReader reader(std::move(inputs), {state_.input, state_.offset, state_.line},
                               options_.block_bytes);
    TellProgress();
    bool reads = true, stopped = false;
    for (int64_t unsynced = 0;;) {
      while (reads && pool.waiting() < 2 * options_.threads) {
        ASSIGN_OR_RETURN(std::optional<DocumentBlock> block, reader.Next());
        reads = block.has_value();
        if (reads) pool.Add(*std::move(block));
      }
      if (pool.waiting() == 0) break;
      ASSIGN_OR_RETURN(const EncodedBlock block, pool.Take());
      RETURN_IF_ERROR(Write(block));
      TellProgress();
      unsynced += block.bytes;
      stopped = stop();
      if (stopped) break;
      if (unsynced < options_.sync_bytes) continue;
      RETURN_IF_ERROR(SaveState());
      unsynced = 0;
    }
    if (stopped || writer_.documents() > 0) RETURN_IF_ERROR(SaveState());
    return !stopped;
  }

 private:
  absl::Status Write(const EncodedBlock& block) {
    std::span<const int32_t> tokens = block.tokens;
    for (const int32_t length : block.lengths) {
      RETURN_IF_ERROR(writer_.AddDocument(tokens.first(size_t(length))));
      tokens = tokens.subspan(size_t(length));
    }
    state_.input = block.end.input;
    state_.offset = block.end.offset;
    state_.line = block.end.line;
    return absl::OkStatus();
  }

  void TellProgress() const {
    const auto first = sizes_.begin(), at = first + state_.input;
    options_.progress({.bytes = std::accumulate(first, at, state_.offset),
                       .all_bytes = std::accumulate(first, sizes_.end(), int64_t{0}),
                       .documents = writer_.documents(),
                       .tokens = writer_.tokens()});
  }

  absl::Status SaveState() {
    RETURN_IF_ERROR(writer_.Sync());
    state_.documents = writer_.documents();
    state_.tokens = writer_.tokens();
    nlohmann::json json;
    WriteFields(json, state_);
    return WriteFileAtomic(options_.prefix + kStateSuffix, JsonText(json));
  }

  const CorpusOptions& options_;
  const std::vector<int64_t>& sizes_;
  IndexedWriter& writer_;
  CorpusState state_;
};

}  // namespace

absl::StatusOr<TokenizedCorpus> TokenizeCorpus(const Tokenizer& tokenizer,
                                               const CorpusOptions& options,
                                               const std::function<bool()>& stop) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOf(options.inputs));
  RETURN_IF_ERROR(PreparePrefix(options.prefix));
  // Before anything is read that another run could change.
  ASSIGN_OR_RETURN(PrefixLock lock, PrefixLock::Take(options.prefix));
  const bool only_state_is_left = OnlyStateIsLeft(options.prefix);
  if (!only_state_is_left) RETURN_IF_ERROR(CheckNoDataset(options.prefix));
  EncodingOptions encoding{.field = options.field, .chat = options.chat};
  ASSIGN_OR_RETURN(encoding.before, IdsOf(tokenizer, options.before));
  ASSIGN_OR_RETURN(encoding.after, IdsOf(tokenizer, options.after));
  const std::string state_path = options.prefix + kStateSuffix;
  ASSIGN_OR_RETURN(const std::string identity, IdentityOf(options));
  ASSIGN_OR_RETURN(const CorpusState state, ReadState(state_path, identity));
  if (only_state_is_left) {
    ::unlink((options.prefix + ".len.tmp").c_str());
    if (::unlink(state_path.c_str()) != 0) return ErrnoStatus(errno, "remove", state_path);
    return TokenizedCorpus{state.documents, state.tokens, true};
  }
  const IndexDType dtype =
      tokenizer.vocab() < kMegatronMostUint16 ? IndexDType::kUint16 : IndexDType::kInt32;
  ASSIGN_OR_RETURN(const std::unique_ptr<IndexedWriter> writer,
                   Exists(state_path) ? GoOn(std::move(lock), dtype, state, state_path)
                                      : IndexedWriter::Create(std::move(lock), dtype));
  CorpusRun run(options, sizes, *writer, state);
  ASSIGN_OR_RETURN(const bool finished, run.Work(tokenizer, std::move(encoding), stop));
  if (finished) {
    if (writer->documents() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.inputs.size() == 1 ? options.inputs[0] : "every input", " is empty"));
    }
    RETURN_IF_ERROR(WriteTokenizerOf(options));
    RETURN_IF_ERROR(writer->Finish());
    // Another call of the same command may have removed it already.
    if (::unlink(state_path.c_str()) != 0 && errno != ENOENT)
      return ErrnoStatus(errno, "remove", state_path);
  }
  return TokenizedCorpus{writer->documents(), writer->tokens(), finished};
}

}  // namespace trainyard
