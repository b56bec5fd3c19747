#include "train/trainer/reference.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "models/program/ops/ops.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/storage.h"
#include "train/data/source.h"
#include "train/step/agree.h"

namespace trainyard {
namespace {

constexpr char kMagic[8] = {'T', 'Y', 'R', 'E', 'F', 'L', 'P', '1'};
constexpr size_t kDigestBytes = 64;  // Hexadecimal digits.
constexpr size_t kHeaderBytes = sizeof(kMagic) + 2 * kDigestBytes;
constexpr absl::string_view kHelp =
    "; to train on with other data, submit a job with another checkpoint.directory and with "
    "init_from";

std::string ReferencePath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/reference");
}

absl::string_view BytesOf(const std::vector<double>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

// The first `samples` of a split.
class Split {
 public:
  Split(const ReferencePass& pass, const Dataset& dataset, int64_t samples,
        std::vector<double>& numbers)
      : pass_(pass),
        dataset_(dataset),
        reader_(dataset, SampleOrder::kSequential, pass.job.seed, pass.shape),
        samples_(samples),
        numbers_(numbers) {}

  absl::Status AddAll() {
    for (int64_t first = 0; first < samples_; first += pass_.job.batch.global) {
      pass_.progress();
      ASSIGN_OR_RETURN(const StepBatch batch, ReadStepBatch(reader_, pass_.engine.part(), first));
      absl::Status status;
      pass_.engine.runner().Forward(batch, pass_.job.batch.global * pass_.job.batch.sequence,
                                    [&](int64_t micro_batch) {
                                      status.Update(Add(first + reader_.FirstSample(micro_batch)));
                                    });
      RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

 private:
  // Adds the pairs of the micro-batch that was computed last, which begins with this sample.
  absl::Status Add(int64_t first) {
    const Executable& executable = pass_.engine.executable();
    const Mesh& mesh = pass_.engine.mesh();
    // Tensor and context ranks have the same sums.
    const bool adds = executable.program().outputs.contains(ops::kPreferenceSums) &&
                      mesh.coordinate(kTensorAxes | Axis::kContext) == 0;
    if (!adds) return absl::OkStatus();
    const size_t sides = size_t(ops::PreferenceSides(pass_.job.batch.sequence));
    std::vector<double> sums(size_t(reader_.micro()) * sides * 3);
    executable.ReadOutput(ops::kPreferenceSums, 0, sums.data(), sums.size() * sizeof(double));
    for (int64_t sample = 0; sample < reader_.micro(); ++sample) {
      if (first + sample >= samples_) break;  // Of the next epoch.
      ASSIGN_OR_RETURN(const std::vector<int64_t> pairs, dataset_.PairsOf(first + sample));
      for (size_t i = 0; i < pairs.size(); ++i) {
        for (size_t answer = 0; answer < 2; ++answer) {
          numbers_[size_t(pairs[i]) * 2 + answer] =
              sums[(size_t(sample) * sides + i * 2 + answer) * 3];
        }
      }
    }
    return absl::OkStatus();
  }

  const ReferencePass& pass_;
  const Dataset& dataset_;
  const BatchReader reader_;
  const int64_t samples_;
  std::vector<double>& numbers_;
};

// Of the data's files, and of what decides which of their tokens are read.
std::string DigestOf(const JobConfig& job, const JobData& data) {
  Sha256 digest;
  for (const InputFingerprint& file : data.files) {
    digest.Update(absl::StrCat(file.field, " ", file.size_bytes, " ", file.sha256, "\n"));
  }
  digest.Update(absl::StrCat(job.batch.sequence, " ", FactsOf(job.data).reading));
  return digest.HexDigest();
}

absl::Status WriteReference(const ReferenceFiles& files, const std::string& digest,
                            const std::vector<double>& numbers, Storage& storage) {
  const std::string path = ReferencePath(files.directory, files.epoch), temporary = path + ".tmp";
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(temporary));
    const std::string header =
        absl::StrCat(absl::string_view(kMagic, sizeof(kMagic)), digest, Sha256Of(BytesOf(numbers)));
    RETURN_IF_ERROR(file->Append(header.data(), header.size()));
    RETURN_IF_ERROR(file->Append(numbers.data(), BytesOf(numbers).size()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  return storage.SyncDirectory(EpochPath(files.directory, files.epoch));
}

// Reads the file at the path, and says in errors where it is.
absl::Status ReadReferenceAt(const std::string& path, absl::string_view digest,
                             std::vector<double>& numbers) {
  const auto bytes = ReadFileOfOthers(path, kHeaderBytes + BytesOf(numbers).size());
  if (!bytes.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("preference: wanted what the reference says of the data, which was computed "
                     "before step 1, found: ",
                     bytes.status().message(), kHelp));
  }
  const absl::Status status = ReadReference(*bytes, digest, numbers);
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::Status ReadReference(absl::string_view bytes, absl::string_view digest,
                           std::vector<double>& numbers) {
  if (bytes.size() < kHeaderBytes ||
      bytes.substr(0, sizeof(kMagic)) != absl::string_view(kMagic, sizeof(kMagic))) {
    return absl::DataLossError("wanted a reference, found another file");
  }
  if (bytes.size() != kHeaderBytes + BytesOf(numbers).size() ||
      bytes.substr(sizeof(kMagic), kDigestBytes) != digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("preference: wanted a reference of this job's data, found one of other data, "
                     "or of another batch.sequence or too_long",
                     kHelp));
  }
  const absl::string_view contents = bytes.substr(kHeaderBytes);
  if (bytes.substr(sizeof(kMagic) + kDigestBytes, kDigestBytes) != Sha256Of(contents)) {
    return absl::DataLossError("damaged: another SHA-256");
  }
  if (!contents.empty()) std::memcpy(numbers.data(), contents.data(), contents.size());
  return absl::OkStatus();
}

absl::Status ComputeReference(const ReferencePass& pass) {
  const DataSplits& splits = pass.splits;
  // The pass reads samples, which have zeros for the reference until then.
  std::vector<double> numbers(splits.reference->size());
  RETURN_IF_ERROR(Split(pass, *splits.train, splits.epoch, numbers).AddAll());
  if (splits.validation != nullptr) {
    RETURN_IF_ERROR(Split(pass, *splits.validation, splits.held_out, numbers).AddAll());
  }
  // Each pair was computed by one data rank.
  pass.everyone.AllReduceSum(Tensor{{numbers.data(), DType::kF64, Shape{int64_t(numbers.size())}}});
  *splits.reference = std::move(numbers);
  return absl::OkStatus();
}

absl::Status KeepReference(const JobConfig& job, const JobData& data, const ReferenceFiles& files,
                           Collective& everyone) {
  std::vector<double>& numbers = *data.splits.reference;
  const std::string digest = DigestOf(job, data);
  const bool first = everyone.rank() == 0;
  if (files.read_from > 0) {
    const absl::Status read =
        first ? ReadReferenceAt(ReferencePath(files.directory, files.read_from), digest, numbers)
              : absl::OkStatus();
    RETURN_IF_ERROR(AgreeOnStatus(everyone, read));
    // The other ranks have zeros.
    everyone.AllReduceSum(Tensor{{numbers.data(), DType::kF64, Shape{int64_t(numbers.size())}}});
  }
  return AgreeOnStatus(
      everyone, first ? WriteReference(files, digest, numbers, LocalStorage()) : absl::OkStatus());
}

}  // namespace trainyard
