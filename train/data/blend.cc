#include "train/data/blend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/blend_order.h"
#include "train/data/indexed.h"
#include "train/data/shuffled_documents.h"
#include "train/data/text.h"
#include "train/data/token_dataset.h"

namespace trainyard {
namespace {

// As many samples as no job uses up: the datasets begin again and again.
constexpr int64_t kBlendedSamples = int64_t{1} << 40;

class BlendedSamples final : public TokenDataset {
 public:
  BlendedSamples(int64_t sequence, int64_t vocab, DocumentOptions documents,
                 const std::vector<double>& weights,
                 std::vector<std::unique_ptr<ShuffledDocuments>> datasets)
      : TokenDataset(sequence, vocab, documents), order_(weights), datasets_(std::move(datasets)) {}

  int64_t num_samples() const override { return kBlendedSamples; }
  bool is_shuffled() const override { return true; }
  absl::Status ReadSample(int64_t index, const TokenSample& out) const override {
    const BlendOrder::Choice choice = order_.At(index);
    return datasets_[size_t(choice.dataset)]->Read(choice.sample, out);
  }

 private:
  const BlendOrder order_;
  const std::vector<std::unique_ptr<ShuffledDocuments>> datasets_;
};

absl::StatusOr<SplitStream> OpenDataset(const BlendedDataset& dataset, const BlendData& blend,
                                        int64_t vocab, const Roots& roots) {
  if (!dataset.path.empty()) {
    return OpenText({.path = dataset.path, .validation_fraction = blend.validation_fraction},
                    roots);
  }
  return OpenIndexed({.prefix = dataset.prefix, .validation_fraction = blend.validation_fraction},
                     vocab, roots);
}

void VisitDataset(BlendedDataset& dataset, SourceVisit visit) {
  visit({.name = "weight"}, &dataset.weight);
  visit(PrefixRule(), &dataset.prefix);
  visit({.name = "path"}, &dataset.path);
}

void VisitBlend(DataConfig& data, SourceVisit visit) {
  BlendData& blend = data.As<BlendData>();
  std::vector<BlendedDataset>& datasets = blend.datasets;
  visit({.name = "datasets"},
        SectionList{.size = datasets.size(),
                    .add = [&] { datasets.emplace_back(); },
                    .visit = [&](size_t i, SourceVisit f) { VisitDataset(datasets[i], f); }});
  visit({.name = "validation_fraction"}, &blend.validation_fraction);
  visit({.name = "reset_attention_mask"}, &blend.reset_attention_mask);
  visit({.name = "eod_mask_loss"}, &blend.eod_mask_loss);
}

SourceFacts BlendFacts(const DataConfig& data) {
  const BlendData& blend = data.As<BlendData>();
  return {.inputs = DeliveredTokens(),
          .validation_fraction = blend.validation_fraction,
          .byte_tokens = !blend.datasets.empty() && !blend.datasets[0].path.empty(),
          .of_token_files = !blend.datasets.empty() && !blend.datasets[0].prefix.empty(),
          .reset_attention_mask = blend.reset_attention_mask};
}

void CheckBlend(const DataConfig& data, Violations& violations) {
  const BlendData& blend = data.As<BlendData>();
  const size_t count = blend.datasets.size();
  if (count < 1 || count > kMaxBlendedDatasets) {
    return violations.Add("data.blend.datasets",
                          absl::StrCat("1 to ", kMaxBlendedDatasets, " datasets"), count);
  }
  for (size_t i = 0; i < count; ++i) {
    const BlendedDataset& dataset = blend.datasets[i];
    const std::string field = absl::StrCat("data.blend.datasets[", i, "]");
    const bool prefix = !dataset.prefix.empty(), path = !dataset.path.empty();
    if (prefix == path) {
      violations.Add(field, "a prefix (PREFIX.bin and PREFIX.idx) or the path of a text",
                     prefix ? "both" : "none");
    } else if (prefix == blend.datasets[0].prefix.empty()) {
      violations.Add(field,
                     "datasets of one kind, all with a prefix or all with a path; "
                     "trainyard-tokenize makes a prefix of a text",
                     prefix ? "a prefix" : "a path");
    }
  }
}

absl::StatusOr<DataSplits> OpenBlendSamples(const DataConfig& data, const DataOptions& options) {
  return OpenBlend(data.As<BlendData>(), options);
}

}  // namespace

const DataSource& BlendSource() {
  static const DataSource kSource = {.name = "blend",
                                     .example = "blend: {datasets: ...}",
                                     .make = [] { return DataConfig(BlendData()); },
                                     .visit = VisitBlend,
                                     .facts = BlendFacts,
                                     .open = OpenBlendSamples,
                                     .check = CheckBlend};
  return kSource;
}

absl::StatusOr<DataSplits> OpenBlend(const BlendData& source, const DataOptions& options) {
  const int64_t vocab = VocabularyOf(options);
  std::vector<double> weights;
  std::vector<SplitStream> streams;
  for (const BlendedDataset& dataset : source.datasets) {
    ASSIGN_OR_RETURN(SplitStream split, OpenDataset(dataset, source, vocab, options.roots));
    RETURN_IF_ERROR(CheckLengths(split, options.sequence));
    if (!streams.empty() && split.stream->dtype() != streams[0].stream->dtype()) {
      return absl::InvalidArgumentError(absl::StrCat(
          split.file, ": wanted tokens of dtype code ", int(streams[0].stream->dtype()), ", as ",
          streams[0].file, " has them, found ", int(split.stream->dtype()),
          "; a blend needs datasets of one tokenizer"));
    }
    weights.push_back(dataset.weight);
    streams.push_back(std::move(split));
  }
  const DocumentOptions documents = {.reset_attention_mask = source.reset_attention_mask,
                                     .eod_mask_loss = source.eod_mask_loss};
  const auto samples = [&](bool validation) {
    std::vector<std::unique_ptr<ShuffledDocuments>> datasets;
    for (const SplitStream& split : streams) {
      // The two parts of a dataset have different keys, too.
      const uint64_t number = 2 * datasets.size() + (validation ? 1 : 0);
      datasets.push_back(std::make_unique<ShuffledDocuments>(
          validation ? split.validation() : split.train(), options.sequence,
          RandomBits(options.seed, HashName("data/blend"), number)));
    }
    return std::make_unique<BlendedSamples>(options.sequence, streams[0].stream->vocab(), documents,
                                            weights, std::move(datasets));
  };
  DataSplits splits;
  splits.train = samples(false);
  if (source.validation_fraction > 0) splits.validation = samples(true);
  for (const SplitStream& split : streams) splits.streams.push_back(split.stream);
  for (const BlendedDataset& dataset : source.datasets) {
    if (dataset.prefix.empty()) continue;
    ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizerOf(dataset.prefix, options));
    RETURN_IF_ERROR(AddTokenizer(tokenizer, splits));
  }
  return splits;
}

}  // namespace trainyard
