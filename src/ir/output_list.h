// What a graph gives: its loss, and the gradients and new values of buffers, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "src/base/units.h"

namespace dc::ir {

using ValueId = base::Id<struct ValueTag>;

enum class OutputKind : uint8_t { Loss, Gradient, BufferUpdate };
struct Output {
  OutputKind kind = OutputKind::Loss;
  std::string fqn;  // parameter or buffer; empty for the loss
  ValueId value;
};

// The outputs in order. A model has one for each parameter, and passes ask of every value whether
// it is one: that takes as long however many there are.
class OutputList {
 public:
  OutputList() = default;
  OutputList(std::initializer_list<Output> outputs) {
    for (const Output& output : outputs) push_back(output);
  }

  size_t size() const { return list_.size(); }
  bool empty() const { return list_.empty(); }
  const Output& operator[](size_t index) const { return list_[index]; }
  const Output& front() const { return list_.front(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  bool contains(ValueId value) const {
    return value.valid() && value.index() < times_.size() && times_[value.index()] > 0;
  }

  void push_back(Output output) {
    count(output.value, 1);
    list_.push_back(std::move(output));
  }
  void set_value(size_t index, ValueId value) {
    count(list_[index].value, -1);
    list_[index].value = value;
    count(value, 1);
  }
  void replace(ValueId from, ValueId to) {
    if (!contains(from)) return;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].value == from) set_value(i, to);
    }
  }
  template <typename Goes>
  void erase_if(Goes goes) {
    std::erase_if(list_, goes);
    times_.clear();
    for (const Output& output : list_) count(output.value, 1);
  }

 private:
  void count(ValueId value, int32_t times) {
    if (!value.valid()) return;
    if (times_.size() <= value.index()) times_.resize(value.index() + 1);
    times_[value.index()] += times;
  }

  std::vector<Output> list_;
  std::vector<int32_t> times_;  // by value: how often it is in the list
};

}  // namespace dc::ir
