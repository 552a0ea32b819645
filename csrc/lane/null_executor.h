// Reads every call and does nothing: what the protocol itself costs.
#pragma once

#include "../generated/calls.h"
#include "executor.h"

namespace mnemosyne {

class NullExecutor : public Executor {
 public:
  void run(Number number, Unpacker& fields, Answer* answer) override {
    dispatch(number, fields, [&](const auto& call) { do_nothing(call, answer); });
  }

 private:
  template <typename Call>
  void do_nothing(const Call&, Answer*) {}
  // Calls with outputs: what is read back is zero.
  void do_nothing(const calls::copy_fetch& call, Answer* answer) { zeros(call.count, answer); }
  void do_nothing(const calls::blas_dot& call, Answer* answer) {
    constexpr int kReal64 = 1;  // CUDA_R_64F
    zeros(call.type == kReal64 ? 8 : 4, answer);
  }
  void do_nothing(const calls::cudaEventElapsedTime&, Answer* answer) {
    answer->outputs.real(0);
    answer->output_count = 1;
  }
  void do_nothing(const calls::lt_heuristic&, Answer* answer) {
    answer->outputs.array(0);
    answer->output_count = 1;
  }

  void do_nothing(const calls::cudnn_batch_norm_room&, Answer* answer) {
    answer->outputs.integer(0);
    answer->output_count = 1;
  }

  void do_nothing(const calls::cudnn_rnn_temp_space&, Answer* answer) {
    answer->outputs.integer(0);
    answer->outputs.integer(0);
    answer->output_count = 2;
  }

  static void zeros(uint64_t count, Answer* answer) {
    constexpr uint64_t kMost = 4096;
    if (count > kMost) throw std::invalid_argument("that many bytes do not fit into a reply");
    memset(answer->outputs.bytes_room(count), 0, count);
    answer->output_count = 1;
  }
};

}  // namespace mnemosyne
