// Compiled once behind the text of AOTInductor's interface.cpp, without optimisation
// and with implicit templates: holds the instances that generated wrappers use, which
// are themselves compiled without any. What is missing here fails the link, and that
// candidate is built the usual way.

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::aot_inductor {

template class AOTInductorModelBase<AOTInductorModel>;

// Below, what is used as generated code uses it. Nothing of it is ever called.
namespace shrinkfx {

struct Kernels : AOTInductorModelKernelsBase {};

// A member is constructed by a call, a variable is not.
struct Holder {
  explicit Holder(int number) : number(number) {
    if (number > 1) {
      throw std::runtime_error("never");
    }
  }
  int number;
  std::unique_ptr<AOTInductorModelKernelsBase> kernels;
};

struct Constructed : AOTInductorModelBase<AOTInductorModel> {
  using Base = AOTInductorModelBase<AOTInductorModel>;

  Constructed(
      std::shared_ptr<ConstantMap> constants_map,
      std::shared_ptr<std::vector<ConstantHandle>> constants_array,
      const std::string& device_str,
      std::optional<std::string> cubin_dir)
      : Base(1, 1, 1, device_str, std::move(cubin_dir), true) {
    inputs_info_[0].name = "arg";
    outputs_info_[0].name = "output";
    constants_info_[0].name = "weight";
    constants_info_[0].dtype = 0;
    constants_info_[0].offset = 0;
    constants_info_[0].data_size = 4;
    constants_info_[0].shape = {2, 3};
    constants_info_[0].stride = {};
    constants_info_[0].layout = 0;
    constants_info_[0].original_fqn = "a.weight";
    update_constants_map(std::move(constants_map));
    update_constants_array(std::move(constants_array));
    in_spec_ = R"([1, {}])";
    out_spec_ = "[1]";
    auto weight = constants_->at(0);
    (void)weight.data_ptr();
    (void)static_cast<AtenTensorHandle>(weight);
    (void)constants_->size();
  }
};

__attribute__((used)) static void construct(
    std::shared_ptr<ConstantMap> constants_map,
    std::shared_ptr<std::vector<ConstantHandle>> constants_array) {
  auto* model = new Constructed(constants_map, constants_array, "cpu", "");
  delete model;
  model = new Constructed(
      std::move(constants_map), std::move(constants_array), "cpu", std::nullopt);
  delete model;
  Holder holder(1);
  auto& kernels = holder.kernels;
  kernels.reset(new Kernels());
  auto& all = static_cast<Kernels&>(*kernels.get());
  (void)all;
}

__attribute__((used)) static void handles(
    AtenTensorHandle* inputs,
    AtenTensorHandle* outputs,
    int64_t size,
    bool flag) {
  auto stolen = steal_from_raw_handles_to_raii_handles(inputs, 2);
  RAIIAtenTensorHandle first = std::move(stolen[0]);
  auto second = std::move(stolen[1]);
  stolen.clear();
  stolen.emplace_back(inputs[0]);
  stolen.emplace_back(std::move(second));
  stolen.push_back(std::move(first));
  RAIIAtenTensorHandle viewed(
      reinterpret_tensor_wrapper(stolen[0], 0, nullptr, nullptr, 0));
  viewed = std::move(stolen[2]);
  outputs[0] = viewed.release();
  outputs[0] = stolen.size() ? stolen[0].get() : nullptr;
  viewed.reset();
  // MaybeOwningAtenTensorHandle until 2.14, RAIIAtenTensorHandle since 2.15.
  ConstantMap::mapped_type shared(inputs[0]);
  shared = RAIIAtenTensorHandle(inputs[1]);
  ConstantHandle constant(inputs[0]);
  constant = ConstantHandle(inputs[1]);
  RAIIC10IValueHandle value(nullptr);
  RAIIAtenRecordFunctionHandle record("name", nullptr);
  RAIIAtenRecordFunctionHandle recorded("name", nullptr, {nullptr, nullptr});

  std::vector<AtenTensorHandle> all{inputs[0], inputs[1]};
  std::vector<AtenTensorHandle> empty(2);
  std::vector<AtenTensorHandle>& output_handles = all;
  all.push_back(inputs[0]);
  all.emplace_back(inputs[0]);
  for (auto& handle : all) {
    outputs[0] = handle;
  }
  output_handles[0] = all.data()[0];
  all = std::vector<AtenTensorHandle>({inputs[0]});
  outputs[0] = temporary_reference(RAIIAtenTensorHandle(inputs[0]).get());

  std::unordered_map<std::string, AtenTensorHandle> folded;
  folded["weight"] = inputs[0];
  folded.emplace("other", inputs[1]);
  auto moved = std::move(folded);
  for (auto& [name, handle] : moved) {
    outputs[0] = handle;
  }

  int64_t other = std::max<int64_t>(size, 1);
  other = std::max(size, other);
  other = std::min(size, other);
  other = std::min<int64_t>(other, 2);
  std::vector<int64_t> sizes{1, size};
  sizes = {other};
  sizes.push_back(other);
  sizes.emplace_back(size);
  double number = std::max(std::numeric_limits<double>::infinity(), 1.0);
  number = std::min(number, std::numeric_limits<double>::quiet_NaN());
  std::vector<double> numbers{number};
  numbers.push_back(number);
  std::optional<int64_t> maybe = size;
  std::optional<double> maybe_number = number;
  std::optional<bool> maybe_flag = flag;
  maybe = std::nullopt;
  (void)maybe.value_or(0);
  (void)maybe_number.has_value();
  (void)maybe_flag.value();
  std::vector<std::string> names{"a", std::string("b")};
  names.emplace_back("c");
}

__attribute__((used)) static void messages(
    const char* word, int64_t size, int32_t dtype, double number, bool flag) {
  std::stringstream stream;
  stream << word << "text" << std::string(word) << size << dtype << number << flag
         << '\n'
         << static_cast<size_t>(size) << 1 << 1L << 1.0f;
  std::string text = "(" + std::to_string(size) + ", " + std::to_string(dtype) +
      std::to_string(number) + std::to_string(static_cast<size_t>(size)) + ")";
  text = text + word + text + 'c';
  text += word;
  text += text;
  text = word + text;
  text = std::string(word) + std::string(word);
  if (text == word || text == std::string(word)) {
    std::cerr << text << word << size << number << std::endl;
    std::cout << text << word << size << number << std::endl;
  }
  throw std::runtime_error(std::move(stream).str() + stream.str());
}

__attribute__((used)) static void allocate(void* memory) {
  RAIIDataPtr owned(memory, [](void* data) { free(data); });
  owned = RAII_cpuMalloc(8);
  (void)owned.get();
}

} // namespace shrinkfx
} // namespace torch::aot_inductor

template class std::vector<AtenTensorHandle>;
template class std::vector<int64_t>;
template class std::vector<int32_t>;
template class std::vector<double>;
template class std::vector<std::string>;
template class std::vector<torch::aot_inductor::ConstantHandle>;
template class std::initializer_list<int64_t>;
template class std::initializer_list<AtenTensorHandle>;
template class std::optional<int64_t>;
template class std::optional<std::string>;
template class std::unique_ptr<AtenTensorOpaque, void (*)(void*)>;
template class std::unique_ptr<torch::aot_inductor::AOTInductorModelKernelsBase>;
template class std::unordered_map<std::string, AtenTensorHandle>;
template class std::shared_ptr<torch::aot_inductor::ConstantMap>;
template class std::shared_ptr<std::vector<torch::aot_inductor::ConstantHandle>>;

// Explicit instances may name what is protected.
using ShrinkfxModel =
    torch::aot_inductor::AOTInductorModelBase<torch::aot_inductor::AOTInductorModel>;
template class std::vector<ShrinkfxModel::ParamInfo>;
template class std::vector<ShrinkfxModel::ConstInfo>;

// Arguments of operators, as arrays that live as long as the call.
#define SHRINKFX_ARRAY(T, N)                                               \
  template std::array<T, N>::const_iterator std::array<T, N>::cbegin()     \
      const noexcept;                                                      \
  template std::array<T, N>::pointer std::array<T, N>::data() noexcept;
#define SHRINKFX_FOUR(T, N) \
  SHRINKFX_ARRAY(T, N)      \
  SHRINKFX_ARRAY(T, N + 1)  \
  SHRINKFX_ARRAY(T, N + 2)  \
  SHRINKFX_ARRAY(T, N + 3)
#define SHRINKFX_ARRAYS(T) \
  SHRINKFX_FOUR(T, 0)      \
  SHRINKFX_FOUR(T, 4)      \
  SHRINKFX_FOUR(T, 8)      \
  SHRINKFX_FOUR(T, 12)     \
  SHRINKFX_FOUR(T, 16)     \
  SHRINKFX_FOUR(T, 20)     \
  SHRINKFX_FOUR(T, 24)     \
  SHRINKFX_FOUR(T, 28)
SHRINKFX_ARRAYS(AtenTensorHandle)
SHRINKFX_ARRAYS(AtenTensorHandle*)
SHRINKFX_ARRAYS(const AtenTensorHandle*)
SHRINKFX_ARRAYS(bool)
SHRINKFX_ARRAYS(double)
SHRINKFX_ARRAYS(int32_t)
SHRINKFX_ARRAYS(int64_t)
SHRINKFX_ARRAYS(const int64_t*)
SHRINKFX_ARRAYS(uint64_t)
