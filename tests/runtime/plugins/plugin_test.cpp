// A plug-in of another build is refused before anything in it runs.
#include "src/base/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/comm/plugin.h"
#include "runtime/kernel/kernel.h"
#include "src/base/interface_id.h"

namespace dc::base {
namespace {

using testing::HasSubstr;

// A folder that holds one library under a name of choice, as $DCRUN_PLUGIN_DIR.
class PluginFolder {
 public:
  PluginFolder(const char* library, const std::string& name) {
    std::string pattern = testing::TempDir() + "pluginsXXXXXX";
    path_ = mkdtemp(pattern.data());
    if (library != nullptr) std::filesystem::copy_file(library, path_ / name);
    setenv("DCRUN_PLUGIN_DIR", path_.c_str(), 1);
  }
  ~PluginFolder() {
    unsetenv("DCRUN_PLUGIN_DIR");
    std::filesystem::remove_all(path_);
  }

 private:
  std::filesystem::path path_;
};

Result<void*> open(const char* library, const char* entry = "dcrun_test_entry") {
  const PluginFolder folder(library, "libplugin.so");
  return open_plugin({"libplugin.so", entry, "DC6110", "a test wants it", "DC_TESTS"},
                     PluginSymbols::Local);
}

TEST(Plugin, OneOfThisBuildIsOpened) {
  const Result<void*> entry = open(DC_CURRENT);
  ASSERT_TRUE(entry.ok()) << entry.status().to_string();
  EXPECT_EQ(reinterpret_cast<int (*)()>(*entry)(), 7);
}

TEST(Plugin, OneOfAnotherBuildIsRefused) {
  const Status status = open(DC_STALE).status();
  EXPECT_EQ(status.kind(), ErrorKind::Mismatch);
  EXPECT_EQ(status.code(), "DC6125");
  EXPECT_THAT(status.sentence(), HasSubstr("interfaces 0123, compiler 1.0"));
  EXPECT_THAT(status.sentence(), HasSubstr(interface_id()));
  EXPECT_EQ(open(DC_NAMELESS).status().code(), "DC6125");
}

TEST(Plugin, OneThatIsMissingIsNamedWithTheCure) {
  for (const Status& status :
       {open(nullptr).status(), open(DC_CURRENT, "no_such_entry").status()}) {
    EXPECT_EQ(status.kind(), ErrorKind::Unavailable);
    EXPECT_EQ(status.code(), "DC6110");
    EXPECT_THAT(status.sentence(), HasSubstr("libplugin.so"));
    EXPECT_THAT(status.sentence(), HasSubstr("DC_TESTS=ON"));
  }
}

TEST(Plugin, BothOfDcrunsAreChecked) {
  {
    const PluginFolder folder(DC_STALE, "libdcrun_aten.so");
    EXPECT_EQ(runtime::kernel::open_aten_provider(1).status().code(), "DC6125");
  }
  const PluginFolder folder(DC_STALE, runtime::comm::kMpiPlugin);
  EXPECT_EQ(runtime::comm::connect_mpi({}, {}).status().code(), "DC6125");
}

}  // namespace
}  // namespace dc::base
