// trainyard-tokenize TEXT OUT_PREFIX: converts a text file to PREFIX.bin and PREFIX.idx with byte
// tokens, for `data: {indexed: ...}`.

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/build_info.h"
#include "train/tools/tokenize.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Writes a text file as a Megatron indexed dataset with byte tokens (vocabulary 256).\n"
      "Example: trainyard-tokenize corpus.txt data/corpus\n"
      "         and in the job spec: data: {indexed: {prefix: data/corpus}}"};
  std::string text, prefix, documents = "paragraph";
  app.set_version_flag("--version", trainyard::Version());
  app.add_option("TEXT", text, "The text file")->required();
  app.add_option("OUT_PREFIX", prefix,
                 "Writes OUT_PREFIX.bin and OUT_PREFIX.idx, which must not exist")
      ->required();
  app.add_option("--documents", documents, "What one document is; a paragraph ends at blank lines")
      ->check(CLI::IsMember({"paragraph", "file"}))
      ->capture_default_str();
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  // CLI11 numbers its errors from 100. All our programs return 2 for wrong usage.
  if (const int code = parse(); code >= 0) return code == 0 ? 0 : 2;
  const auto split =
      documents == "file" ? trainyard::DocumentSplit::kFile : trainyard::DocumentSplit::kParagraph;
  const auto corpus = trainyard::TokenizeBytes(text, prefix, split);
  if (!corpus.ok()) {
    std::cerr << "trainyard-tokenize: " << corpus.status().message() << "\n";
    return 1;
  }
  std::cout << "documents=" << corpus->documents << " tokens=" << corpus->tokens
            << " prefix=" << prefix << "\n";
  return 0;
}
