// Tells after a crash or a fault how far the store must reach: DIRECTORY/witness holds the newest
// transactions, by number, in 32 slots. SQLite drops the tail of its log silently where the log was
// cut short or changed; the witness knows that the tail was there, and holds it.
//
// A transaction is acknowledged once its slot is synced. The slot holds what the transaction added
// to the log, so the log itself needs a sync only before the slot is used again, every 32nd
// transaction: on the whole one sync for each transaction, as without a witness. A transaction
// that is too large for a slot has the log synced first, and the slot holds the number alone.
//
// When the store is opened, RepairLog puts back what the log lost of the newest transactions. If
// the store's own count of transactions then is behind newest(), acknowledged transactions are
// missing. A transaction that was being written when the controller died may be put back, too: its
// caller had no answer yet, so it may be there or not.

#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard::controller {

// Used by one thread at a time. Errors name the path.
class Witness {
 public:
  // The file is not made. INTERNAL: it cannot be read.
  static absl::StatusOr<std::unique_ptr<Witness>> Load(const std::string& path);
  ~Witness();

  // The number of the newest transaction that may have been acknowledged. Nothing: there is no
  // witness, or none of its slots is readable.
  std::optional<uint64_t> newest() const { return newest_; }

  // Writes into the log, before SQLite opens it, what it lacks of the transactions in the slots.
  // Returns how many bytes were put right.
  absl::StatusOr<uint64_t> RepairLog(const std::string& path);

  // A new witness, as of a store whose newest transaction is this.
  absl::Status Create(uint64_t number);
  // The log is empty, and the store holds everything up to this transaction. From now on the slots
  // are written.
  void Start(uint64_t number);

  // Around a transaction: what was noted of an earlier one is forgotten; the transaction gets this
  // number and is about to be committed.
  void Begin();
  void Expect(uint64_t number);
  // The transaction failed, and its caller hears so: whatever of it is in a slot goes.
  void Forget();

  // From below SQLite. OnLogSync returns SQLite's code, and calls `sync` where it is needed.
  void OnLogWrite(const char* data, size_t bytes, int64_t offset);
  int OnLogSync(const std::function<int()>& sync);

 private:
  class File;
  struct Record {
    uint64_t number = 0;
    std::string salt;  // Of the log that it was added to.
    int64_t offset = 0;
    std::string bytes;  // Empty: the log was synced before.
  };

  explicit Witness(std::string path);
  absl::Status ReadSlots();
  static std::optional<Record> Decode(const std::string& slot);
  const std::string& Seal(uint64_t number);  // slot_, with its header.
  void ClearSlot();
  int WriteSlot(uint64_t number, const std::string& slot);

  const std::string path_;
  std::unique_ptr<File> file_;   // Null: there is none.
  std::vector<Record> records_;  // As read; by number.
  std::optional<uint64_t> newest_;

  bool started_ = false;
  uint64_t log_synced_ = 0;  // The log is durable up to this transaction.
  std::optional<uint64_t> expected_;
  std::optional<uint64_t> doubtful_;  // Its slot may have been written, and it failed.
  std::string salt_;
  std::string slot_;    // Room for its header, then what was added to the log since its last sync.
  int64_t offset_ = 0;  // In the log, of what the slot holds.
  bool one_piece_ = true;  // slot_ holds all of it.
};

}  // namespace trainyard::controller
