// Every way to divide a tiny model and its batch over up to eight ranks, and running one of them
// with ranks that are threads.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/arch/decoder_config.h"
#include "models/model.h"
#include "train/config/job_config.h"

namespace trainyard::testing {

struct LayoutCase {
  ModelConfig model;
  JobConfig job;                 // Sizes alone.
  int router = 0;                // Of a model with experts: which of kRouters.
  double expert_rows = 2;        // As RecordOptions::expert_rows.
  bool fuse = true;              // As RecordOptions::fuse.
  bool round_each_time = false;  // As EngineOptions::round_each_time.
  std::string frozen = {};       // What the job freezes, for the name; "": nothing.
  // Not 0: a seed. Communication is held up at random (held_up.h). After the first two steps, four
  // more follow each other without a stop, with validation before the second and the last of them.
  uint64_t held_up = 0;
  double learning_rate = 0.01;
  bool masked = true;  // About every fourth target of a model of text is not counted.
  // A recipe that no job can ask for; null: the one of the job.
  const Precision* precision = nullptr;
  // A model that no family has, of the sizes of `model`; null: the one of `model`.
  std::unique_ptr<Model> (*make_model)(const ModelConfig& model) = nullptr;
  // Every expert gets the same number of rows, in one round: then what is sent is known beforehand.
  bool is_even() const;
  std::string name() const;
  friend void PrintTo(const LayoutCase& c, std::ostream* out) { *out << c.name(); }
};

// How tokens choose their experts, and what balances them.
inline constexpr const char* kRouters[] = {"softmax", "sigmoid", "biased", "grouped", "turns"};

// The sizes are derived so that everything divides, and unevenly where that is legal.
LayoutCase MakeLayoutCase(const std::string& model, const ParallelismConfig& parallelism,
                          int64_t data);

// The same with another router.
LayoutCase WithRouter(LayoutCase layout_case, int router);

// All of them for up to `ranks` ranks. Routers, and whether experts take their rows in one round or
// in several, go along in turn.
std::vector<LayoutCase> AllLayouts(const std::string& model, int64_t ranks);

// All of them for up to two ranks, thirty of those for three and four, and ten of those for more,
// which a seed chooses: it is printed, and $TRAINYARD_SEED gives it. Where $TRAINYARD_LAYOUTS is
// "all", all for up to eight.
std::vector<LayoutCase> SomeLayouts(const std::string& model);
// The same of up to four ranks, with `count` of those for three and four.
std::vector<LayoutCase> SomeLayoutsOfFour(const std::string& model, int count);
// `count` of those for eight ranks, of which each `kind` draws others; thirty where
// $TRAINYARD_LAYOUTS is "all".
std::vector<LayoutCase> DrawnLayoutsOfEight(const std::string& model, size_t count, uint64_t kind);

// `count` of all layouts for up to eight ranks, which the seed chooses, with activations computed
// again in one of the possible ways, in one of the precisions.
std::vector<LayoutCase> RecomputedLayouts(const std::string& model, size_t count);

// Every `stride`th of AllLayouts, with a part of the model frozen: in turn each of several parts.
std::vector<LayoutCase> FrozenLayouts(const std::string& model, int64_t ranks, size_t stride);

// Every `stride`th of AllLayouts with low-rank adapters: in turn of all linear layers, of parts of
// products, and beside modules that are trained as a whole.
std::vector<LayoutCase> AdaptedLayouts(const std::string& model, int64_t ranks, size_t stride);
// The same with adapters of experts: in turn of both products beside all linear layers, and of one
// product alone. None for a model without experts.
std::vector<LayoutCase> AdaptedExpertsLayouts(const std::string& model, int64_t ranks,
                                              size_t stride);

// Every `stride`th of AllLayouts with adapters beside a base in NF4, for decoders. Ranks have whole
// blocks, and parts of weights of several groups.
std::vector<LayoutCase> Nf4Layouts(const std::string& model, int64_t ranks, size_t stride);

// What `layouts` returns for each family of the registry, one family after another.
std::vector<LayoutCase> OfEveryFamily(
    const std::function<std::vector<LayoutCase>(const std::string& family)>& layouts);

// The case with communication held up, by the seed that SomeLayouts uses.
LayoutCase HeldUp(LayoutCase layout_case);

// What two optimizer steps, or more (held_up), on as many global batches give, put together from
// all ranks. About every fourth target of a model of text is not counted.
struct TrainedSteps {
  std::vector<double> losses, auxiliary_losses, norms, validation_losses;
  // Global tensors by name; gradients of the first two steps and the last, weights after the last.
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> weights;
  bool copies_differ = false;    // Ranks that hold the same elements disagree on one by a bit.
  int64_t all_to_all_bytes = 0;  // That all ranks sent, within their groups.
  // Where a rank's collectives of one step differ from the formula in calls or bytes.
  std::vector<std::string> uncounted;
};

// Runs the case's layout. CHECKs that every element is held by a rank, and expects that a rank's
// device memory is the planned and nothing beside it is touched. `edit` may damage a rank's program
// before it is planned; without it, expects that what is sent is what the formula says.
TrainedSteps Train(const LayoutCase& layout_case,
                   const std::function<void(Program&)>& edit = nullptr);
// The same model and batch on one rank. Its micro-batches are those of all data ranks together,
// over which the experts' load is balanced.
TrainedSteps TrainOnOneRank(const LayoutCase& layout_case);

// The sum of the losses of one step's counted targets, by forwards alone.
double ValidationLoss(const LayoutCase& layout_case);

// The largest relative difference: of losses and norms, and of any tensor in the L2 norm. Infinite
// where copies differ.
double LargestDifference(const TrainedSteps& a, const TrainedSteps& b);

}  // namespace trainyard::testing
