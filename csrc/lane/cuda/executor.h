// Runs a session's hot calls on the GPU: launches, copies, waits, library calls.
//
// How this works: operations go into the session's streams and nothing here waits for the GPU. A
// frame that wants an answer when its work is done gets it from the GPU, which writes the reply
// slot's state itself. A lost context is nobody's result: the lane stops, and the worker is
// replaced (see Watch).
#pragma once

#include <tuple>
#include <utility>

#include "../../generated/calls.h"
#include "../executor.h"
#include "blas.h"
#include "carried.h"
#include "dnn.h"
#include "graphs.h"
#include "streams.h"
#include "watch.h"

namespace mnemosyne::cuda {

// Where a session's memory lies; see Layout in mnemosyne/server/session.py.
struct Place {
  uint64_t device_base, device_bytes, host_base, host_bytes, staging_bytes;
};

class CudaExecutor : public Executor, public Watched {
 public:
  // `words`: the address of Streams::kMost words of pinned memory. Throws std::runtime_error.
  CudaExecutor(Watch* watch, int number, void* context, const Place& place, uint64_t words);
  ~CudaExecutor() override;

  // For the event loop, while it owns the ring. Numbers are the client's.
  bool add_stream(uint64_t number, uint64_t handle, bool blocking);
  bool remove_stream(uint64_t number) { return streams_.remove(number); }
  void add_event(uint64_t number, uint64_t handle);
  bool remove_event(uint64_t number) { return events_.erase(number) != 0; }
  void add_function(uint64_t number, uint64_t handle, uint32_t argument_bytes);
  void remove_function(uint64_t number);
  void add_blas(uint64_t number);
  bool remove_blas(uint64_t number) { return blas_.remove(number); }
  bool configure_blas(uint64_t number, uint64_t stream, int math_mode, int pointer_mode,
                      uint64_t workspace, uint64_t workspace_bytes, int sm_count);
  DnnSession& dnn() { return dnn_; }
  void add_graph(uint64_t number, std::string piece);  // of frames; see Graph
  void remove_graph(uint64_t number) { graphs_.erase(number); }
  // The driver's handle of a stream; null: there is none.
  Stream stream_handle(uint64_t number);
  // A call of a library that the event loop has made, in another thread: a CUresult, the library's
  // status, and a list of what comes back. Throws std::invalid_argument.
  std::tuple<int, int, std::string> call_library(uint32_t function, uint64_t stream,
                                                 const List& arguments);
  // Whether the GPU has done all the session's work.
  bool idle();
  // Waits for it, and until the GPU writes no reply any more. A CUresult.
  int synchronize();
  // Gives back everything of the driver's; the lane has ended, and synchronize() was the last call.
  void end();

  void open(Channel* channel) override;
  void begin() override;
  void run(Number number, Unpacker& fields, Answer* answer) override;
  void pause() override;
  void rest() override;
  void stop() override { stopped_ = true; }

  bool settle() override;
  int number() const override { return number_; }

 private:
  struct KnownFunction {
    Function handle;
    uint32_t argument_bytes;
  };

  void execute(const calls::launch& c, Answer* a);
  void execute(const calls::launch_ex& c, Answer* a);
  void execute(const calls::max_clusters& c, Answer* a);
  void execute(const calls::tensor_map& c, Answer* a);
  void execute(const calls::tensor_map_im2col& c, Answer* a);
  void execute(const calls::copy_inline& c, Answer* a);
  void execute(const calls::copy_fetch& c, Answer* a);
  void execute(const calls::copy_from_host& c, Answer* a);
  void execute(const calls::copy_to_host& c, Answer* a);
  void execute(const calls::copy_device& c, Answer* a);
  void execute(const calls::copy_device_2d& c, Answer* a);
  void execute(const calls::cudaMemsetAsync& c, Answer* a);
  void execute(const calls::memset_words& c, Answer* a);
  void execute(const calls::cudaMemset2DAsync& c, Answer* a);
  void execute(const calls::event_record& c, Answer* a);
  void execute(const calls::event_query& c, Answer* a);
  void execute(const calls::stream_query& c, Answer* a);
  void execute(const calls::cudaStreamWaitEvent& c, Answer* a);
  void execute(const calls::cudaStreamSynchronize& c, Answer* a);
  void execute(const calls::cudaDeviceSynchronize& c, Answer* a);
  void execute(const calls::cudaEventSynchronize& c, Answer* a);
  void execute(const calls::cudaEventElapsedTime& c, Answer* a);
  void execute(const calls::graph_launch& c, Answer* a);
  void execute(const calls::lt_algo_check& c, Answer* a);
  void execute(const calls::lt_algo_get& c, Answer* a);
  void execute(const calls::lt_algo_init& c, Answer* a);
  void execute(const calls::lt_algo_set& c, Answer* a);
  void execute(const calls::lt_heuristic& c, Answer* a);
  void execute(const calls::lt_matmul& c, Answer* a);
  void execute(const calls::cudnn_execute& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_batch_norm_training& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_batch_norm_inference& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_batch_norm_backward& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_dropout_init& c, Answer* a);
  void execute(const calls::cudnn_rnn_temp_space& c, Answer* a);
  void execute(const calls::cudnn_rnn_forward& c, Answer* a) { run_rnn(c, a); }
  void execute(const calls::cudnn_rnn_backward_data& c, Answer* a) { run_rnn(c, a); }
  void execute(const calls::cudnn_rnn_backward_weights& c, Answer* a) { run_rnn(c, a); }
  void execute(const calls::cudnn_ctc& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_ctc_host& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_grid& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_grid_backward& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_sampler& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_sampler_backward& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_convolution& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_convolution_fused& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_pooling& c, Answer* a) { run_dnn(c, a); }
  void execute(const calls::cudnn_batch_norm_room& c, Answer* a) { ask_dnn(c, a); }
  void execute(const calls::cudnn_ctc_room& c, Answer* a) { ask_dnn(c, a); }
  void execute(const calls::cudnn_ctc_host_room& c, Answer* a) { ask_dnn(c, a); }
  void execute(const calls::cudnn_convolution_room& c, Answer* a) { ask_dnn(c, a); }
  void execute(const calls::cudnn_convolution_algorithms& c, Answer* a);
  void execute(const calls::cufft_run& c, Answer* a) { run_carried(c, a); }
  void execute(const calls::cusolver_run& c, Answer* a) { run_carried(c, a); }
  void execute(const calls::cusparse_run& c, Answer* a) { run_carried(c, a); }
  template <typename Call>
  void execute(const Call& c, Answer* a);  // routines of cuBLAS
  template <typename Call>
  void run_result(const Call& c, void* handle, const BlasSettings& settings, Answer* a);
  template <typename Call>
  void give_back(const Call& c, const BlasPlaces& at, int status, Answer* a);
  template <typename Call>
  void run_dnn(const Call& c, Answer* a);
  template <typename Call>
  void run_rnn(const Call& c, Answer* a);
  void check_space(uint64_t address, uint64_t size, const char* name, Answer* a) const;
  template <typename Call>
  void ask_dnn(const Call& c, Answer* a);
  template <typename Call>
  void run_carried(const Call& c, Answer* a);

  // Puts `operation(stream handle)`, which returns a CUresult, into one of the session's streams.
  template <typename Operation>
  void put(uint64_t stream, const char* name, Answer* a, Operation operation);
  // The same for a library call, which returns the library's own status; 0 is success.
  template <typename Operation>
  void put_library(uint64_t stream, const char* name, Answer* a, Operation operation);
  void replay(const Graph& graph, SessionStream* s, Answer* outer);
  void run_captured(const char* frame, size_t size, Answer* a);
  void capture(Graph* graph);
  void* blas(uint64_t number, const char* name, Answer* a);
  SessionStream* stream(uint64_t number, const char* name, Answer* a);
  Event event(uint64_t number, const char* name, Answer* a);
  Event past_event(uint64_t number, const char* name, Answer* a);  // the blank one, too
  const KnownFunction& function(uint64_t number);
  const KnownFunction& function(uint64_t number, const Bytes& args);
  void read_attributes(const List& from, const char* name, Answer* a,
                       std::vector<LaunchAttribute>* to);
  void answer_map(int code, const void* map, const char* name, Answer* a);
  bool is_device(uint64_t address, uint64_t size) const;
  void check_device(uint64_t address, uint64_t size, const char* name, Answer* a) const;
  void check_rows(uint64_t address, uint64_t pitch, uint64_t width, uint64_t height,
                  const char* name, Answer* a) const;
  void* host(uint64_t offset, uint64_t size, const char* name, Answer* a);
  // The answer comes when the stream has done its work so far.
  void answer_after(SessionStream* s, const char* name, Answer* a);
  void answer_in(Stream handle, const char* name, Answer* a);
  Stream waiter(Answer* a);
  void failed(int code, const char* name, Answer* a);
  void enter(SessionStream* s);
  void busy();
  void say_unsettled(bool unsettled);
  void leave(SessionStream* s, const char* name, Answer* a);
  void limit(SessionStream* s);
  bool all_answered() const;

  Watch* watch_;
  int number_;
  void* context_;
  Place place_;
  Streams streams_;
  std::unordered_map<uint64_t, Event> events_;
  Event blank_ = nullptr;                 // kBlankEvent, once it is asked for
  std::vector<KnownFunction> functions_;  // by number
  BlasHandles blas_;
  LtSession lt_;
  DnnSession dnn_;
  LibraryHandles library_handles_;
  std::unordered_map<uint64_t, std::unique_ptr<Graph>> graphs_;
  std::vector<Stream> waiters_;  // by reply slot: for waits that belong to no stream
  std::atomic<uint64_t> operations_{0};
  std::atomic<bool> unsettled_{false};
  Channel* channel_ = nullptr;
  bool staging_registered_ = false;
  std::atomic<bool> stopped_{false};
};

template <typename Operation>
void CudaExecutor::put(uint64_t number, const char* name, Answer* a, Operation operation) {
  SessionStream* s = a->status ? nullptr : stream(number, name, a);
  if (!s) return;
  failed(streams_.order(s), name, a);
  if (a->status) return;
  enter(s);
  if (int code = operation(s->handle)) {
    streams_.uncount(s);
    settle();  // a neighbour's fault must not find work here that never began
    return failed(code, name, a);
  }
  leave(s, name, a);
  if (!a->status && a->wanted()) answer_after(s, name, a);
}

}  // namespace mnemosyne::cuda
