/* The zones of zones.h on a GPU: a pluggable allocator for PyTorch.
 *
 * Where the driver can reserve addresses without memory behind them, a tensor lies in
 * pages of its own between such addresses, and a kernel that goes beyond them faults;
 * so does one that uses memory which was freed, until as many addresses as QUARANTINE
 * have been freed after it. The driver is found at run time: nothing links libcuda.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <deque>

#include "entries.h"
#include "launches.h"
#include "zones.h"

namespace {

using shrinkfx::Zone;

constexpr size_t QUARANTINE = (size_t)1 << 40;
constexpr int THREADS = 256;

#define DRIVER(name) shrinkfx::in_driver(&name, #name)

/* Have a device be the current one for a while. */
class On {
 public:
  explicit On(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~On() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

__global__ void scan(const Zone *zones, unsigned long long *found) {
  Zone zone = zones[blockIdx.x];
  for (size_t i = threadIdx.x; i < zone.bytes; i += blockDim.x)
    if (zone.is_spoiled(i)) {
      atomicMin(&found[blockIdx.x], (unsigned long long)i);
      return; /* the next ones of this thread are further away */
    }
}

/* Memory of the device that is not between zones, freed with its scope. */
template <typename Item>
class Scratch {
 public:
  explicit Scratch(const std::vector<Item> &items) : bytes_(items.size() * sizeof(Item)) {
    ok_ = cudaMalloc((void **)&at, bytes_) == cudaSuccess &&
          cudaMemcpy(at, items.data(), bytes_, cudaMemcpyHostToDevice) == cudaSuccess;
  }
  ~Scratch() { cudaFree(at); }
  bool ok() const { return ok_; }
  Item *at = nullptr;

 private:
  size_t bytes_;
  bool ok_;
};

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp about = {};
  about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  about.location.id = device;
  return about;
}

/* Of one device: a program of several is none that shrinkfx takes. */
class OnCuda : public shrinkfx::Memory {
 public:
  size_t page_bytes(int device) override {
    auto known = pages_.find(device);
    if (known == pages_.end()) known = pages_.emplace(device, ask(device)).first;
    return known->second;
  }

  char *take(size_t bytes, size_t page, int device) override {
    device_ = device;
    On on(device);
    char *memory = nullptr;
    if (!page) return cudaMalloc((void **)&memory, bytes) ? nullptr : memory;
    CUdeviceptr addresses = 0;
    auto reserve = DRIVER(cuMemAddressReserve);
    if (reserve(&addresses, bytes + 2 * page, page, 0, 0)) return nullptr;
    if (map(addresses + page, bytes, device)) return (char *)(addresses + page);
    DRIVER(cuMemAddressFree)(addresses, bytes + 2 * page);
    return nullptr;
  }

  void give_back(char *memory, size_t bytes, size_t page) override {
    On on(device_);
    if (!page) {
      cudaFree(memory);
      return;
    }
    auto at = (CUdeviceptr)memory;
    DRIVER(cuMemUnmap)(at, bytes);
    DRIVER(cuMemRelease)(handles_[at]);
    handles_.erase(at);
    freed_.push_back({at - page, bytes + 2 * page});
    freed_bytes_ += bytes + 2 * page;
    while (freed_bytes_ > QUARANTINE) {
      DRIVER(cuMemAddressFree)(freed_.front().first, freed_.front().second);
      freed_bytes_ -= freed_.front().second;
      freed_.pop_front();
    }
  }

  bool fill(char *start, size_t bytes, unsigned char value) override {
    On on(device_);
    /* Streams of PyTorch's need not wait for the one that fills. */
    return !cudaMemset(start, value, bytes) && !cudaStreamSynchronize(nullptr);
  }

  bool wait() override { return state() == cudaSuccess; }

  std::string trouble() override {
    cudaError_t now = state();
    return now ? cudaGetErrorString(now) : "";
  }

  bool nearest(const std::vector<Zone> &zones, std::vector<size_t> &found) override {
    On on(device_);
    std::vector<unsigned long long> none;
    for (auto &zone : zones) none.push_back(zone.bytes);
    Scratch<Zone> on_device(zones);
    Scratch<unsigned long long> result(none);
    if (!on_device.ok() || !result.ok()) return false;
    scan<<<(unsigned)zones.size(), THREADS>>>(on_device.at, result.at);
    size_t bytes = none.size() * sizeof none[0];
    if (cudaGetLastError() ||
        cudaMemcpy(none.data(), result.at, bytes, cudaMemcpyDeviceToHost))
      return false;
    found.assign(none.begin(), none.end());
    return true;
  }

 private:
  cudaError_t state() {
    On on(device_);
    return cudaDeviceSynchronize();
  }

  static size_t ask(int device) {
    On on(device);
    cudaFree(nullptr); /* makes the context */
    auto attribute = DRIVER(cuDeviceGetAttribute);
    auto granularity = DRIVER(cuMemGetAllocationGranularity);
    int able = 0;
    size_t bytes = 0;
    auto able_to = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if (!attribute || !granularity || attribute(&able, able_to, device) || !able) return 0;
    CUmemAllocationProp about = on_device(device);
    auto least = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    return granularity(&bytes, &about, least) ? 0 : bytes;
  }

  bool map(CUdeviceptr at, size_t bytes, int device) {
    CUmemAllocationProp about = on_device(device);
    CUmemGenericAllocationHandle handle;
    if (DRIVER(cuMemCreate)(&handle, bytes, &about, 0)) return false;
    CUmemAccessDesc access = {};
    access.location = about.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    bool mapped = !DRIVER(cuMemMap)(at, bytes, 0, handle, 0);
    if (mapped && !DRIVER(cuMemSetAccess)(at, bytes, &access, 1)) {
      handles_[at] = handle;
      return true;
    }
    if (mapped) DRIVER(cuMemUnmap)(at, bytes);
    DRIVER(cuMemRelease)(handle);
    return false;
  }

  int device_ = 0;
  std::map<int, size_t> pages_;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> handles_;
  std::deque<std::pair<CUdeviceptr, size_t>> freed_;
  size_t freed_bytes_ = 0;
};

} // namespace

shrinkfx::Zones &shrinkfx::zones() {
  static auto *memory = new OnCuda; /* PyTorch frees at exit, when statics are gone */
  static auto *zones = new Zones(*memory);
  return *zones;
}
