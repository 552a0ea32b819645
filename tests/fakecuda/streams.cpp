// Streams, events, and what is ordered by them.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "fakecuda.h"

namespace fakecuda {
namespace {

using Clock = std::chrono::steady_clock;

// One record of an event: later records do not change what waits for an earlier one.
struct Mark {
  bool done = false;
  Clock::time_point time;
};
struct Event {
  bool timed;
  std::shared_ptr<Mark> last;
};
Handles<Event> events{"event", {}};
struct Graph {
  std::vector<Work> work;
};
Handles<Graph> graphs{"graph", {}};
Handles<Graph> executables{"executable graph", {}};
constexpr int kGreatestPriority = -5, kLeastPriority = 0;

void run_stream(Stream* s) {
  Lock lock(state().mutex);
  for (;;) {
    s->filled.wait(lock, [&] { return !s->queue.empty() || s->destroyed || faulted(); });
    if (faulted()) return;
    if (s->queue.empty()) break;
    Work& work = s->queue.front();
    current_call = work.call;
    lock.unlock();
    work.run();
    lock.lock();
    if (faulted()) return;
    s->queue.pop_front();
    ++s->done;
    state().progress.notify_all();
  }
  state().streams.erase(s);
}

Stream* new_stream(int priority) {
  auto* s = new Stream;
  s->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  state().streams.insert(s);
  std::thread(run_stream, s).detach();
  return s;
}

Stream* legacy_stream() {
  static Stream* const one = new_stream(kLeastPriority);
  return one;
}

CUresult create(CUstream* stream, unsigned flags, int priority) {
  if (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) return CUDA_ERROR_INVALID_VALUE;
  *stream = reinterpret_cast<CUstream>(new_stream(priority));
  return CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, const Event* start, const Event* end) {
  if (!start->timed || !end->timed || !start->last || !end->last) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->last->done || !end->last->done) return CUDA_ERROR_NOT_READY;
  auto time = end->last->time - start->last->time;
  *milliseconds = std::chrono::duration<float, std::milli>(time).count();
  return CUDA_SUCCESS;
}

bool condition_holds(uint32_t word, uint32_t value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int32_t>(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    default:
      return ~(word | value) != 0;
  }
}

uint32_t* word_at(CUdeviceptr address, Access access) {
  if (address % sizeof(uint32_t)) die("0x%llx is not aligned to 4 bytes", address);
  return reinterpret_cast<uint32_t*>(find_shared(address, sizeof(uint32_t), access).bytes);
}

}  // namespace

CUresult record(CUevent event, CUstream stream) {
  Stream* s = find_stream(stream);
  auto mark = std::make_shared<Mark>();
  events.get(event)->last = mark;
  enqueue(s, {{}, [mark] {
                Lock lock(state().mutex);
                mark->done = true;
                mark->time = Clock::now();
              }});
  return CUDA_SUCCESS;
}

static CUresult wait_for_event(CUstream stream, CUevent event) {
  std::shared_ptr<Mark> mark = events.get(event)->last;
  auto wait = [mark] {
    Lock lock(state().mutex);
    wait_until(lock, [&] { return mark->done; });
  };
  if (mark) enqueue(find_stream(stream), {{}, wait});
  return CUDA_SUCCESS;
}

// The driver's flags for external events are for captures alone.
static CUresult at_launch(CUstream stream, std::function<void(CUstream)> launch) {
  Stream* s = find_stream(stream);
  if (!s->captured) return CUDA_ERROR_INVALID_VALUE;
  s->captured->push_back({{}, {}, nullptr, std::move(launch)});
  return CUDA_SUCCESS;
}

Stream* find_stream(CUstream handle) {
  if (!handle || handle == CU_STREAM_LEGACY) return legacy_stream();
  auto* s = reinterpret_cast<Stream*>(handle);
  if (!state().streams.count(s) || s->destroyed) {
    die("%p is no stream, or was destroyed", static_cast<void*>(handle));
  }
  return s;
}

uint64_t enqueue(Stream* stream, Work work) {
  work.call = current_call;
  if (stream->captured) return stream->captured->push_back(std::move(work)), stream->queued;
  stream->queue.push_back(std::move(work));
  stream->filled.notify_one();
  return ++stream->queued;
}

CUresult wait_until(Lock& lock, const std::function<bool()>& condition) {
  state().progress.wait(lock, [&] { return condition() || faulted(); });
  return state().fatal;
}

CUresult wait_for(Lock& lock, Stream* stream, uint64_t number) {
  return wait_until(lock, [=] { return stream->done >= number; });
}

void refuse_if_pending(Range range) {
  for (Stream* s : state().streams) {
    for (const Work& work : s->queue) {
      for (Range r : work.touches) {
        if (r.start >= range.start + range.size || range.start >= r.start + r.size) continue;
        die("0x%llx..0x%llx is still used by work of %s in stream %p", range.start,
            range.start + range.size, public_name(work.call).c_str(), static_cast<void*>(s));
      }
    }
  }
}

void fault(CUresult code) {
  Lock lock(state().mutex);
  if (!faulted()) __atomic_store_n(&state().fatal, code, __ATOMIC_RELEASE);
  state().progress.notify_all();
  for (Stream* s : state().streams) s->filled.notify_all();
}

bool faulted() { return __atomic_load_n(&state().fatal, __ATOMIC_ACQUIRE) != CUDA_SUCCESS; }

}  // namespace fakecuda

using namespace fakecuda;

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, kContext, [&](Lock&) {
    if (least) *least = kLeastPriority;
    if (greatest) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return call(__func__, kContext, [](Lock& lock) {
    std::vector<std::pair<Stream*, uint64_t>> all;
    for (Stream* s : state().streams) all.emplace_back(s, s->queued);
    return wait_until(lock, [&] {
      return std::all_of(all.begin(), all.end(), [](auto& s) { return s.first->done >= s.second; });
    });
  });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call(__func__, kContext, [&](Lock&) { return create(stream, flags, priority); });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call(__func__, kContext, [&](Lock&) { return create(stream, flags, kLeastPriority); });
}

// What is queued is still done.
CUresult cuStreamDestroy(CUstream stream) {
  return call(__func__, kContext, [&](Lock&) {
    Stream* s = find_stream(stream);
    if (s == legacy_stream()) return CUDA_ERROR_INVALID_HANDLE;
    s->destroyed = true;
    s->filled.notify_one();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return call(__func__, kContext, [&](Lock& lock) {
    Stream* s = find_stream(stream);
    return wait_for(lock, s, s->queued);
  });
}

CUresult cuStreamQuery(CUstream stream) {
  return call(__func__, kContext, [&](Lock&) {
    if (find_stream(stream)->captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return find_stream(stream)->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  return call(__func__, kContext, [&](Lock&) {
    Stream* s = find_stream(stream);
    bool refused = !environment("FAKECUDA_CAPTURE", 1);
    if (refused || s == legacy_stream() || s->captured)
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    s->captured = std::make_unique<std::vector<Work>>();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call(__func__, kContext, [&](Lock&) {
    Stream* s = find_stream(stream);
    if (!s->captured) return CUDA_ERROR_ILLEGAL_STATE;
    *graph = graphs.add<CUgraph>(new Graph{std::move(*s->captured)});
    s->captured.reset();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return call(__func__, kContext, [&](Lock&) {
    *executable = executables.add<CUgraphExec>(new Graph{*graphs.get(graph)});
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call(__func__, kContext, [&](Lock&) {
    for (const Work& work : executables.get(executable)->work) {
      work.launch ? work.launch(stream) : void(enqueue(find_stream(stream), work));
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call(__func__, kContext, [&](Lock&) {
    graphs.all.erase(graphs.get(graph));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call(__func__, kContext, [&](Lock&) {
    executables.all.erase(executables.get(executable));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call(__func__, kContext, [&](Lock&) {
    if (flags) return at_launch(stream, [event](CUstream to) { wait_for_event(to, event); });
    return wait_for_event(stream, event);
  });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  return call(__func__, kContext, [&](Lock&) {
    uint32_t* word = word_at(address, kWrite);
    auto write = [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); };
    enqueue(find_stream(stream), {{{address, sizeof *word}}, write});
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return call(__func__, kContext, [&](Lock&) {
    uint32_t* word = word_at(address, kRead);
    unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
    auto wait = [=] {
      auto met = [=] {
        return condition_holds(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition);
      };
      while (!met() && !faulted()) usleep(50);
    };
    enqueue(find_stream(stream), {{{address, sizeof *word}}, wait});
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return call(__func__, kContext, [&](Lock&) {
    auto run = [=] {
      in_host_function = true;
      function(data);
      in_host_function = false;
    };
    enqueue(find_stream(stream), {{}, run});
    return CUDA_SUCCESS;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call(__func__, kContext, [&](Lock&) {
    *event = events.add<CUevent>(new Event{!(flags & CU_EVENT_DISABLE_TIMING), nullptr});
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent event) {
  return call(__func__, kContext, [&](Lock&) {
    events.all.erase(events.get(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call(__func__, kContext, [&](Lock&) { return record(event, stream); });
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return call(__func__, kContext, [&](Lock&) {
    if (flags) return at_launch(stream, [event](CUstream to) { record(event, to); });
    return record(event, stream);
  });
}

CUresult cuEventQuery(CUevent event) {
  return call(__func__, kContext, [&](Lock&) {
    Event* e = events.get(event);
    return !e->last || e->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return call(__func__, kContext, [&](Lock& lock) {
    std::shared_ptr<Mark> mark = events.get(event)->last;
    return wait_until(lock, [&] { return !mark || mark->done; });
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call(__func__, kContext,
              [&](Lock&) { return elapsed(milliseconds, events.get(start), events.get(end)); });
}
