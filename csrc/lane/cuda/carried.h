// Calls of cuFFT, cuSOLVER and cuSPARSE: a function's number and the list of its arguments.
//
// How this works: a generated table says what each parameter is. An argument is an integer or a
// pointer, so a word of 64 bits, and whatever lies in host memory is in memory of the call's own.
// Then one kind of call fits all functions: x86-64 passes words in registers and on the stack in
// order, a double in a register of its own, and a function looks only at those that it has.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../fields.h"
#include "driver.h"

namespace mnemosyne::cuda {

enum LibraryIndex : uint8_t { kCufft, kCusolver, kCusparse };

struct Parameter {
  enum Kind : uint8_t {
    kNumber,
    kReal,
    kPointer,
    kHandle,
    kHandleOrNull,
    kNew,
    kGone,
    kScalar,
    kResult,
    kOut,
    kInOut,
    kBytes,
    kBytesOrNull,
    kRoom,
    kScratch,
  };
  enum Number : uint8_t { kChar, kInt, kLong, kSize };

  Kind kind;
  uint8_t type = 0;    // of a number, or of a handle: they are counted
  uint8_t factor = 0;  // host memory is as many bytes,
  int8_t by = -1;      // times the value of this parameter
};

constexpr size_t kMostWords = 24;

// Statuses that all three libraries have.
constexpr int kNoLibraryHandle = 1;
constexpr int kNoLibraryMemory = 2;

struct LibraryFunction {
  const char* name;
  LibraryIndex library;
  bool runs;   // leaves nothing behind in a handle: the lane may execute it
  bool works;  // in the stream of its first handle
  uint8_t count;
  Parameter parameters[kMostWords];
};

// Opens cuFFT, cuSOLVER or cuSPARSE, once. Throws std::runtime_error.
void load_library(const char* name, const char* path);

// What a library made, and how it was set last.
struct LibraryHandle {
  uint64_t real;
  uint8_t type;
  Stream stream = nullptr;
  int pointer_mode = 0;
  uint64_t work_area = 0;
  std::set<uint32_t> known;  // functions that it has been used with
};

// One session's, by the client's numbers.
using LibraryHandles = std::map<uint64_t, LibraryHandle>;
// Ends them all; the device has done the session's work.
void end_all(LibraryHandles* handles);

// One call on its way.
class LibraryCall {
 public:
  // Throws std::invalid_argument for what the specification does not allow.
  LibraryCall(LibraryHandles* handles, uint32_t function, const List& arguments);

  const LibraryFunction& function() const { return *function_; }
  // Why it cannot be made, as its library would say it, and in words; 0: it can.
  int refusal() const { return refusal_; }
  void refuse(int status, const std::string& why);
  const std::string& why() const { return why_; }
  // Calls the library's function; its status. A plan that has a work area of its own is given none.
  int run(Stream stream, uint64_t work_area);
  // Whether the GPU has to be done with it before it ends: then host memory is given back.
  bool holds_memory() const { return holds_memory_; }
  // Whether the handle has never been used with this function: the library may set itself up.
  bool is_first() const { return first_; }
  // Appends what comes back. Returns how many values.
  uint32_t results(Packer* to) const;

 private:
  void read(Unpacker* u, size_t i);
  void in_memory(bool device);
  bool is_sound(size_t i) const;
  uint64_t size_of(size_t i) const;
  void place(size_t i);
  char* room(size_t i, uint64_t size);
  void place_handle(size_t i);
  int set_up(Stream stream, uint64_t work_area);
  const Parameter& parameter(size_t i) const { return function_->parameters[i]; }

  LibraryHandles* handles_;
  uint32_t number_;
  const LibraryFunction* function_ = nullptr;
  uint64_t words_[kMostWords] = {};   // as the client sent them, then as the library takes them
  uint64_t values_[kMostWords] = {};  // what it writes to, of numbers and of a handle it makes
  Bytes bytes_[kMostWords] = {};
  double real_ = 0;
  uint64_t named_ = 0;              // the handle that it makes or ends
  LibraryHandle* owner_ = nullptr;  // its first handle
  int pointer_mode_ = -1;           // -1: has no scalars
  std::vector<std::unique_ptr<char, void (*)(void*)>> memory_;
  int refusal_ = 0;
  std::string why_;
  bool holds_memory_ = false, first_ = false;
};

}  // namespace mnemosyne::cuda
