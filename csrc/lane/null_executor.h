// Reads every call and does nothing: what the protocol itself costs.
#pragma once

#include <type_traits>

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
  void do_nothing(const Call& c, Answer* answer) {
    if constexpr (std::is_base_of_v<ReturnsResult, Call>) {
      if (c.result == 0) zeros(c.result_size(), answer);
    } else if constexpr (std::is_base_of_v<ReturnsInfo, Call>) {
      answer->outputs.integer(0);
      answer->outputs.integer(0);
      answer->output_count = 2;
    } else if constexpr (std::is_base_of_v<ChangesScalars, Call>) {
      c.pack(&answer->outputs);
      answer->output_count = Call::kChanged;
    }
  }
  // Calls with outputs: what is read back is zero.
  void do_nothing(const calls::copy_fetch& call, Answer* answer) { zeros(call.count, answer); }
  void do_nothing(const calls::cudaEventElapsedTime&, Answer* answer) {
    answer->outputs.real(0);
    answer->output_count = 1;
  }
  void do_nothing(const calls::lt_heuristic&, Answer* answer) {
    answer->outputs.array(0);
    answer->output_count = 1;
  }

  void do_nothing(const calls::lt_algo_check& call, Answer* answer) {
    answer->outputs.array(1);
    answer->outputs.array(3);
    answer->outputs.bytes(call.algo.data, call.algo.size);
    answer->outputs.integer(0);
    answer->outputs.real(1);
    answer->output_count = 1;
  }
  void do_nothing(const calls::lt_algo_init&, Answer* answer) { zeros(kAlgorithmBytes, answer); }
  void do_nothing(const calls::lt_algo_set& call, Answer* answer) {
    answer->outputs.bytes(call.algo.data, call.algo.size);
    answer->output_count = 1;
  }
  void do_nothing(const calls::lt_algo_get& call, Answer* answer) {
    zeros(call.size, answer);
    answer->outputs.unsigned_integer(call.size);
    answer->output_count = 2;
  }

  void do_nothing(const calls::cudnn_batch_norm_room&, Answer* answer) { zero(answer); }
  void do_nothing(const calls::cudnn_ctc_room&, Answer* answer) { zero(answer); }
  void do_nothing(const calls::cudnn_ctc_host_room&, Answer* answer) { zero(answer); }
  void do_nothing(const calls::cudnn_convolution_room&, Answer* answer) { zero(answer); }
  // One algorithm: PyTorch's own choice, which needs no memory.
  void do_nothing(const calls::cudnn_convolution_algorithms&, Answer* answer) {
    answer->outputs.array(1);
    answer->outputs.array(6);
    for (int value : {1, 0}) answer->outputs.integer(value);
    answer->outputs.real(-1);
    for (int value : {0, 1, 0}) answer->outputs.integer(value);
    answer->output_count = 1;
  }
  void do_nothing(const calls::max_clusters&, Answer* answer) { refuse(answer); }
  void do_nothing(const calls::tensor_map&, Answer* answer) { refuse(answer); }
  void do_nothing(const calls::tensor_map_im2col&, Answer* answer) { refuse(answer); }

  static void zero(Answer* answer) {
    answer->outputs.integer(0);
    answer->output_count = 1;
  }
  static void refuse(Answer* answer) {
    constexpr int kNotSupported = 801;
    answer->fail(kNotSupported, kNotSupported, "only a GPU's driver can tell");
  }

  void do_nothing(const calls::cudnn_rnn_temp_space&, Answer* answer) {
    answer->outputs.integer(0);
    answer->outputs.integer(0);
    answer->output_count = 2;
  }
  static constexpr size_t kAlgorithmBytes = 64;

  static void zeros(uint64_t count, Answer* answer) {
    constexpr uint64_t kMost = 4096;
    if (count > kMost) throw std::invalid_argument("that many bytes do not fit into a reply");
    memset(answer->outputs.bytes_room(count), 0, count);
    answer->output_count = 1;
  }
};

}  // namespace mnemosyne
