#include "tests/power_cut/trace.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/check.h"
#include "common/files.h"

namespace trainyard::power_cut {
namespace {

constexpr size_t kSector = 512;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void Write(const std::string& data, size_t offset, std::string& contents) {
  if (contents.size() < offset + data.size()) contents.resize(offset + data.size());
  std::copy(data.begin(), data.end(), contents.begin() + std::ptrdiff_t(offset));
}

}  // namespace

std::vector<Step> ReadTrace(const std::string& log) {
  const std::string text = ReadFile(log).value();
  std::vector<Step> steps;
  for (size_t at = 0; at < text.size();) {
    Header header;
    CHECK(at + sizeof(header) <= text.size()) << log << " ends within a header";
    std::memcpy(&header, &text[at], sizeof(header));
    at += sizeof(header);
    CHECK(at + header.name_bytes + header.data_bytes <= text.size()) << log << " ends early";
    steps.push_back({Call(header.call), header.number, header.offset,
                     text.substr(at, header.name_bytes),
                     text.substr(at + header.name_bytes, header.data_bytes)});
    at += header.name_bytes + header.data_bytes;
  }
  return steps;
}

Disk::Disk() {
  nodes_.push_back(std::make_shared<Node>());
  nodes_[0]->directory = true;
}

Disk::NodePtr Disk::Find(const std::string& path) const {
  if (path == ".") return nodes_[0];
  const NodePtr parent = Find(ParentOf(path));
  if (parent == nullptr) return nullptr;
  const auto it = parent->names_now.find(NameOf(path));
  return it == parent->names_now.end() ? nullptr : it->second;
}

void Disk::Name(const std::string& path, NodePtr node) {
  const NodePtr parent = Find(ParentOf(path));
  CHECK(parent != nullptr) << path;
  parent->namings.push_back({{{NameOf(path), node}}});
  if (node == nullptr) {
    parent->names_now.erase(NameOf(path));
  } else {
    parent->names_now[NameOf(path)] = std::move(node);
  }
}

void Disk::Make(const std::string& path, NodePtr node) {
  nodes_.push_back(node);
  Name(path, std::move(node));
}

void Disk::Apply(const Step& step) {
  switch (step.call) {
    case Call::kCreate: {
      const auto node = std::make_shared<Node>();
      by_inode_[step.number] = node;
      return Make(step.name, node);
    }
    case Call::kMakeDirectory: {
      const auto node = std::make_shared<Node>();
      node->directory = true;
      return Make(step.name, node);
    }
    case Call::kWrite:
      return by_inode_.at(step.number)->changes.push_back({step.offset, step.data, false});
    case Call::kTruncate:
      return by_inode_.at(step.number)->changes.push_back({step.offset, "", true});
    case Call::kSync: {
      NodePtr node = Find(step.name);
      if (node == nullptr) node = by_inode_.at(step.number);  // Synced after it was removed.
      for (const Change& change : std::exchange(node->changes, {})) {
        if (change.truncates) {
          node->contents.resize(size_t(change.offset));
        } else {
          Write(change.data, size_t(change.offset), node->contents);
        }
      }
      node->namings.clear();
      node->names = node->names_now;
      return;
    }
    case Call::kRename: {
      const NodePtr node = Find(step.name);
      CHECK(node != nullptr && ParentOf(step.name) == ParentOf(step.data))
          << step.name << " to " << step.data << ": wanted one directory";
      const NodePtr parent = Find(ParentOf(step.name));
      parent->namings.push_back({{{NameOf(step.name), nullptr}, {NameOf(step.data), node}}});
      parent->names_now.erase(NameOf(step.name));
      parent->names_now[NameOf(step.data)] = node;
      return;
    }
    case Call::kLink:
      return Name(step.data, Find(step.name));
    case Call::kRemove:
      return Name(step.name, nullptr);
    case Call::kMark:
      return;
  }
}

size_t Disk::num_pending() const {
  size_t count = 0;
  for (const NodePtr& node : nodes_) count += node->changes.size() + node->namings.size();
  return count;
}

std::map<std::string, std::string> Disk::AfterCut(Survives survives, size_t which,
                                                  std::mt19937_64& random) const {
  size_t number = 0;  // Of a pending change.
  const auto survives_whole = [&](size_t mine) {
    switch (survives) {
      case Survives::kNothing:
        return false;
      case Survives::kAll:
        return true;
      case Survives::kAllButOne:
        return mine != which;
      case Survives::kOneAlone:
        return mine == which;
      case Survives::kAnyPart:
        return random() % 2 == 0;
    }
    return true;
  };
  std::map<const Node*, std::string> contents;
  std::map<const Node*, std::map<std::string, NodePtr>> names;
  for (const NodePtr& node : nodes_) {
    std::string& mine = contents[node.get()] = node->contents;
    for (const Change& change : node->changes) {
      const bool whole = survives_whole(number++);
      const bool torn = survives == Survives::kAnyPart && random() % 3 == 0;
      if (change.truncates) {
        if (whole) mine.resize(size_t(change.offset));
      } else if (whole && !torn) {
        Write(change.data, size_t(change.offset), mine);
      } else if (torn) {
        for (size_t at = 0; at < change.data.size(); at += kSector) {
          if (random() % 2 == 0) {
            Write(change.data.substr(at, kSector), size_t(change.offset) + at, mine);
          }
        }
      }
    }
    auto& entries = names[node.get()] = node->names;
    for (const Naming& naming : node->namings) {
      if (!survives_whole(number++)) continue;
      for (const auto& [name, target] : naming.entries) {
        if (target == nullptr) {
          entries.erase(name);
        } else {
          entries[name] = target;
        }
      }
    }
  }
  std::map<std::string, std::string> files;
  const std::function<void(const Node*, const std::string&)> list = [&](const Node* directory,
                                                                        const std::string& path) {
    for (const auto& [name, node] : names.at(directory)) {
      if (node->directory) {
        files[path + name + "/"];
        list(node.get(), path + name + "/");
      } else {
        files[path + name] = contents.at(node.get());
      }
    }
  };
  list(nodes_[0].get(), "");
  return files;
}

}  // namespace trainyard::power_cut
