// Reaching the file of a DiskSpace, which has no name, to damage it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace dc::runtime::test {

// Flips a bit of byte `offset` of this process's one open file in `folder` that has no name.
inline void damage_file_in(const std::string& folder, int64_t offset) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!target.starts_with(std::filesystem::path(folder).lexically_normal().string())) continue;
    if (!target.ends_with("(deleted)")) continue;
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    char byte = 0;
    EXPECT_EQ(pread(file, &byte, 1, offset), 1);
    byte = static_cast<char>(byte ^ 4);
    EXPECT_EQ(pwrite(file, &byte, 1, offset), 1);
    close(file);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

}  // namespace dc::runtime::test
