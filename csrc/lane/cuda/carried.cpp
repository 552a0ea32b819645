#include "carried.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <utility>

#include "../../common/channel.h"
#include "../../generated/library_functions.h"
#include "../symbols.h"

namespace mnemosyne::cuda {
namespace {

constexpr size_t kFunctions = std::size(kLibraryFunctions);
constexpr uint64_t kMostHostMemory = 1 << 30;         // bytes that one call may need here
constexpr uint64_t kMostReturned = kReplyBytes - 64;  // bytes that fit into a reply

constexpr int kNotSupportedBy[] = {16, 9, 10};

constexpr const char* kNames[] = {"cufft", "cusolver", "cusparse"};
constexpr const char* kSetStream[] = {"cufftSetStream", "cusolverDnSetStream", "cusparseSetStream"};

struct Loaded {
  std::array<void*, kFunctions> functions{};  // null: it has none
  int (*set_work_area)(int, void*) = nullptr;
  int (*set_pointer_mode)(void*, int) = nullptr;
  void* set_stream = nullptr;
};
// Never unloaded.
std::atomic<const Loaded*> loaded[std::size(kNames)];

template <size_t>
using Word = uint64_t;
template <size_t... i>
int call_with(void* function, double real, const uint64_t* words, std::index_sequence<i...>) {
  using Any = int (*)(double, Word<i>...);
  return reinterpret_cast<Any>(function)(real, words[i]...);
}

template <typename T>
uint64_t number(Unpacker* u) {
  T value = 0;
  get(*u, &value);
  return static_cast<uint64_t>(value);
}

uint64_t number(Unpacker* u, uint8_t type) {
  switch (type) {
    case Parameter::kChar: {
      int8_t value = 0;
      get_integer(*u, &value);
      return static_cast<uint64_t>(value);
    }
    case Parameter::kInt:
      return number<int32_t>(u);
    case Parameter::kLong:
      return number<int64_t>(u);
    default:
      return number<uint64_t>(u);
  }
}

}  // namespace

void load_library(const char* name, const char* path) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto is_it = [&](const char* known) { return strcmp(known, name) == 0; };
  auto index = std::find_if(std::begin(kNames), std::end(kNames), is_it) - std::begin(kNames);
  if (loaded[index].load()) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  auto l = std::make_unique<Loaded>();
  for (size_t i = 0; i < kFunctions; ++i) {
    const LibraryFunction& f = kLibraryFunctions[i];
    if (f.library == index) find(library, f.name, &l->functions[i]);
  }
  need(library, kSetStream[index], &l->set_stream);
  if (index == kCufft) need(library, "cufftSetWorkArea", &l->set_work_area);
  if (index == kCusparse) need(library, "cusparseSetPointerMode", &l->set_pointer_mode);
  loaded[index] = l.release();
}

void end_all(LibraryHandles* handles) {
  for (const auto& [number, handle] : *handles) {
    for (size_t i = 0; i < kFunctions; ++i) {
      const LibraryFunction& f = kLibraryFunctions[i];
      const Parameter& first = f.parameters[0];
      if (first.kind != Parameter::kGone || first.type != handle.type) continue;
      void* end = loaded[f.library].load()->functions[i];
      if (end) call_with(end, 0, &handle.real, std::index_sequence<0>());
    }
  }
  handles->clear();
}

LibraryCall::LibraryCall(LibraryHandles* handles, uint32_t function, const List& arguments)
    : handles_(handles), number_(function) {
  if (function >= kFunctions) {
    throw std::invalid_argument("no library has a function " + std::to_string(function));
  }
  function_ = &kLibraryFunctions[function];
  Unpacker u = arguments.values();
  u.array();
  for (size_t i = 0; i < function_->count; ++i) read(&u, i);
  bool sound = u.ok() && u.at_end();
  for (size_t i = 0; i < function_->count; ++i) sound &= is_sound(i);
  if (!sound) {
    throw std::invalid_argument(std::string(function_->name) + ": arguments are not as declared");
  }
  const Loaded* library = loaded[function_->library];
  if (!library || !library->functions[number_]) {
    refuse(kNotSupportedBy[function_->library], "the server's library has no such function");
  }
  for (size_t i = 0; i < function_->count && !refusal_; ++i) place(i);
}

void LibraryCall::read(Unpacker* u, size_t i) {
  switch (parameter(i).kind) {
    case Parameter::kOut:
    case Parameter::kRoom:
    case Parameter::kScratch:
      return;
    case Parameter::kNumber:
    case Parameter::kInOut:
      words_[i] = number(u, parameter(i).type);
      return;
    case Parameter::kReal:
    case Parameter::kBytes:
    case Parameter::kBytesOrNull:
      return get(*u, &bytes_[i]);
    case Parameter::kScalar:
      in_memory(!u->at_bytes());
      return u->at_bytes() ? get(*u, &bytes_[i]) : get(*u, &words_[i]);
    default:
      get(*u, &words_[i]);
  }
  if (parameter(i).kind == Parameter::kResult) in_memory(words_[i] != 0);
}

// Where the call's scalars are: all in one memory, because a handle has one pointer mode.
void LibraryCall::in_memory(bool device) {
  if (pointer_mode_ == !device) throw std::invalid_argument("scalars in two memories");
  pointer_mode_ = device;
}

bool LibraryCall::is_sound(size_t i) const {
  size_t size = bytes_[i].size;
  switch (parameter(i).kind) {
    case Parameter::kReal:
      return size == sizeof real_;
    case Parameter::kScalar:
      return pointer_mode_ == 1 || (size != 0 && size <= kMaxScalar);
    case Parameter::kBytes:
      return size == size_of(i);
    case Parameter::kBytesOrNull:
      return size == 0 || size == size_of(i);
    default:
      return true;
  }
}

// Bytes of host memory; more than any call gets instead of what no number holds.
uint64_t LibraryCall::size_of(size_t i) const {
  const Parameter& p = parameter(i);
  if (p.by < 0) return p.factor;
  uint64_t times = words_[p.by];
  bool below = parameter(p.by).type != Parameter::kSize && static_cast<int64_t>(times) < 0;
  return below ? 0 : std::min(times, kMostHostMemory + 1) * p.factor;
}

// Makes of an argument what the library takes.
void LibraryCall::place(size_t i) {
  switch (parameter(i).kind) {
    case Parameter::kNumber:
    case Parameter::kPointer:
      return;
    case Parameter::kReal:
      memcpy(&real_, bytes_[i].data, sizeof real_);
      return;
    case Parameter::kInOut:
    case Parameter::kOut:
      values_[i] = words_[i];
      words_[i] = reinterpret_cast<uint64_t>(&values_[i]);
      return;
    case Parameter::kScalar:
    case Parameter::kBytes:
    case Parameter::kBytesOrNull:
      if (!bytes_[i].size || !room(i, bytes_[i].size)) return;
      memcpy(memory_.back().get(), bytes_[i].data, bytes_[i].size);
      return;
    case Parameter::kResult:
    case Parameter::kRoom:
    case Parameter::kScratch:
      if (!words_[i]) room(i, size_of(i));
      return;
    default:
      return place_handle(i);
  }
}

// Host memory for an argument. What the frame holds fits into it; else see refusal().
char* LibraryCall::room(size_t i, uint64_t size) {
  constexpr uint64_t kSmallest = 16;  // bytes: a scalar of any type
  bool returns = parameter(i).kind == Parameter::kRoom;
  char* made = nullptr;
  if (size <= (returns ? kMostReturned : kMostHostMemory)) {
    made = static_cast<char*>(calloc(std::max(size, kSmallest), 1));
  }
  if (!made) refuse(kNoLibraryMemory, std::to_string(size) + " bytes of host memory");
  memory_.emplace_back(made, free);
  holds_memory_ |= parameter(i).kind == Parameter::kScratch && size;
  words_[i] = reinterpret_cast<uint64_t>(made);
  return made;
}

void LibraryCall::place_handle(size_t i) {
  const Parameter& p = parameter(i);
  uint64_t number = words_[i];
  auto found = handles_->find(number);
  bool known = found != handles_->end();
  if (p.kind == Parameter::kHandleOrNull && number == 0) return;
  if (p.kind == Parameter::kNew) {
    if (known || number == 0) return refuse(kNoLibraryHandle, "this handle exists already");
    words_[i] = reinterpret_cast<uint64_t>(&values_[i]);
  } else {
    if (!known || found->second.type != p.type) return refuse(kNoLibraryHandle, "no such handle");
    words_[i] = found->second.real;
    if (i == 0) owner_ = &found->second;
  }
  if (p.kind != Parameter::kHandle) named_ = number;
}

void LibraryCall::refuse(int status, const std::string& why) {
  if (refusal_) return;
  refusal_ = status;
  why_ = std::string(function_->name) + ": " + why;
}

int LibraryCall::run(Stream stream, uint64_t work_area) {
  const Loaded& library = *loaded[function_->library];
  int status = function_->works ? set_up(stream, work_area) : 0;
  if (!status) {
    status = call_with(library.functions[number_], real_, words_,
                       std::make_index_sequence<kMostWords>());
  }
  if (status) return status;
  if (function_->works) owner_->known.insert(number_);
  const Parameter& first = parameter(0);
  if (first.kind == Parameter::kNew) (*handles_)[named_] = {values_[0], first.type, {}, {}, {}, {}};
  if (first.kind == Parameter::kGone) handles_->erase(named_);
  return status;
}

// Gives the handle what goes with the call, where that has changed.
int LibraryCall::set_up(Stream stream, uint64_t work_area) {
  const Loaded& library = *loaded[function_->library];
  LibraryHandle& h = *owner_;
  int status = 0;
  first_ = h.known.count(number_) == 0;
  if (h.stream != stream) {
    const uint64_t words[] = {h.real, reinterpret_cast<uint64_t>(stream)};
    status = call_with(library.set_stream, 0, words, std::make_index_sequence<2>());
    if (!status) h.stream = stream;
  }
  if (!status && library.set_pointer_mode && pointer_mode_ >= 0 &&
      h.pointer_mode != pointer_mode_) {
    status = library.set_pointer_mode(reinterpret_cast<void*>(h.real), pointer_mode_);
    if (!status) h.pointer_mode = pointer_mode_;
  }
  if (!status && library.set_work_area && work_area && h.work_area != work_area) {
    status = library.set_work_area(static_cast<int>(h.real), reinterpret_cast<void*>(work_area));
    if (!status) h.work_area = work_area;
  }
  return status;
}

uint32_t LibraryCall::results(Packer* to) const {
  uint32_t count = 0;
  for (size_t i = 0; i < function_->count; ++i) {
    const Parameter& p = parameter(i);
    bool number = p.kind == Parameter::kOut || p.kind == Parameter::kInOut;
    bool memory = p.kind == Parameter::kRoom || (p.kind == Parameter::kResult && !pointer_mode_);
    if (number && p.type == Parameter::kSize) to->unsigned_integer(values_[i]);
    if (number && p.type == Parameter::kLong) to->integer(static_cast<int64_t>(values_[i]));
    if (number && p.type == Parameter::kInt) to->integer(static_cast<int32_t>(values_[i]));
    if (memory) to->bytes(reinterpret_cast<const void*>(words_[i]), size_of(i));
    count += number || memory;
  }
  return count;
}

}  // namespace mnemosyne::cuda
