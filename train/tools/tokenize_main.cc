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

// Says what options lack or have too many. Empty: nothing.
std::string Misuse(const CorpusOptions& options, const ChatFormatChoice& choice) {
  if (options.split != DocumentSplit::kChat) {
    if (choice.name.empty() && choice.date.empty()) return "";
    return "--format and --date: wanted --documents chat beside them, found it missing";
  }
  if (choice.tokenizer.empty()) return "--documents chat: wanted --tokenizer beside it, found none";
  if (options.before.empty() && options.after.empty()) return "";
  return "--begin and --end: wanted neither beside --documents chat, which writes the tokens "
         "around "
         "chats itself";
}

bool ReadsJsonLines(const CorpusOptions& options) {
  return std::any_of(options.inputs.begin(), options.inputs.end(), [&](const std::string& path) {
    return options.split.value_or(SplitOfName(path)) == DocumentSplit::kJsonLines;
  });
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
  trainyard::CorpusOptions options;
  std::vector<std::string> paths;
  trainyard::ChatFormatChoice chat;
  std::string documents;
  bool quiet = false;
  options.threads = std::max(1, int(std::thread::hardware_concurrency()));
  app.set_version_flag("--version", trainyard::Version());
  app.add_option("PATHS", paths,
                 "TEXT... OUT_PREFIX: the files to read, and where to write OUT_PREFIX.bin and "
                 "OUT_PREFIX.idx, which must not exist")
      ->required()
      ->expected(2, -1);
  app.add_option("--tokenizer", chat.tokenizer,
                 "tokenizer.json, tokenizer.model, tekken.json, NAME.tiktoken, or a directory with "
                 "one of them");
  app.add_option(
         "--documents", documents,
         "What one document is; a paragraph ends at blank lines, and a line of jsonl or "
         "chat is an object of JSON. Without this: jsonl in files NAME.jsonl, paragraph in others")
      ->check(CLI::IsMember({"paragraph", "file", "line", "jsonl", "chat"}));
  app.add_option("--field", options.field, "jsonl: the field that has the text")
      ->capture_default_str();
  app.add_option("--format", chat.name,
                 "chat: the format to write, such as chatml; without this, that of the chat "
                 "template beside the tokenizer");
  app.add_option("--date", chat.date, "chat: the date that the format writes, as 2026-01-31");
  app.add_option("--begin", options.before, "A token before each document, such as <s>");
  app.add_option("--end", options.after, "A token after each document, such as <|endoftext|>");
  app.add_flag("-q,--quiet", quiet, "Shows no progress");
  app.add_option("--threads", options.threads, "How many threads encode")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  // CLI11 numbers its errors from 100. All our programs return 2 for wrong usage.
  if (const int code = parse(); code >= 0) return code == 0 ? 0 : 2;
  options.prefix = paths.back();
  paths.pop_back();
  options.inputs = paths;
  if (!documents.empty()) options.split = trainyard::kSplits.at(documents);
  if (app.count("--field") > 0 && !trainyard::ReadsJsonLines(options)) {
    std::cerr << "trainyard-tokenize: --field: wanted a file NAME.jsonl, or --documents jsonl, "
                 "beside it, found neither\n";
    return 2;
  }
  if (const std::string misuse = trainyard::Misuse(options, chat); !misuse.empty()) {
    std::cerr << "trainyard-tokenize: " << misuse << "\n";
    return 2;
  }
  trainyard::BlockStopSignals();
  trainyard::CorpusProgressPrinter printer(trainyard::RealClock(), std::cerr,
                                           ::isatty(STDERR_FILENO) == 1);
  if (!quiet) options.progress = [&](const auto& progress) { printer.Show(progress); };
  const auto corpus = trainyard::Run(options, chat);
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
