// NCCL for one rank: every rank needs a device of its own, and a client has one. A collective is a
// copy from where one rank sends to where it receives, in the stream.
#include <algorithm>
#include <vector>

#include "errors.h"
#include "handles.h"
#include "structs.h"

MNEMOSYNE_API cudaError_t cudaFree(void*);
MNEMOSYNE_API cudaError_t cudaMalloc(void**, size_t);
MNEMOSYNE_API cudaError_t cudaMemcpyAsync(void*, const void*, size_t, int, cudaStream_t);

namespace mnemosyne {
namespace {

// nccl.h: ncclResult_t.
enum NcclResult { kOk = 0, kUnhandledCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5 };

// A program may use a communicator that it has ended: it is looked up, not followed.
// Leaked on purpose: stubs may run while the process exits.
Handles& communicators() {
  static Handles* table = new Handles(0x70000000);
  return *table;
}

bool exists(ncclComm_t one) { return communicators().find(one) != nullptr; }

int start(ncclComm_t* made, int ranks, int rank) {
  if (!made || ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  if (ranks > 1) {
    say("NCCL cannot join %d ranks: each needs a GPU of its own, and a client sees one; "
        "run one process, or use the backend gloo",
        ranks);
    return kInvalidUsage;
  }
  *made = communicators().add(0, 0);
  return kOk;
}

int end(ncclComm_t one) { return !one || communicators().remove(one) ? kOk : kInvalidArgument; }

template <typename T>
int tell(ncclComm_t one, T* to, T value) {
  if (!to || !exists(one)) return kInvalidArgument;
  *to = value;
  return kOk;
}

// Bytes of an element, by ncclDataType_t.
constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr int kTypes = sizeof kSizes / sizeof *kSizes;
constexpr int kOperations = 5;  // sum, product, maximum, minimum, average: the same for one rank

int copy(const void* from, void* to, size_t bytes, cudaStream_t stream) {
  constexpr int kDeviceToDevice = 3;
  if (bytes == 0 || from == to) return kOk;
  if (!from || !to) return kInvalidArgument;
  return cudaMemcpyAsync(to, from, bytes, kDeviceToDevice, stream) ? kUnhandledCudaError : kOk;
}

struct Collective {
  ncclComm_t among;
  cudaStream_t stream;
  int type;
  int rank = 0;  // that it names
  int operation = 0;

  bool is_sound() const { return rank == 0 && type >= 0 && type < kTypes && exists(among); }
  int run(const void* from, void* to, size_t count) const {
    if (!is_sound()) return kInvalidArgument;
    if (operation < 0 || operation >= kOperations) return kInvalidArgument;
    return copy(from, to, count * kSizes[type], stream);
  }
};

// What a rank sends itself, and where it receives it: they find each other when the group ends.
struct Message {
  ncclComm_t among;
  const void* from;
  void* to;
  size_t bytes;
  cudaStream_t stream;

  bool fits(const Message& received) const {
    return among == received.among && stream == received.stream;
  }
};

struct Group {
  int depth = 0;
  std::vector<Message> sent, received;

  int end() {
    std::vector<Message> from, to;
    from.swap(sent);
    to.swap(received);
    if (from.size() != to.size()) return kInvalidUsage;
    for (const Message& one : from) {
      auto other =
          std::find_if(to.begin(), to.end(), [&one](const Message& m) { return one.fits(m); });
      if (other == to.end() || other->bytes != one.bytes) return kInvalidUsage;
      if (int result = copy(one.from, other->to, one.bytes, one.stream)) return result;
      to.erase(other);
    }
    return kOk;
  }
};

thread_local Group group;

int put(std::vector<Message>* messages, Message m, size_t count, int type, int peer) {
  if (!Collective{m.among, m.stream, type, peer}.is_sound()) return kInvalidArgument;
  if (group.depth == 0) return kInvalidUsage;  // nobody would ever receive it
  m.bytes = count * kSizes[type];
  messages->push_back(m);
  return kOk;
}

}  // namespace
}  // namespace mnemosyne

using namespace mnemosyne;

MNEMOSYNE_API int ncclGetUniqueId(ncclUniqueId* id) {
  if (!id) return kInvalidArgument;
  *id = {};
  return kOk;
}

MNEMOSYNE_API int ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId, int rank) {
  return start(made, ranks, rank);
}

MNEMOSYNE_API int ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId, int rank,
                                         void*) {
  return start(made, ranks, rank);
}

MNEMOSYNE_API int ncclCommInitRankScalable(ncclComm_t* made, int ranks, int rank, int,
                                           ncclUniqueId*, void*) {
  return start(made, ranks, rank);
}

MNEMOSYNE_API int ncclCommInitAll(ncclComm_t* made, int devices, const int* list) {
  if (list && devices == 1 && list[0] != 0) return kInvalidArgument;
  return start(made, devices, 0);
}

MNEMOSYNE_API int ncclCommSplit(ncclComm_t from, int color, int, ncclComm_t* made, void*) {
  constexpr int kNoColor = -1;
  if (!made || !exists(from) || color < kNoColor) return kInvalidArgument;
  *made = color == kNoColor ? nullptr : communicators().add(0, 0);
  return kOk;
}

MNEMOSYNE_API int ncclCommFinalize(ncclComm_t one) { return exists(one) ? kOk : kInvalidArgument; }
MNEMOSYNE_API int ncclCommDestroy(ncclComm_t one) { return end(one); }
MNEMOSYNE_API int ncclCommAbort(ncclComm_t one) { return end(one); }

MNEMOSYNE_API int ncclCommGetAsyncError(ncclComm_t one, int* error) {
  return tell(one, error, int{kOk});
}
MNEMOSYNE_API int ncclCommCount(ncclComm_t one, int* count) { return tell(one, count, 1); }
MNEMOSYNE_API int ncclCommUserRank(ncclComm_t one, int* rank) { return tell(one, rank, 0); }
MNEMOSYNE_API int ncclCommRegister(ncclComm_t one, void* p, size_t, void** handle) {
  return tell(one, handle, p);
}
MNEMOSYNE_API int ncclCommDeregister(ncclComm_t one, void*) { return ncclCommFinalize(one); }

MNEMOSYNE_API int ncclMemAlloc(void** p, size_t size) {
  return cudaMalloc(p, size) ? kUnhandledCudaError : kOk;
}
MNEMOSYNE_API int ncclMemFree(void* p) { return cudaFree(p) ? kUnhandledCudaError : kOk; }

MNEMOSYNE_API int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation,
                                ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type, 0, operation}.run(from, to, count);
}

MNEMOSYNE_API int ncclReduce(const void* from, void* to, size_t count, int type, int operation,
                             int root, ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type, root, operation}.run(from, to, count);
}

MNEMOSYNE_API int ncclReduceScatter(const void* from, void* to, size_t count, int type,
                                    int operation, ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type, 0, operation}.run(from, to, count);
}

MNEMOSYNE_API int ncclAllGather(const void* from, void* to, size_t count, int type,
                                ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type}.run(from, to, count);
}

MNEMOSYNE_API int ncclAlltoAll(const void* from, void* to, size_t count, int type, ncclComm_t among,
                               cudaStream_t stream) {
  return Collective{among, stream, type}.run(from, to, count);
}

MNEMOSYNE_API int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                                ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type, root}.run(from, to, count);
}

MNEMOSYNE_API int ncclBcast(void* p, size_t count, int type, int root, ncclComm_t among,
                            cudaStream_t stream) {
  return Collective{among, stream, type, root}.run(p, p, count);
}

MNEMOSYNE_API int ncclGather(const void* from, void* to, size_t count, int type, int root,
                             ncclComm_t among, cudaStream_t stream) {
  return Collective{among, stream, type, root}.run(from, to, count);
}

MNEMOSYNE_API int ncclSend(const void* from, size_t count, int type, int peer, ncclComm_t among,
                           cudaStream_t stream) {
  return put(&group.sent, {among, from, nullptr, 0, stream}, count, type, peer);
}

MNEMOSYNE_API int ncclRecv(void* to, size_t count, int type, int peer, ncclComm_t among,
                           cudaStream_t stream) {
  return put(&group.received, {among, nullptr, to, 0, stream}, count, type, peer);
}

MNEMOSYNE_API int ncclGroupStart() {
  ++group.depth;
  return kOk;
}

MNEMOSYNE_API int ncclGroupEnd() {
  if (group.depth == 0) return kInvalidUsage;
  return --group.depth ? kOk : group.end();
}
