// What a program did to the files of one directory (recorder.cc), and what of it a power cut may
// leave: everything that was synced, and any part of the rest.
//
// Of a file's contents, what was written since its last sync may be there or not, write by write
// and sector by sector. Of a directory's names, each change since the directory's last sync may be
// there or not. Nothing else is promised by POSIX, and no file system keeps less.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace trainyard::power_cut {

enum class Call : uint32_t {
  kCreate,         // number: inode; name: path
  kWrite,          // number: inode; offset; data
  kTruncate,       // number: inode; offset: the new size
  kSync,           // number: inode; name: path, of a file or a directory
  kRename,         // name: from; data: to
  kLink,           // name: from; data: to
  kRemove,         // name: path, of a file or an empty directory
  kMakeDirectory,  // name: path
  kMark,           // name: what the program has promised by now
};

// As in the log; name and data follow.
struct Header {
  uint32_t call;
  uint32_t name_bytes;
  int64_t number;
  int64_t offset;
  uint64_t data_bytes;
};

struct Step {
  Call call;
  int64_t number;
  int64_t offset;
  std::string name;
  std::string data;
};
std::vector<Step> ReadTrace(const std::string& log);

// The disk after some steps: what is durable, and what is pending.
class Disk {
 public:
  Disk();
  void Apply(const Step& step);

  // Which of what is pending survives the cut.
  enum class Survives { kNothing, kAll, kAllButOne, kOneAlone, kAnyPart };
  size_t num_pending() const;
  // `which`: of kAllButOne and kOneAlone, below num_pending(). `random`: of kAnyPart. Paths and
  // contents of the files, directories with a '/' at the end of the path.
  std::map<std::string, std::string> AfterCut(Survives survives, size_t which,
                                              std::mt19937_64& random) const;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Change {  // Of a file's contents.
    int64_t offset;
    std::string data;
    bool truncates;  // To `offset`.
  };
  struct Naming {  // Of names in a directory; a rename is both or neither.
    std::vector<std::pair<std::string, NodePtr>> entries;  // Null: the name is gone.
  };
  struct Node {
    bool directory = false;
    std::string contents;  // Durable,
    std::map<std::string, NodePtr> names;
    std::vector<Change> changes;  // and pending.
    std::vector<Naming> namings;
    std::map<std::string, NodePtr> names_now;
  };

  NodePtr Find(const std::string& path) const;
  void Name(const std::string& path, NodePtr node);
  void Make(const std::string& path, NodePtr node);

  std::vector<NodePtr> nodes_;  // All that ever were; the first is the root.
  std::map<int64_t, NodePtr> by_inode_;
};

}  // namespace trainyard::power_cut
