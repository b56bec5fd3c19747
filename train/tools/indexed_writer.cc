#include "train/tools/indexed_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr char kTemporaryTokens[] = ".bin.tmp";
constexpr char kTemporaryLengths[] = ".len.tmp";

absl::Status WriteAll(const FileDescriptor& file, absl::string_view bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path);
    bytes.remove_prefix(size_t(n));
  }
  return absl::OkStatus();
}

// Opens a temporary file and cuts it to its first `bytes`, so that what is written follows them.
absl::StatusOr<FileDescriptor> OpenToAppend(const std::string& path, int64_t bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoStatus(errno, "open", path);
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": wanted at least ", bytes, " bytes, found ", size));
  }
  if (::ftruncate(file.get(), bytes) != 0) return ErrnoStatus(errno, "truncate", path);
  return file;
}

template <typename T>
void AppendValue(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool AppendToken(std::string& out, int32_t token) {
  if (int64_t(token) < int64_t(std::numeric_limits<T>::min()) ||
      int64_t(token) > int64_t(std::numeric_limits<T>::max())) {
    return false;
  }
  AppendValue(out, T(token));
  return true;
}

bool AppendAs(IndexDType dtype, std::string& out, int32_t token) {
  switch (dtype) {
    case IndexDType::kUint8:
      return AppendToken<uint8_t>(out, token);
    case IndexDType::kInt8:
      return AppendToken<int8_t>(out, token);
    case IndexDType::kInt16:
      return AppendToken<int16_t>(out, token);
    case IndexDType::kUint16:
      return AppendToken<uint16_t>(out, token);
    case IndexDType::kInt32:
      return AppendToken<int32_t>(out, token);
    case IndexDType::kInt64:
      return AppendToken<int64_t>(out, token);
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Create(const std::string& prefix,
                                                                     IndexDType dtype) {
  ASSIGN_OR_RETURN(PrefixLock lock, PrefixLock::Take(prefix));
  return Create(std::move(lock), dtype);
}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Create(PrefixLock lock,
                                                                     IndexDType dtype) {
  CHECK(TokenBytes(dtype) > 0) << "no integer type: " << int(dtype);
  std::unique_ptr<IndexedWriter> writer(new IndexedWriter(std::move(lock), dtype));
  const std::string& prefix = writer->prefix_;
  // An old index and new tokens together would be a wrong dataset that looks right.
  for (const char* suffix : {".idx", ".bin"}) {
    const std::string old = prefix + suffix;
    if (::unlink(old.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove", old);
  }
  const std::string path = prefix + kTemporaryTokens;
  writer->file_ = FileDescriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!writer->file_.valid()) return ErrnoStatus(errno, "create", path);
  return writer;
}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Resume(PrefixLock lock,
                                                                     IndexDType dtype,
                                                                     int64_t documents,
                                                                     int64_t tokens) {
  CHECK(TokenBytes(dtype) > 0) << "no integer type: " << int(dtype);
  std::unique_ptr<IndexedWriter> writer(new IndexedWriter(std::move(lock), dtype));
  const std::string& prefix = writer->prefix_;
  const std::string path = prefix + kTemporaryTokens, lengths_path = prefix + kTemporaryLengths;
  // The writer may have been interrupted between the two steps of Finish.
  if (!Exists(path) && ::rename((prefix + kTokensSuffix).c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "open", path);
  }
  ASSIGN_OR_RETURN(writer->lengths_file_,
                   OpenToAppend(lengths_path, documents * int64_t(sizeof(int32_t))));
  ASSIGN_OR_RETURN(writer->file_, OpenToAppend(path, tokens * int64_t(TokenBytes(dtype))));
  ASSIGN_OR_RETURN(const std::string lengths,
                   ReadFile(lengths_path, uint64_t(documents) * sizeof(int32_t)));
  writer->lengths_.resize(size_t(documents));
  std::memcpy(writer->lengths_.data(), lengths.data(), lengths.size());
  writer->lengths_synced_ = size_t(documents);
  writer->tokens_ = tokens;
  return writer;
}

IndexedWriter::IndexedWriter(PrefixLock lock, IndexDType dtype)
    : lock_(std::move(lock)), prefix_(lock_->prefix()), dtype_(dtype) {}

IndexedWriter::~IndexedWriter() {
  if (file_.valid() && !lengths_file_.valid()) ::unlink((prefix_ + kTemporaryTokens).c_str());
}

absl::Status IndexedWriter::AddDocument(std::span<const int32_t> tokens) {
  if (tokens.size() > size_t(std::numeric_limits<int32_t>::max())) {
    return absl::OutOfRangeError(absl::StrCat("document ", lengths_.size(), " has ", tokens.size(),
                                              " tokens, at most 2^31 - 1 fit the format"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!AppendAs(dtype_, buffer_, tokens[i])) {
      return absl::OutOfRangeError(absl::StrCat("token ", tokens[i], " of document ",
                                                lengths_.size(), " does not fit dtype code ",
                                                int(dtype_)));
    }
    if (buffer_.size() >= kBufferBytes) RETURN_IF_ERROR(Flush());
  }
  lengths_.push_back(int32_t(tokens.size()));
  tokens_ += int64_t(tokens.size());
  return absl::OkStatus();
}

absl::Status IndexedWriter::Flush() {
  RETURN_IF_ERROR(WriteAll(file_, buffer_, prefix_ + kTemporaryTokens));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status IndexedWriter::Sync() {
  const std::string path = prefix_ + kTemporaryLengths;
  if (!lengths_file_.valid()) {
    lengths_file_ = FileDescriptor(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!lengths_file_.valid()) return ErrnoStatus(errno, "create", path);
  }
  RETURN_IF_ERROR(Flush());
  const absl::string_view lengths(reinterpret_cast<const char*>(lengths_.data() + lengths_synced_),
                                  (lengths_.size() - lengths_synced_) * sizeof(int32_t));
  RETURN_IF_ERROR(WriteAll(lengths_file_, lengths, path));
  lengths_synced_ = lengths_.size();
  if (::fdatasync(lengths_file_.get()) != 0) return ErrnoStatus(errno, "sync", path);
  if (::fdatasync(file_.get()) != 0) return ErrnoStatus(errno, "sync", prefix_ + kTemporaryTokens);
  return absl::OkStatus();
}

std::string IndexedWriter::Index() const {
  std::string index(kIndexMagic, sizeof(kIndexMagic));
  AppendValue(index, kIndexVersion);
  AppendValue(index, dtype_);
  AppendValue(index, uint64_t(lengths_.size()));
  AppendValue(index, uint64_t(lengths_.size() + 1));
  for (const int32_t length : lengths_) AppendValue(index, length);
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    AppendValue(index, offset);
    offset += int64_t(length) * int64_t(TokenBytes(dtype_));
  }
  for (size_t document = 0; document <= lengths_.size(); ++document) {
    AppendValue(index, int64_t(document));
  }
  return index;
}

absl::Status IndexedWriter::Finish() {
  RETURN_IF_ERROR(Flush());
  const std::string temporary = prefix_ + kTemporaryTokens, path = prefix_ + kTokensSuffix;
  if (::fsync(file_.get()) != 0) return ErrnoStatus(errno, "sync", temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to", path);
  file_ = FileDescriptor();
  RETURN_IF_ERROR(WriteFileAtomic(prefix_ + kIndexSuffix, Index()));
  if (lengths_file_.valid()) ::unlink((prefix_ + kTemporaryLengths).c_str());
  lock_.reset();
  return absl::OkStatus();
}

}  // namespace trainyard
