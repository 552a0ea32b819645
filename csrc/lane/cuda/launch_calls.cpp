// Launches, and what the driver has to be asked about them: clusters and tensor maps.
#include <algorithm>
#include <iterator>

#include "executor.h"

namespace mnemosyne::cuda {
namespace {

// cuda.h: what `extra` of cuLaunchKernel holds.
void* const kParamBuffer = reinterpret_cast<void*>(1);
void* const kParamSize = reinterpret_cast<void*>(2);
void* const kParamEnd = nullptr;

// CUlaunchAttributeID: first those whose values mean the same to the client and here.
constexpr int kPlain[] = {
    2,   // COOPERATIVE
    3,   // SYNCHRONIZATION_POLICY
    4,   // CLUSTER_DIMENSION
    5,   // CLUSTER_SCHEDULING_POLICY_PREFERENCE
    6,   // PROGRAMMATIC_STREAM_SERIALIZATION
    8,   // PRIORITY
    9,   // MEM_SYNC_DOMAIN_MAP
    10,  // MEM_SYNC_DOMAIN
    11,  // PREFERRED_CLUSTER_DIMENSION
    14,  // PREFERRED_SHARED_MEMORY_CARVEOUT
    16,  // NVLINK_UTIL_CENTRIC_SCHEDULING
};
constexpr int kIgnore = 0, kAccessPolicyWindow = 1, kProgrammaticEvent = 7,
              kLaunchCompletionEvent = 12;

bool is_plain(int attribute) {
  return std::find(std::begin(kPlain), std::end(kPlain), attribute) != std::end(kPlain);
}

uint64_t word(const LaunchAttribute& attribute, size_t at) {
  uint64_t value;
  memcpy(&value, attribute.value + at, sizeof value);
  return value;
}

// The integers of a list, each of at least 0. Throws std::invalid_argument.
template <typename T, size_t most>
uint32_t numbers(const List& list, T (&to)[most]) {
  Unpacker u = list.values();
  uint32_t count = u.array();
  if (count > most) throw std::invalid_argument("a tensor map of too many dimensions");
  for (uint32_t i = 0; i < count; ++i) get(u, &to[i]);
  if (!u.ok()) throw std::invalid_argument("a tensor map's list that is none of integers");
  return count;
}

constexpr size_t kMostDimensions = 5;
struct alignas(64) TensorMap {
  char bytes[128];
};

// Bytes of an element, by CUtensorMapDataType; of what is packed, a byte.
uint64_t element_bytes(int type) {
  constexpr uint8_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return type >= 0 && type < static_cast<int>(sizeof kBytes) ? kBytes[type] : 1;
}

// How many bytes a map describes.
uint64_t reach(int type, uint32_t rank, const uint64_t* sizes, const uint64_t* strides) {
  uint64_t total = 0;
  if (__builtin_mul_overflow(sizes[0], element_bytes(type), &total)) return UINT64_MAX;
  for (uint32_t i = 1; i < rank; ++i) {
    uint64_t step;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i - 1], &step) ||
        __builtin_add_overflow(total, step, &total)) {
      return UINT64_MAX;
    }
  }
  return total;
}

}  // namespace

// Puts the attributes of a frame where the driver reads them; handles become the driver's.
void CudaExecutor::read_attributes(const List& from, const char* name, Answer* a,
                                   std::vector<LaunchAttribute>* to) {
  Unpacker u = from.values();
  for (uint32_t n = u.array(); n; --n) {
    uint32_t fields = u.array();
    LaunchAttribute attribute{};
    attribute.id = static_cast<int>(u.integer());
    size_t length;
    const char* value = u.bytes(&length);
    if (fields != 2 || !u.ok() || length != sizeof attribute.value) {
      throw std::invalid_argument(std::string(name) + ": its attributes are not [id, 64 bytes]");
    }
    memcpy(attribute.value, value, length);
    if (attribute.id == kProgrammaticEvent || attribute.id == kLaunchCompletionEvent) {
      Event handle = event(word(attribute, 0), name, a);
      memcpy(attribute.value, &handle, sizeof handle);
    } else if (attribute.id == kAccessPolicyWindow) {
      check_device(word(attribute, 0), word(attribute, 8), name, a);
    } else if (attribute.id != kIgnore && !is_plain(attribute.id)) {
      std::string text = "launch attribute " + std::to_string(attribute.id) + " is not supported";
      a->fail(kNotSupported, kNotSupported, text);
    }
    if (a->status) return;
    if (attribute.id != kIgnore) to->push_back(attribute);
  }
}

void CudaExecutor::execute(const calls::launch& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  put(c.stream, c.kName, a, [&](Stream s) {
    return driver().cuLaunchKernel(f.handle, c.gridX, c.gridY, c.gridZ, c.blockX, c.blockY,
                                   c.blockZ, c.sharedMem, s, nullptr, extra);
  });
}

void CudaExecutor::execute(const calls::launch_ex& c, Answer* a) {
  const KnownFunction& f = function(c.function, c.args);
  size_t size = c.args.size;
  void* extra[] = {kParamBuffer, const_cast<char*>(c.args.data), kParamSize, &size, kParamEnd};
  std::vector<LaunchAttribute> attributes;
  read_attributes(c.attributes, c.kName, a, &attributes);
  put(c.stream, c.kName, a, [&](Stream s) {
    LaunchConfig config{c.gridX,  c.gridY,     c.gridZ, c.blockX,          c.blockY,
                        c.blockZ, c.sharedMem, s,       attributes.data(), 0};
    config.attribute_count = static_cast<unsigned>(attributes.size());
    return driver().cuLaunchKernelEx(&config, f.handle, nullptr, extra);
  });
}

void CudaExecutor::execute(const calls::max_clusters& c, Answer* a) {
  Function handle = function(c.function).handle;
  std::vector<LaunchAttribute> attributes;
  read_attributes(c.attributes, c.kName, a, &attributes);
  if (a->status) return;
  LaunchConfig config{c.gridX,  c.gridY,     c.gridZ, c.blockX,          c.blockY,
                      c.blockZ, c.sharedMem, nullptr, attributes.data(), 0};
  config.attribute_count = static_cast<unsigned>(attributes.size());
  int clusters = 0;
  auto ask = driver().cuOccupancyMaxActiveClusters;
  failed(ask ? ask(&clusters, handle, &config) : kNotSupported, c.kName, a);
  a->outputs.integer(clusters);
  a->output_count = 1;
}

void CudaExecutor::answer_map(int code, const void* map, const char* name, Answer* a) {
  failed(code, name, a);
  a->outputs.bytes(map, sizeof(TensorMap));
  a->output_count = 1;
}

void CudaExecutor::execute(const calls::tensor_map& c, Answer* a) {
  TensorMap map{};
  uint64_t sizes[kMostDimensions]{}, strides[kMostDimensions]{};
  uint32_t box[kMostDimensions]{}, steps[kMostDimensions]{};
  uint32_t rank = numbers(c.sizes, sizes);
  bool fits = rank && numbers(c.strides, strides) + 1 == rank && numbers(c.box, box) == rank &&
              numbers(c.steps, steps) == rank;
  if (!fits) return a->fail(kInvalidValue, kInvalidValue, "tensor_map: lists of other lengths");
  check_device(c.address, reach(c.type, rank, sizes, strides), c.kName, a);
  if (a->status) return;
  auto encode = driver().cuTensorMapEncodeTiled;
  int code = encode ? encode(&map, c.type, rank, c.address, sizes, strides, box, steps,
                             c.interleave, c.swizzle, c.promotion, c.fill)
                    : kNotSupported;
  answer_map(code, &map, c.kName, a);
}

void CudaExecutor::execute(const calls::tensor_map_im2col& c, Answer* a) {
  TensorMap map{};
  uint64_t sizes[kMostDimensions]{}, strides[kMostDimensions]{};
  uint32_t steps[kMostDimensions]{};
  int lower[kMostDimensions]{}, upper[kMostDimensions]{};
  uint32_t rank = numbers(c.sizes, sizes);
  bool fits = rank > 2 && numbers(c.strides, strides) + 1 == rank &&
              numbers(c.lower, lower) + 2 == rank && numbers(c.upper, upper) + 2 == rank &&
              numbers(c.steps, steps) == rank;
  if (!fits) return a->fail(kInvalidValue, kInvalidValue, "tensor_map: lists of other lengths");
  check_device(c.address, reach(c.type, rank, sizes, strides), c.kName, a);
  if (a->status) return;
  auto encode = driver().cuTensorMapEncodeIm2col;
  int code = encode
                 ? encode(&map, c.type, rank, c.address, sizes, strides, lower, upper, c.channels,
                          c.pixels, steps, c.interleave, c.swizzle, c.promotion, c.fill)
                 : kNotSupported;
  answer_map(code, &map, c.kName, a);
}

}  // namespace mnemosyne::cuda
