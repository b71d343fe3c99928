// What rows of measurements must be, on any device.
#pragma once

#include <span>

#include <gtest/gtest.h>

#include "runtime/measure/measure.h"

namespace dc::runtime::test {

// A sweep by two ranks over so many sizes: 4 KiB, 16 KiB and so on.
inline void expect_rows(const measure::CollectiveSweep (&seen)[2], size_t sizes) {
  constexpr std::string_view kKinds[] = {"all_gather", "all_reduce", "reduce_scatter"};
  const measure::CollectiveSweep& rows = seen[0];
  ASSERT_EQ(rows.alone.size(), 3 * sizes);
  ASSERT_EQ(rows.during_compute.size(), rows.alone.size());
  for (size_t i = 0; i < rows.alone.size(); ++i) {
    const base::CollectiveMeasurement& row = rows.alone[i];
    EXPECT_EQ(row.kind, kKinds[i / sizes]);
    EXPECT_EQ(row.bytes, int64_t{4096} << (2 * (i % sizes)));
    EXPECT_EQ(row.ranks, 2);
    EXPECT_GT(row.timing.median_ns, 0);
    EXPECT_GE(row.timing.samples, 5);
    EXPECT_EQ(seen[1].alone[i].timing.median_ns, row.timing.median_ns);
    const base::DuringComputeMeasurement& during = rows.during_compute[i];
    EXPECT_EQ(during.kind, row.kind);
    EXPECT_EQ(during.bytes, row.bytes);
    EXPECT_GT(during.timing.median_ns, 0);
    EXPECT_GE(during.compute_permille, 1000);
    EXPECT_EQ(seen[1].during_compute[i].compute_permille, during.compute_permille);
  }
  // A gather and a reduction at once, from 64 KiB.
  ASSERT_EQ(rows.together.size(), 2 * (sizes - 2));
  for (size_t i = 0; i < rows.together.size(); ++i) {
    const base::TogetherMeasurement& row = rows.together[i];
    EXPECT_EQ(row.kind, i % 2 == 0 ? "all_gather" : "reduce_scatter");
    EXPECT_EQ(row.other, i % 2 == 0 ? "reduce_scatter" : "all_gather");
    EXPECT_EQ(row.bytes, int64_t{65536} << (2 * (i / 2)));
    EXPECT_EQ(row.ranks, 2);
    EXPECT_GT(row.timing.median_ns, 0);
    EXPECT_GT(row.timing.samples, 0);
    EXPECT_EQ(seen[1].together[i].timing.median_ns, row.timing.median_ns);
  }
}

// Copies of 4 KiB to 16 MiB from the device to the host and back; with `has_disk` to the disk too.
inline void expect_rows(std::span<const base::CopyMeasurement> copies, bool has_disk) {
  constexpr size_t kSizes = 7;
  ASSERT_EQ(copies.size(), (has_disk ? 4 : 2) * kSizes);
  for (size_t i = 0; i < copies.size(); ++i) {
    const base::CopyMeasurement& row = copies[i];
    const bool is_back = i / kSizes % 2 == 1;
    EXPECT_EQ(is_back ? row.to : row.from, "device");
    EXPECT_EQ(is_back ? row.from : row.to, i < 2 * kSizes ? "host" : "disk");
    EXPECT_EQ(row.bytes, int64_t{4096} << (2 * (i % kSizes)));
    EXPECT_GT(row.timing.median_ns, 0);
    EXPECT_EQ(row.timing.samples, 9);
  }
}

}  // namespace dc::runtime::test
