// trainyard-trainer: one rank of a training job (docs/formats.md has its config). It also serves
// the other programs, which have no kernels: it measures the matrix rate, generates text from a
// model, and evaluates a model.
//
// A DeviceError is caught here and nowhere else.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/files.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "kernels/device/fault.h"
#include "kernels/rates/matrix_rate.h"
#include "train/chat/chat_lines.h"
#include "train/chat/prompts.h"
#include "train/config/continued_run.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/generate/chats.h"
#include "train/generate/evaluate.h"
#include "train/generate/generate.h"
#include "train/step/rank_engine.h"
#include "worker/sandbox/sandbox.h"
#include "worker/trainer/exit_report.h"
#include "worker/trainer/flight_log.h"
#include "worker/trainer/machine_ranks.h"
#include "worker/trainer/nccl_interface.h"
#include "worker/trainer/nccl_trace.h"
#include "worker/trainer/rank_process.h"
#include "worker/trainer/stop_signals.h"

namespace trainyard {
namespace {

struct Flags {
  std::string config;
  bool measure = false;
  std::vector<std::string> allow;
  std::string generate, evaluate;  // A checkpoint; empty: not requested.
  InferenceModel::Options model;   // For both.
  GenerateOptions text;
  Prompts prompts;
  std::string out;                            // "": standard output.
  std::string data, choices, field = "text";  // For --evaluate.
  std::string chats;                          // For both.
  std::string fault;
  std::string device;      // "": as the mode has it.
  int tensor = 1;          // Ranks that hold the model together, for --generate and --evaluate.
  int follow = 0;          // This process is one of them; 0: it is not, or leads them.
  std::string rendezvous;  // For --follow.
  std::string dump;        // A job spec; empty: not requested.
  int64_t dump_rank = 0;
};

// The OpenMP runtime reads its environment when it is loaded, which is before main. So a process
// without this setting starts itself again with it. Threads that spin while they wait are very slow
// when ranks share cores. A process that is alone spins for some 20 microseconds, as long as waking
// a thread takes.
void EnsurePassiveWaiting(char** argv, bool alone) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (alone) ::setenv("GOMP_SPINCOUNT", "30000", 0);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
  LogWarning("exec_failed", {{"effect", "waiting threads spin"}});
}

// Sets variables that CUDA reads at its first use. Streams that share a queue of the device wait
// for each other. A kernel's first launch loads the kernel, and waits for everything that runs.
// Either can hang a collective whose peer waits for this rank.
void PrepareForCuda() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int DefaultThreads() { return int(std::max(1u, std::thread::hardware_concurrency())); }

int Fail(const absl::Status& status) {
  std::cerr << "error: " << status.message() << '\n';
  return 1;
}

int Measure(int threads) {
  nlohmann::json rates;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const absl::StatusOr<double> rate = MeasureMatrixRate(CpuBackend(), dtype, threads);
    if (!rate.ok()) return Fail(rate.status());
    rates[Name(dtype)] = *rate;
  }
  std::cout << JsonText(rates) << '\n';
  return 0;
}

// The exit code if standard output is a closed pipe. UseModel then ends the program by its signal.
constexpr int kNobodyReads = 128 + SIGPIPE;

// Whether standard output is a pipe whose other end is closed. Gloo ignores the signal that would
// end the program, so ranks have to look.
bool NobodyReads() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Flushes standard output, and reports the status of the texts. Returns the exit code.
int EndOfTexts(const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) return Fail(status);
  const bool written = bool(std::cout.flush());
  if (status.ok() && written) return 0;
  if (NobodyReads()) return kNobodyReads;
  return Fail(absl::InternalError("cannot write standard output"));
}

int WriteText(const GenerateOptions& options, const Backend& backend) {
  // A model's text may contain control characters, which could affect a terminal. A file gets the
  // text unchanged.
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  // Generate calls this only once it has accepted the checkpoint.
  bool begun = false;
  const auto write = [&](absl::string_view text) {
    const std::string all = absl::StrCat(begun ? "" : options.prompt, text);
    begun = true;
    std::cout << (terminal ? VisibleUtf8(all) : all) << std::flush;
  };
  const absl::Status status = Generate(options, backend, write);
  if (status.ok()) std::cout << std::endl;
  return EndOfTexts(status);
}

// Writes a line of JSON for each prompt. A file is written once all of them have ended.
int WriteAnswers(const Flags& flags, const Backend& backend) {
  if (!flags.out.empty()) {
    // An hour later it would be too late.
    if (const absl::Status status = CheckReplaceable(flags.out); !status.ok()) return Fail(status);
  }
  std::string lines;
  const auto write = [&](const std::string& line) {
    if (flags.out.empty()) {
      std::cout << line << std::endl;
    } else {
      absl::StrAppend(&lines, line, "\n");
    }
  };
  absl::Status status = flags.chats.empty()
                            ? GenerateEach(flags.text, flags.prompts, backend, write)
                            : AnswerChats(flags.text, flags.chats, backend, write);
  if (status.ok() && !flags.out.empty()) status = WriteFileAtomic(flags.out, lines);
  return EndOfTexts(status);
}

// One prompt alone is written as a text, as it comes.
int Write(Flags& flags, const Backend& backend) {
  if (flags.out.empty()) {
    flags.text.cancelled = [] { return !std::cout || NobodyReads(); };
  }
  const bool one = flags.prompts.texts.size() <= 1 && flags.prompts.path.empty();
  if (!one || !flags.out.empty() || !flags.chats.empty()) {
    if (flags.prompts.texts.empty() && flags.prompts.path.empty()) flags.prompts.texts = {""};
    return WriteAnswers(flags, backend);
  }
  if (!flags.prompts.texts.empty()) flags.text.prompt = flags.prompts.texts[0];
  return WriteText(flags.text, backend);
}

// Prints one object of JSON.
int Evaluate(Flags& flags, const Backend& backend) {
  absl::StatusOr<InferenceModel> model =
      InferenceModel::Load(flags.model, InferenceModel::Use::kWhole, backend);
  if (!model.ok()) return Fail(model.status());
  nlohmann::ordered_json json;
  if (!flags.data.empty()) {
    const absl::StatusOr<TextScore> text = ScoreText(*model, flags.data, flags.field);
    if (!text.ok()) return Fail(text.status());
    json["text"] = {{"documents", text->documents},
                    {"tokens", text->tokens},
                    {"bytes", text->bytes},
                    {"loss", text->loss()},
                    {"perplexity", text->perplexity()},
                    {"bits_per_byte", text->bits_per_byte()}};
  }
  if (!flags.chats.empty()) {
    const absl::StatusOr<AnswerScore> score = ScoreChats(*model, flags.chats, flags.text.format);
    if (!score.ok()) return Fail(score.status());
    json["chats"] = {{"conversations", score->conversations},
                     {"answers", score->answers},
                     {"tokens", score->tokens},
                     {"loss", score->loss()},
                     {"exact_answers", double(score->exact) / double(score->answers)}};
  }
  if (!flags.choices.empty()) {
    const absl::StatusOr<ChoiceScore> score = ScoreChoices(*model, flags.choices);
    if (!score.ok()) return Fail(score.status());
    const double questions = double(score->questions);
    json["choices"] = {{"questions", score->questions},
                       {"accuracy", double(score->right) / questions},
                       {"accuracy_by_length", double(score->right_by_length) / questions},
                       {"cut", score->cut}};
  }
  if (!(std::cout << JsonText(json, 2) << std::endl)) {
    return Fail(absl::InternalError("cannot write standard output"));
  }
  return 0;
}

MachineRanks RanksOf(const Flags& flags) {
  MachineRanks ranks = {.size = flags.tensor,
                        .device = flags.device.empty() ? "cpu" : flags.device,
                        .threads = flags.model.threads};
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) ranks.gpus = visible;
  return ranks;
}

// Uses the model as rank 0 of several.
int LeadAndUse(Flags& flags, std::unique_ptr<FollowerProcesses>& followers,
               int (*use)(Flags&, const Backend&)) {
  absl::StatusOr<MachineRank> rank = LeadRanks(RanksOf(flags), followers);
  if (!rank.ok()) return Fail(rank.status());
  flags.model.gang = flags.text.model.gang = rank->gang.get();
  flags.model.threads = flags.text.model.threads = rank->threads;
  // NCCL does not notice that a peer has ended, and nobody else watches these ranks.
  std::jthread watch = followers->Watch([&world = rank->peers.world()] { world.Abort(); });
  const int code = use(flags, *rank->device.backend);
  watch.request_stop();
  watch.join();
  EndRanks(*std::move(rank), *followers);
  return code;
}

int UseAsOneOrSeveral(Flags& flags) {
  const auto use = flags.evaluate.empty() ? Write : Evaluate;
  std::unique_ptr<FollowerProcesses> followers;
  try {
    if (flags.tensor > 1) return LeadAndUse(flags, followers, use);
    const absl::StatusOr<RankDevice> device =
        DeviceNamed(flags.device.empty() ? "cpu" : flags.device);
    if (!device.ok()) return Fail(device.status());
    return use(flags, *device->backend);
  } catch (const DeviceError& error) {
    const std::string lost = followers ? followers->Ended(absl::Seconds(1)) : "";
    return Fail(absl::InternalError(absl::StrCat(lost, lost.empty() ? "" : ": ", error.what())));
  }
}

// For --generate and --evaluate.
int UseModel(Flags& flags) {
  const int code = UseAsOneOrSeveral(flags);
  if (code != kNobodyReads) return code;
  ::signal(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
  return code;
}

// For --follow.
int Follow(const Flags& flags) {
  try {
    const absl::Status status = FollowAsRank(flags.follow, flags.rendezvous, RanksOf(flags));
    if (status.ok()) return 0;
    return Fail(absl::InternalError(absl::StrCat("rank ", flags.follow, ": ", status.message())));
  } catch (const DeviceError& error) {
    return Fail(absl::InternalError(absl::StrCat("rank ", flags.follow, ": ", error.what())));
  }
}

int Dump(const Flags& flags) {
  const bool standard_input = flags.dump == "-";
  const absl::StatusOr<std::string> text = ReadFile(standard_input ? "/dev/stdin" : flags.dump);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<JobConfig> job = ParseAndValidateJob(*text);
  if (!job.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        standard_input ? "standard input" : flags.dump, ": ", job.status().message())));
  }
  if (flags.dump_rank < 0 || flags.dump_rank >= job->devices) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--rank: wanted 0 to ", job->devices - 1, ", found ", flags.dump_rank)));
  }
  const absl::StatusOr<ModelConfig> model = ResolveModel(job->model);
  if (!model.ok()) return Fail(model.status());
  const absl::Status dumped = DumpProgram(*job, *model, int(flags.dump_rank), std::cout);
  if (!dumped.ok()) return Fail(dumped);
  if (!std::cout.flush()) return Fail(absl::InternalError("cannot write standard output"));
  return 0;
}

// Sets the members that could be read even if it returns an error, so that the exit report has its
// path.
absl::Status ReadConfig(const std::string& path, TrainerConfig& config) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Violations violations;
  config = ParseAndValidateTrainer(text, violations);
  if (violations.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", violations.ToStatus().message()));
}

// Adds what --allow names to a job that runs alone and goes on with a run.
absl::Status Allow(const std::vector<std::string>& fields, TrainerConfig& config) {
  if (fields.empty()) return absl::OkStatus();
  if (config.rank) {
    return absl::InvalidArgumentError("--allow: wanted a job that runs alone, found a rank");
  }
  JobConfig& job = config.job;
  if (!job.continues) job.continues = ContinuesConfig{.job = job.name, .epoch = 0, .allow = {}};
  std::vector<std::string>& allow = job.continues->allow;
  allow.insert(allow.end(), fields.begin(), fields.end());
  Violations violations;
  ValidateContinues(job, violations);
  return violations.ToStatus();
}

// Failures for tests. A flag "KIND:STEP" makes the failure happen at this step. Only the command
// line can set it: no worker and no job spec can.
using Fault = std::function<void(const Backend&, int64_t step, int attempt, StepState& state)>;

absl::StatusOr<Fault> ParseFault(const std::string& flag) {
  if (flag.empty()) return Fault();
  const size_t colon = flag.find(':');
  const std::string kind = flag.substr(0, colon);
  const int64_t at = colon == std::string::npos ? 0 : std::atoll(flag.c_str() + colon + 1);
  const bool known = kind == "kill" || kind == "exit" || kind == "hang" || kind == "device" ||
                     kind == "nan" || kind == "nan-once";
  if (at < 1 || !known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--fault: wanted kill, exit, hang, device, nan or nan-once, a colon and a step from 1; "
        "found '",
        flag, "'"));
  }
  return Fault([kind, at](const Backend& backend, int64_t step, int attempt, StepState& state) {
    if (step != at) return;
    if (kind == "kill") ::raise(SIGKILL);
    if (kind == "exit") ::_exit(7);
    if (kind == "hang") ::raise(SIGSTOP);
    if (kind == "device") {
      Exec exec = backend.NewExec(1);
      backend.kernel<FaultArgs>()(exec, {});
    }
    if (kind == "nan" || (kind == "nan-once" && attempt == 0)) {
      state.loss_scale = std::numeric_limits<double>::quiet_NaN();
    }
  });
}

ExitReport RunAndReport(const TrainerConfig& config, const Flags& flags, StopSignals& stop,
                        const Fault& fault) {
  RankProcessOptions options{.stop_requested = [&] { return stop.Received(); },
                             .open_lines = OpenChatLines,
                             .open_prompts = OpenPromptCodec};
  try {
    absl::Status nccl = PrepareNcclTrace(config);
    if (config.rank && config.rank->device_kind == DeviceKind::kCuda && config.rank->world > 1) {
      nccl.Update(KeepNcclOn(config.rank->interface));
    }
    if (!nccl.ok()) return ReportOf(nccl);
    const auto device = DeviceOf(config, flags.device.empty() ? "auto" : flags.device);
    if (!device.ok()) return ReportOf(device.status());
    if (fault) options.before_attempt = std::bind_front(fault, std::cref(*device->backend));
    const auto result = RunRankProcess(config, *device, options);
    return result.ok() ? ReportOf(*result) : ReportOf(result.status());
  } catch (const DeviceError& error) {
    LogFlight(*options.activity);
    return ReportOf(error);
  }
}

int Train(const Flags& flags) {
  if (InSandbox()) {
    if (const absl::Status status = DenyExec(); !status.ok()) return Fail(status);
  }
  const absl::StatusOr<Fault> fault = ParseFault(flags.fault);
  if (!fault.ok()) {
    Fail(fault.status());
    return 2;
  }
  StopSignals stop;
  TrainerConfig config;
  absl::Status read = ReadConfig(flags.config, config);
  if (read.ok()) read = Allow(flags.allow, config);
  if (config.rank) ReserveExitReport(config.rank->exit_report);
  const ExitReport report = read.ok() ? RunAndReport(config, flags, stop, *fault) : ReportOf(read);
  const int code = ExitCode(report);
  if (code == 0) {
    LogInfo("trainer_finished", {{"cause", Name(report.cause)}, {"message", report.message}});
  } else {
    LogError("trainer_failed", {{"cause", Name(report.cause)}, {"message", report.message}});
  }
  if (config.rank) WriteExitReport(config.rank->exit_report, report);
  return code;
}

void AddGenerate(CLI::App& app, Flags& flags) {
  app.add_option("--generate", flags.generate, "Write text with this checkpoint's model");
  app.add_option("--prompt", flags.prompts.texts, "The beginning of the text; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--prompts", flags.prompts.path, "Prompts in .jsonl");
  app.add_option("--batch", flags.text.batch, "How many prompts to go on with at once; 0: chosen");
  app.add_option("--out", flags.out, "For several prompts: writes the answers into this file");
  app.add_option("--chat", flags.text.chat, "A question, which the model answers as in a chat");
  app.add_option("--system", flags.text.system, "For --chat: what the system says first");
  app.add_option("--format", flags.text.format.name, "For --chat: the format of chats");
  app.add_option("--date", flags.text.format.date, "For --chat: the date that the format writes");
  app.add_option("--tokens", flags.text.tokens, "How many tokens to write");
  Sampling& sampling = flags.text.sampling;
  app.add_option("--temperature", sampling.temperature, "0 always takes the likeliest token");
  app.add_option("--top-k", sampling.top_k, "Only so many of the likeliest tokens; 0: all");
  app.add_option("--top-p", sampling.top_p, "Only tokens that together have this probability");
  app.add_option("--min-p", sampling.min_p, "Only tokens with this part of the largest one");
  app.add_option("--stop", flags.text.stop, "The text ends before this one; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--seed", flags.text.seed, "The same seed writes the same text");
  app.add_option("--window", flags.model.window, "Tokens that the model sees at once");
}

void AddRanks(CLI::App& app, Flags& flags) {
  app.add_option("--tensor", flags.tensor,
                 "For --generate and --evaluate: how many ranks of this machine hold the model "
                 "together, each a part of every tensor")
      ->check(CLI::Range(1, kMostTensorRanks));
  auto* rendezvous =
      app.add_option("--rendezvous", flags.rendezvous, "For --follow: where to meet");
  app.add_option("--follow", flags.follow,
                 "Be this rank of a program with --tensor, which starts its others so")
      ->needs(rendezvous);
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.model.threads = DefaultThreads();
  CLI::App app("Trains one rank of a job; alone, without a rank section in CONFIG, a whole job.");
  app.set_version_flag("--version", absl::StrCat(Version(), " (", Revision(), ")"));
  auto* config = app.add_option("CONFIG", flags.config, "The trainer's config file");
  app.add_flag("--measure", flags.measure,
               "Print the matrix rate of each dtype, in FLOP/s, as JSON");
  AddGenerate(app, flags);
  AddRanks(app, flags);
  app.add_option("--evaluate", flags.evaluate, "Print how well this checkpoint's model predicts");
  app.add_option("--data", flags.data,
                 "For --evaluate: a text, or .jsonl with a text in each line");
  app.add_option("--field", flags.field, "For --data: the field of a line that has the text");
  app.add_option("--chats", flags.chats,
                 "Conversations in .jsonl: answers their questions, or says how well it predicts "
                 "their answers");
  app.add_option("--choices", flags.choices, "For --evaluate: .jsonl with a question in each line");
  auto* dump = app.add_option(
      "--dump-program", flags.dump,
      "Print a rank's program of this job spec (- is standard input), after each pass");
  app.add_option("--rank", flags.dump_rank, "For --dump-program")->needs(dump);
  app.add_option("--threads", flags.model.threads, "For --measure, --generate and --evaluate")
      ->check(CLI::Range(1, 1024));
  app.add_option(
      "--device", flags.device,
      "cpu, cuda, or auto, which is a GPU if there is one. Default: auto for a job without a "
      "worker, and cpu for --generate and --evaluate");
  app.add_option("--allow", flags.allow,
                 "For a job without a worker that goes on with an earlier run: a field that may "
                 "differ although samples are then repeated or skipped; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--fault", flags.fault,
                 "For tests: KIND:STEP; the kinds are kill exit hang device nan nan-once");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const int modes = int(config->count() > 0) + int(flags.measure) + int(!flags.generate.empty()) +
                    int(!flags.evaluate.empty()) + int(!flags.dump.empty()) + int(flags.follow > 0);
  if (modes != 1) {
    std::cerr << "error: wanted one of CONFIG, --measure, --generate, --evaluate, --follow and "
                 "--dump-program"
              << '\n';
    return 2;
  }
  const bool uses = !flags.generate.empty() || !flags.evaluate.empty() || flags.follow > 0;
  EnsurePassiveWaiting(argv, uses);
  PrepareForCuda();
  if (!flags.dump.empty()) return Dump(flags);
  if (flags.measure) return Measure(flags.model.threads);
  if (flags.follow > 0) return Follow(flags);
  flags.model.checkpoint = flags.generate.empty() ? flags.evaluate : flags.generate;
  flags.text.model = flags.model;
  if (!flags.evaluate.empty() || !flags.generate.empty()) return UseModel(flags);
  return Train(flags);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
