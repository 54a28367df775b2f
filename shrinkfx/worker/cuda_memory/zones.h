/* Zones of poison about every tensor, and inaccessible pages beyond them.
 *
 *     with pages      | inaccessible | poison | tensor | < 16 bytes | inaccessible |
 *     without them                   | poison | tensor | poison |
 *
 * No CUDA here: what is asked of a device is a ``Memory``, of which a test has one on
 * the CPU. The first of the drawings is that of AFTER; with BEFORE the tensor begins
 * where the pages do.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

namespace shrinkfx {

enum Side { OFF, AFTER, BEFORE };

/* A NaN in each type of floating point, -1 in each of whole numbers. */
constexpr unsigned char POISON = 0xFF;
/* Inductor's kernels load 16 bytes at once (GPU_ALIGN_BYTES of torch/_inductor). */
constexpr size_t ALIGNMENT = 16;
constexpr size_t ZONE = 4096;
constexpr size_t MOST_FINDINGS = 8;

inline size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* Bytes of a block: before + size + after make whole pages where there are pages. */
struct Layout {
  size_t before, size, after;
  size_t all() const { return before + size + after; }
};

/* Args: page, bytes of a page; 0 where there are none. */
inline Layout lay_out(size_t size, size_t page, Side side) {
  if (!page) return {ZONE, size, round_up(size, ALIGNMENT) - size + ZONE};
  size_t rest = round_up(size, page) - size;
  size_t before = side == BEFORE ? 0 : rest / ALIGNMENT * ALIGNMENT;
  return {before, size, rest - before};
}

/* A zone, told from the tensor's side: byte 0 lies next to it. */
struct Zone {
  const unsigned char *start;
  size_t bytes;
  bool precedes;
  ON_BOTH bool is_spoiled(size_t distance) const {
    return start[precedes ? bytes - 1 - distance : distance] != POISON;
  }
};

/* What is asked of a device. ``false`` and nullptr: it does not answer, or has no more. */
class Memory {
 public:
  virtual ~Memory() = default;
  virtual size_t page_bytes(int device) = 0;
  virtual char *take(size_t bytes, size_t page, int device) = 0;
  virtual void give_back(char *memory, size_t bytes, size_t page) = 0;
  virtual bool fill(char *start, size_t bytes, unsigned char value) = 0;
  virtual bool wait() = 0;
  /* Say what is wrong with the device; '' where it is only short of memory. */
  virtual std::string trouble() = 0;
  /* Find the spoiled byte of each zone that is nearest to the tensor, else ``bytes``. */
  virtual bool nearest(const std::vector<Zone> &zones, std::vector<size_t> &found) = 0;
};

struct Block {
  char *memory;
  Layout layout;
  size_t page;
};

class Zones {
 public:
  explicit Zones(Memory &memory) : memory_(memory) {}

  void set(Side side, bool loud) {
    std::lock_guard<std::mutex> held(lock_);
    side_ = side;
    loud_ = loud;
  }

  /* Throws, since PyTorch takes a null pointer for memory. */
  void *allocate(size_t size, int device) {
    if (!size) return nullptr;
    std::lock_guard<std::mutex> held(lock_);
    size_t page = side_ == OFF ? 0 : memory_.page_bytes(device);
    Layout layout = lay_out(size, page, side_);
    char *taken = memory_.take(layout.all(), page, device);
    if (!taken || !memory_.fill(taken, layout.all(), POISON)) refuse(size);
    pages_ = page ? 1 : 0;
    char *tensor = taken + layout.before;
    blocks_[tensor] = {taken, layout, page};
    return tensor;
  }

  void release(void *pointer) {
    std::lock_guard<std::mutex> held(lock_);
    auto found = blocks_.find((char *)pointer);
    if (found == blocks_.end()) return;
    memory_.wait(); /* a kernel that was launched before may be at it */
    look_at({found->first}, ", which was freed since");
    Block block = found->second;
    blocks_.erase(found);
    memory_.give_back(block.memory, block.layout.all(), block.page);
  }

  /* Look at all zones; what is spoiled is told once. */
  void look(const std::string &when) {
    std::lock_guard<std::mutex> held(lock_);
    if (!memory_.wait()) return; /* the device has said itself what is wrong */
    std::vector<char *> all;
    for (auto &each : blocks_) all.push_back(each.first);
    look_at(all, when);
  }

  /* Hand over what was found, a line each. */
  std::string take_findings() {
    std::lock_guard<std::mutex> held(lock_);
    std::string all;
    for (auto &each : findings_) all += each + "\n";
    findings_.clear();
    return all;
  }

  /* Whether the last tensor lies against pages; -1 before the first. */
  int have_pages() const { return pages_; }

 private:
  [[noreturn]] void refuse(size_t size) {
    std::string trouble = memory_.trouble();
    if (!trouble.empty()) throw std::runtime_error("CUDA error: " + trouble);
    throw std::runtime_error("CUDA out of memory. Tried to allocate " +
                             std::to_string(size) + " bytes between red zones");
  }

  void look_at(const std::vector<char *> &tensors, const std::string &when) {
    if (tensors.empty()) return;
    std::vector<Zone> zones;
    for (char *tensor : tensors) {
      const Block &block = blocks_[tensor];
      auto memory = (const unsigned char *)block.memory;
      size_t to_end = block.layout.before + block.layout.size;
      zones.push_back({memory, block.layout.before, true});
      zones.push_back({memory + to_end, block.layout.after, false});
    }
    std::vector<size_t> found(zones.size());
    if (!memory_.nearest(zones, found)) return;
    for (size_t i = 0; i < zones.size(); i++) {
      if (found[i] >= zones[i].bytes) continue;
      tell(zones[i], found[i], blocks_[tensors[i / 2]].layout.size, when);
      memory_.fill((char *)zones[i].start, zones[i].bytes, POISON);
    }
  }

  void tell(const Zone &zone, size_t distance, size_t size, const std::string &when) {
    size_t bytes = distance + (zone.precedes ? 1 : 0);
    std::string text = "write ";
    text += bytes ? std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes") : "just";
    text += zone.precedes ? " before the start of" : " past the end of";
    text += " a tensor of " + std::to_string(size) + " bytes" + when;
    if (loud_) {
      fprintf(stderr, "red zones: illegal memory access: %s\n", text.c_str());
      fflush(stderr);
      abort();
    }
    if (findings_.size() < MOST_FINDINGS) findings_.push_back(text);
  }

  Memory &memory_;
  std::mutex lock_;
  std::map<char *, Block> blocks_;
  std::vector<std::string> findings_;
  Side side_ = OFF;
  bool loud_ = false;
  int pages_ = -1;
};

/* Of this library, on its device. */
Zones &zones();

/* Whether zones are looked at before and after each launch. */
inline bool &watching() {
  static bool on = false;
  return on;
}

} // namespace shrinkfx
