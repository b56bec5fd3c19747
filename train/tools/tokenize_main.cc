// trainyard-tokenize TEXT... OUT_PREFIX: converts corpora to PREFIX.bin and PREFIX.idx, for
// `data: {indexed: ...}`.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tokenizer/open_tokenizer.h"
#include "train/tools/corpus_progress.h"
#include "train/tools/tokenize.h"

namespace trainyard {
namespace {

const std::map<std::string, DocumentSplit> kSplits = {{"paragraph", DocumentSplit::kParagraph},
                                                      {"file", DocumentSplit::kFile},
                                                      {"line", DocumentSplit::kLine},
                                                      {"jsonl", DocumentSplit::kJsonLines},
                                                      {"chat", DocumentSplit::kChat}};

bool ReadsJsonLines(const CorpusOptions& options) {
  return std::any_of(options.inputs.begin(), options.inputs.end(), [&](const std::string& path) {
    return options.split.value_or(SplitOfName(path)) == DocumentSplit::kJsonLines;
  });
}

struct CommandLine {
  CorpusOptions options = {};
  std::vector<std::string> paths = {};
  ChatFormatChoice chat = {};
  std::string documents = {};
  bool quiet = false;
};

void AddOptions(CLI::App& app, CommandLine& line) {
  line.options.threads = std::max(1, int(std::thread::hardware_concurrency()));
  app.set_version_flag("--version", Version());
  app.add_option("PATHS", line.paths,
                 "TEXT... OUT_PREFIX: the files to read, and where to write OUT_PREFIX.bin and "
                 "OUT_PREFIX.idx, which must not exist")
      ->required()
      ->expected(2, -1);
  app.add_option("--tokenizer", line.chat.tokenizer,
                 "tokenizer.json, tokenizer.model, tekken.json, NAME.tiktoken, or a directory with "
                 "one of them");
  app.add_option(
         "--documents", line.documents,
         "What one document is; a paragraph ends at blank lines, and a line of jsonl or "
         "chat is an object of JSON. Without this: jsonl in files NAME.jsonl, paragraph in others")
      ->check(CLI::IsMember({"paragraph", "file", "line", "jsonl", "chat"}));
  app.add_option("--field", line.options.field, "jsonl: the field that has the text")
      ->capture_default_str();
  app.add_option("--format", line.chat.name,
                 "chat: the format to write, such as chatml; without this, that of the chat "
                 "template beside the tokenizer");
  app.add_option("--date", line.chat.date, "chat: the date that the format writes, as 2026-01-31");
  app.add_option("--begin", line.options.before, "A token before each document, such as <s>");
  app.add_option("--end", line.options.after, "A token after each document, such as <|endoftext|>");
  app.add_flag("-q,--quiet", line.quiet, "Shows no progress");
  app.add_option("--threads", line.options.threads, "How many threads encode")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

// Says which options lack others, or stand beside others in vain. Empty: none.
std::string Misuse(const CorpusOptions& options, const ChatFormatChoice& chat, bool has_field) {
  if (has_field && !ReadsJsonLines(options)) {
    return "--field: wanted a file NAME.jsonl, or --documents jsonl, beside it, found neither";
  }
  if (options.split != DocumentSplit::kChat) {
    if (chat.name.empty() && chat.date.empty()) return "";
    return "--format and --date: wanted --documents chat beside them, found it missing";
  }
  if (chat.tokenizer.empty()) return "--documents chat: wanted --tokenizer beside it, found none";
  if (options.before.empty() && options.after.empty()) return "";
  return "--begin and --end: wanted neither beside --documents chat, whose format has them";
}

// SIGINT and SIGTERM are only noted, so that the work ends between two blocks.
void BlockStopSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool StopSignalCame() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGINT) == 1 || ::sigismember(&pending, SIGTERM) == 1;
}

absl::StatusOr<TokenizedCorpus> Run(CorpusOptions options, const ChatFormatChoice& choice) {
  const std::string& tokenizer_path = choice.tokenizer;
  if (tokenizer_path.empty()) return TokenizeCorpus(ByteTokenizer(), options, StopSignalCame);
  ASSIGN_OR_RETURN(const OpenedTokenizer opened, OpenTokenizer(tokenizer_path));
  options.tokenizer = opened.digest;
  ASSIGN_OR_RETURN(options.tokenizer_files, TokenizerToKeep(opened.path));
  if (VocabularySha256(options.tokenizer_files) != opened.digest) {
    return absl::FailedPreconditionError(
        absl::StrCat(opened.path, ": changed while it was read; start the command again"));
  }
  std::unique_ptr<ChatTokenizer> chat;
  if (options.split == DocumentSplit::kChat) {
    ASSIGN_OR_RETURN(ChosenChatFormat chosen, ChooseChatFormat(choice));
    ASSIGN_OR_RETURN(chat, ChatTokenizer::Create(*opened.tokenizer, std::move(chosen)));
    options.chat = chat.get();
  }
  return TokenizeCorpus(*opened.tokenizer, options, StopSignalCame);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CLI::App app{
      "Writes texts as a Megatron indexed dataset. Without --tokenizer each byte is a token\n"
      "(vocabulary 256). A run that was interrupted goes on if it is started again.\n"
      "Example: trainyard-tokenize corpus.txt data/corpus\n"
      "         trainyard-tokenize --tokenizer Qwen3-8B --end '<|endoftext|>' *.jsonl data/web\n"
      "         trainyard-tokenize --tokenizer Qwen3-8B --documents chat chats.jsonl data/chats\n"
      "         and in the job spec: data: {indexed: {prefix: data/web}}"};
  trainyard::CommandLine line;
  trainyard::AddOptions(app, line);
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  // CLI11 numbers its errors from 100. All our programs return 2 for wrong usage.
  if (const int code = parse(); code >= 0) return code == 0 ? 0 : 2;
  trainyard::CorpusOptions& options = line.options;
  options.prefix = line.paths.back();
  line.paths.pop_back();
  options.inputs = line.paths;
  if (!line.documents.empty()) options.split = trainyard::kSplits.at(line.documents);
  const std::string misuse = trainyard::Misuse(options, line.chat, app.count("--field") > 0);
  if (!misuse.empty()) {
    std::cerr << "trainyard-tokenize: " << misuse << "\n";
    return 2;
  }
  trainyard::BlockStopSignals();
  trainyard::CorpusProgressPrinter printer(trainyard::RealClock(), std::cerr,
                                           ::isatty(STDERR_FILENO) == 1);
  if (!line.quiet) options.progress = [&](const auto& progress) { printer.Show(progress); };
  const auto corpus = trainyard::Run(options, line.chat);
  printer.End();
  if (!corpus.ok()) {
    std::cerr << "trainyard-tokenize: " << corpus.status().message() << "\n";
    return 1;
  }
  if (!corpus->finished) {
    std::cerr << "trainyard-tokenize: stopped by a signal; " << corpus->documents
              << " documents with " << corpus->tokens << " tokens stand beside " << options.prefix
              << ".state. Start the same command again to go on\n";
    return 1;
  }
  std::cout << "documents=" << corpus->documents << " tokens=" << corpus->tokens
            << " prefix=" << options.prefix << "\n";
  return 0;
}
