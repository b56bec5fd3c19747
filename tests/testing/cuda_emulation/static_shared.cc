#include "static_shared.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace cuda_emulation {
namespace {

// A range of bytes in a module's thread-local memory.
struct Piece {
  size_t begin, end;
};

// Whether the name is that of a variable in a function of trainyard::cuda.
bool IsOfAKernel(std::string_view mangled) {
  return mangled.starts_with("_ZZN9trainyard4cuda") || mangled.starts_with("_ZZNK9trainyard4cuda");
}

// Reads the symbols of an ELF file of this machine. Empty if it has none.
std::vector<Piece> PiecesOf(const std::byte* file) {
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(file);
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  std::vector<Piece> pieces;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[i].sh_offset);
    const char* const names =
        reinterpret_cast<const char*>(file + sections[sections[i].sh_link].sh_offset);
    for (size_t n = 0; n < sections[i].sh_size / sizeof(Elf64_Sym); ++n) {
      const Elf64_Sym& symbol = symbols[n];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
      if (!IsOfAKernel(names + symbol.st_name)) continue;
      if (symbol.st_size > 0) pieces.push_back({symbol.st_value, symbol.st_value + symbol.st_size});
    }
  }
  return pieces;
}

std::vector<Piece> PiecesOf(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status = {};
  std::vector<Piece> pieces;
  if (::fstat(file, &status) == 0 && status.st_size > 0) {
    const size_t bytes = size_t(status.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) {
      pieces = PiecesOf(static_cast<const std::byte*>(mapped));
      ::munmap(mapped, bytes);
    }
  }
  ::close(file);
  return pieces;
}

// What each module has, by its path.
struct Modules {
  std::mutex mutex;
  std::map<std::string, std::vector<Piece>> pieces;
};
Modules& TheModules() {
  static Modules modules;
  return modules;
}

// Those of all kernels, for the calling thread.
std::vector<std::span<std::byte>> AllVariables() {
  std::vector<std::span<std::byte>> found;
  const auto visit = [](dl_phdr_info* info, size_t, void* to) {
    if (info->dlpi_tls_data == nullptr) return 0;  // This thread has used none of the module's.
    const std::string path = info->dlpi_name[0] == '\0' ? "/proc/self/exe" : info->dlpi_name;
    Modules& modules = TheModules();
    const std::lock_guard lock(modules.mutex);
    const auto [module, is_new] = modules.pieces.try_emplace(path);
    if (is_new) module->second = PiecesOf(path);
    for (const Piece& piece : module->second) {
      static_cast<std::vector<std::span<std::byte>>*>(to)->emplace_back(
          static_cast<std::byte*>(info->dlpi_tls_data) + piece.begin, piece.end - piece.begin);
    }
    return 0;
  };
  ::dl_iterate_phdr(visit, &found);
  return found;
}

void Poison(std::span<std::byte> memory) { std::memset(memory.data(), 0xff, memory.size()); }

bool IsPoison(std::span<const std::byte> memory) {
  return memory[0] == std::byte{0xff} &&
         std::memcmp(memory.data(), memory.data() + 1, memory.size() - 1) == 0;
}

// How many variables of the calling thread have been poisoned.
size_t& Poisoned() {
  static thread_local size_t variables = 0;
  return variables;
}

}  // namespace

StaticShared::StaticShared() : all_(AllVariables()) {
  if (Poisoned() == all_.size()) return;
  for (const Variable& variable : all_) Poison(variable);  // New, as those of a thread are.
  Poisoned() = all_.size();
}

StaticShared::~StaticShared() { PoisonChanged(); }

void StaticShared::EndBlock() {
  if (first_) {
    used_ = PoisonChanged();
  } else {
    for (const Variable& variable : used_) Poison(variable);
  }
  first_ = false;
}

std::vector<StaticShared::Variable> StaticShared::PoisonChanged() {
  std::vector<Variable> changed;
  for (const Variable& variable : all_) {
    if (IsPoison(variable)) continue;
    Poison(variable);
    changed.push_back(variable);
  }
  return changed;
}

}  // namespace cuda_emulation
