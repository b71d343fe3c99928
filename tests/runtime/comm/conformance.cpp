#include "tests/runtime/comm/conformance.h"

#include <thread>

namespace dc::runtime::conformance {
namespace {

std::string describe(const char* collective, const Shape& shape, bool in_place) {
  return std::string(collective) + " " + std::string(base::name(shape.dtype)) + "[" +
         std::to_string(shape.elements) + "] shard " + std::to_string(shape.shard) +
         (in_place ? " in place" : "");
}

int64_t owned(const Shape& shape, int rank) {
  return std::clamp<int64_t>(shape.elements - rank * shape.shard, 0, shape.shard);
}

}  // namespace

std::vector<Shape> Suite::shapes() const {
  std::vector<Shape> result;
  const int64_t n = world();
  const auto even = [&](int64_t elements) { return (elements + n - 1) / n; };
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const int64_t elements : {0, 1, 2, 7, 31, 257, 4097, 12289}) {
      result.push_back({elements, even(elements), dtype});  // the last shard may be short or empty
      result.push_back({elements, base::round_up(even(elements) + 1, 32),
                        dtype});  // padded: later ranks may own nothing
    }
  }
  result.push_back({0, 32, DType::F32});  // nothing but tail
  result.push_back({300'001, base::round_up(even(300'001), 32), DType::F32});
  result.push_back({300'003, even(300'003), DType::BF16});
  return result;
}

Suite::Case Suite::make_gather(Shape shape, bool in_place, int salt) {
  Case c{{}, shape, salt, in_place, describe("all_gather", shape, in_place)};
  const int64_t bytes = base::byte_size(shape.dtype);
  std::byte* output = take(shape.shard * world() * bytes, salt % 3 == 0 ? bytes : 0);
  std::byte* input =
      in_place ? output + rank() * shape.shard * bytes : take(shape.shard * bytes, 0);
  for (int64_t i = 0; i < owned(shape, rank()); ++i)
    store(here(input) + i * bytes, shape.dtype, rank(), i, salt);
  c.buffer = {{input, in_place ? shape.shard * bytes : 0},
              {output, 0},
              shape.dtype,
              shape.elements,
              shape.shard};
  return c;
}

void Suite::check_gather(const Case& c) {
  const int64_t bytes = base::byte_size(c.shape.dtype);
  std::vector<std::byte> wanted(static_cast<size_t>(c.shape.elements * bytes) + 1);
  for (int peer = 0; peer < world(); ++peer) {
    for (int64_t i = 0; i < owned(c.shape, peer); ++i) {
      store(wanted.data() + (peer * c.shape.shard + i) * bytes, c.shape.dtype, peer, i, c.salt);
    }
  }
  const std::byte* output = here(c.buffer.output.data);
  expect_bits(output, wanted.data(), c.shape.elements * bytes, c.label);
  expect_guard(output + c.shape.shard * world() * bytes, c.label);
}

Suite::Case Suite::make_reduction(Shape shape, bool whole, bool in_place, int salt) {
  Case c{{},
         shape,
         salt,
         in_place,
         describe(whole ? "all_reduce" : "reduce_scatter", shape, in_place)};
  const int64_t bytes = base::byte_size(shape.dtype);
  const int64_t padded = shape.shard * world();
  std::byte* input = take(padded * bytes, salt % 3 == 0 ? bytes : 0);
  for (int64_t i = 0; i < shape.elements; ++i)
    store(here(input) + i * bytes, shape.dtype, rank(), i, salt);
  std::byte* output = nullptr;
  if (in_place)
    output = input + (whole ? 0 : rank() * shape.shard * bytes);
  else
    output = take((whole ? shape.elements : shape.shard) * 4, salt % 2 == 0 ? 4 : 0);
  c.buffer = {{input, 0},
              {output, in_place && !whole ? shape.shard * 4 : 0},
              shape.dtype,
              shape.elements,
              shape.shard};
  return c;
}

void Suite::check_reduction(const Case& c, bool whole) {
  const int64_t first = whole ? 0 : rank() * c.shape.shard;
  const int64_t count = whole ? c.shape.elements : c.shape.shard;
  std::vector<float> wanted(static_cast<size_t>(count) + 1, 0.0f);
  for (int64_t i = 0; i < count && first + i < c.shape.elements; ++i) {
    wanted[static_cast<size_t>(i)] = expected_sum(c.shape.dtype, world(), first + i, c.salt);
  }
  const std::byte* output = here(c.buffer.output.data);
  if (comm_.sums_in_rank_order()) expect_bits(output, wanted.data(), count * 4, c.label);
  if (!c.in_place) {
    expect_guard(output + count * 4, c.label);
    const std::byte* input = here(c.buffer.input.data);
    std::byte kept[4];
    for (int64_t i = 0; i < c.shape.elements; ++i) {
      store(kept, c.shape.dtype, rank(), i, c.salt);
      const int64_t bytes = base::byte_size(c.shape.dtype);
      if (std::memcmp(kept, input + i * bytes, static_cast<size_t>(bytes)) != 0)
        return fault(c.label + ": changed its input");
    }
  }
}

void Suite::run_gathers(const std::vector<Shape>& shapes, bool in_place, bool fused) {
  used_ = 0;
  std::vector<Case> cases;
  std::vector<comm::CollectiveBuffer> buffers;
  for (const Shape& shape : shapes) {
    cases.push_back(make_gather(shape, in_place, ++salt_));
    buffers.push_back(cases.back().buffer);
  }
  write_slab();
  if (fused) need(comm_.all_gather(buffers, *stream_), "fused all_gather");
  for (size_t i = 0; i < cases.size() && !fused; ++i)
    need(comm_.all_gather({&buffers[i], 1}, *stream_), cases[i].label);
  read_slab();
  for (const Case& c : cases) check_gather(c);
}

void Suite::run_reductions(const std::vector<Shape>& shapes, bool whole, bool in_place,
                           bool fused) {
  used_ = 0;
  std::vector<Case> cases;
  std::vector<comm::CollectiveBuffer> buffers;
  for (const Shape& shape : shapes) {
    if (in_place && shape.dtype != DType::F32) continue;
    cases.push_back(make_reduction(shape, whole, in_place, ++salt_));
    buffers.push_back(cases.back().buffer);
  }
  const auto reduce = [&](std::span<const comm::CollectiveBuffer> list) {
    return whole ? comm_.all_reduce(list, *stream_) : comm_.reduce_scatter(list, *stream_);
  };
  write_slab();
  if (fused) need(reduce(buffers), whole ? "fused all_reduce" : "fused reduce_scatter");
  for (size_t i = 0; i < cases.size() && !fused; ++i)
    need(reduce({&buffers[i], 1}), cases[i].label);
  read_slab();
  for (const Case& c : cases) check_reduction(c, whole);
}

void Suite::run_control() {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{4096}, int64_t{10'001}}) {
    std::vector<uint8_t> mine(static_cast<size_t>(bytes)),
        all(static_cast<size_t>(bytes * world()));
    const auto byte = [&](int rank, int64_t i) {
      return static_cast<uint8_t>(int64_t{rank} * 37 + i * 11 + bytes);
    };
    for (int64_t i = 0; i < bytes; ++i) mine[static_cast<size_t>(i)] = byte(rank(), i);
    need(control_->exchange(mine.data(), bytes, all.data()), "exchange");
    for (int peer = 0; peer < world(); ++peer) {
      for (int64_t i = 0; i < bytes; ++i) {
        if (all[static_cast<size_t>(peer * bytes + i)] != byte(peer, i))
          return fault("exchange: other bytes than expected");
      }
    }
    for (int root = 0; root < world(); ++root) {
      std::vector<uint8_t> data(static_cast<size_t>(bytes), 0);
      for (int64_t i = 0; root == rank() && i < bytes; ++i)
        data[static_cast<size_t>(i)] = byte(root, i);
      need(control_->broadcast(data.data(), bytes, {root}), "broadcast");
      for (int64_t i = 0; i < bytes; ++i) {
        if (data[static_cast<size_t>(i)] != byte(root, i))
          return fault("broadcast: other bytes than expected");
      }
    }
  }
  need(control_->barrier(), "barrier");
}

void Suite::run_traffic() {
  used_ = 0;
  const comm::Traffic before = comm_.traffic();
  const Shape shape{1001, base::round_up((1001 + world() - 1) / world(), 32), DType::BF16};
  const Case gather = make_gather(shape, false, ++salt_),
             scatter = make_reduction(shape, false, false, ++salt_),
             reduce = make_reduction(shape, true, false, ++salt_);
  write_slab();
  need(comm_.all_gather({&gather.buffer, 1}, *stream_), "all_gather");
  need(comm_.reduce_scatter({&scatter.buffer, 1}, *stream_), "reduce_scatter");
  need(comm_.all_reduce({&reduce.buffer, 1}, *stream_), "all_reduce");
  read_slab();
  const comm::Traffic after = comm_.traffic();
  const int64_t own = owned(shape, rank()), others = shape.elements - own;
  if (after.all_gather - before.all_gather != own * 2 * (world() - 1)) fault("traffic: all_gather");
  if (after.reduce_scatter - before.reduce_scatter != others * 2) fault("traffic: reduce_scatter");
  if (after.all_reduce - before.all_reduce != others * 2 + own * 4 * (world() - 1))
    fault("traffic: all_reduce");
}

void Suite::run() {
  const std::vector<Shape> all = shapes();
  for (const bool fused : {false, true}) {
    for (const bool in_place : {false, true}) {
      run_gathers(all, in_place, fused);
      run_reductions(all, false, in_place, fused);
      run_reductions(all, true, in_place, fused);
    }
  }
  if (control_ != nullptr) run_control();
  run_traffic();
  need(comm_.health(), "health");
}

void run_sums(comm::Communicator& communicator, device::Device& device, comm::Slab slab,
              std::vector<std::string>* faults) {
  const auto stream = device.make_stream();
  std::vector<float> data(5000);
  const int64_t shard = (5000 + communicator.size() - 1) / communicator.size();
  const comm::CollectiveBuffer buffer{{slab.base, 0}, {slab.base, 0}, DType::F32, 5000, shard};
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = number(communicator.rank().v, static_cast<int64_t>(i), round);
    base::Status status = device.upload(slab.base, std::as_bytes(std::span(data)));
    if (status.ok()) status = communicator.all_reduce({&buffer, 1}, *stream);
    if (status.ok()) status = stream->drain();
    if (status.ok()) status = device.download(std::as_writable_bytes(std::span(data)), slab.base);
    if (!status.ok()) faults->push_back(status.to_string());
    for (size_t i = 0; i < data.size(); ++i) {
      if (data[i] == expected_sum(DType::F32, communicator.size(), static_cast<int64_t>(i), round))
        continue;
      return faults->push_back("the communicator that ran at the same time summed wrongly");
    }
  }
}

std::vector<std::string> run_rank(comm::ProcessGroup& job, bool threads_allowed) {
  std::vector<std::string> faults;
  const auto slab = job.allocate(kSlabBytes);
  const auto second = job.allocate(kSlabBytes);
  if (!slab.ok()) return {slab.status().to_string()};
  if (!second.ok()) return {second.status().to_string()};
  if (reinterpret_cast<uintptr_t>(slab.value().base) % base::kAlignment != 0)
    faults.push_back("the slab is not aligned");
  std::vector<std::byte> zeros(static_cast<size_t>(kSlabBytes));
  const base::Status seen = job.device().download(zeros, slab.value().base);
  if (!seen.ok()) return {seen.to_string()};
  for (size_t i = 0; i < zeros.size(); i += 4093) {
    if (zeros[i] != std::byte{0}) return {"the slab is not zero-filled"};
  }
  auto one = job.open_communicator();
  auto two = job.open_communicator();
  if (!one.ok()) return {one.status().to_string()};
  if (!two.ok()) return {two.status().to_string()};
  const auto suite = [&] {
    Suite(&job.control(), *one.value(), job.device(), slab.value(), 0, &faults).run();
  };
  suite();
  if (threads_allowed && faults.empty()) {
    // Two communicators of one rank at the same time, each on its own slab; the control
    // communicator belongs to the first.
    std::vector<std::string> other;
    std::thread thread([&] { run_sums(*two.value(), job.device(), second.value(), &other); });
    suite();
    thread.join();
    faults.insert(faults.end(), other.begin(), other.end());
  }
  const base::Status last = job.control().barrier();
  if (!last.ok()) faults.push_back(last.to_string());
  return faults;
}

}  // namespace dc::runtime::conformance
