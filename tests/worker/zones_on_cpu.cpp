/* The red zones of shrinkfx/worker/cuda_memory/, with the CPU for a device.
 *
 * ZONES_PAGE says how large a page is, 0 that there are none; ZONES_MEMORY how many
 * bytes there are; ZONES_TROUBLE what is wrong with the device.
 */
#include <sys/mman.h>

#include <cstring>

typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_INITIALIZED = 3 };

#include "entries.h"
#include "launches.h"
#include "zones.h"

namespace {

size_t number(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}

class OnCpu : public shrinkfx::Memory {
 public:
  size_t page_bytes(int) override { return number("ZONES_PAGE", 0); }

  char *take(size_t bytes, size_t page, int) override {
    if (bytes > number("ZONES_MEMORY", (size_t)1 << 30)) return nullptr;
    if (!page) return (char *)aligned_alloc(256, shrinkfx::round_up(bytes, 256));
    int how = MAP_PRIVATE | MAP_ANONYMOUS;
    auto at = (char *)mmap(nullptr, bytes + 2 * page, PROT_NONE, how, -1, 0);
    mprotect(at + page, bytes, PROT_READ | PROT_WRITE);
    return at + page;
  }

  void give_back(char *memory, size_t bytes, size_t page) override {
    if (page)
      mprotect(memory, bytes, PROT_NONE);
    else
      free(memory);
  }

  bool fill(char *start, size_t bytes, unsigned char value) override {
    memset(start, value, bytes);
    return true;
  }

  bool wait() override { return trouble().empty(); }

  std::string trouble() override {
    const char *text = getenv("ZONES_TROUBLE");
    return text ? text : "";
  }

  bool nearest(const std::vector<shrinkfx::Zone> &zones,
               std::vector<size_t> &found) override {
    for (size_t i = 0; i < zones.size(); i++) {
      found[i] = 0;
      while (found[i] < zones[i].bytes && !zones[i].is_spoiled(found[i])) found[i]++;
    }
    return true;
  }
};

} // namespace

shrinkfx::Zones &shrinkfx::zones() {
  static auto *memory = new OnCpu;
  static auto *zones = new Zones(*memory);
  return *zones;
}
