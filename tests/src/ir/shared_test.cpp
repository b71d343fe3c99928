#include "src/ir/shared.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/ir/overload.h"

namespace dc::ir {
namespace {

TEST(Shared, ReadsLikeWhatItHolds) {
  const Shared<std::string> none, some = "a module";
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(*none, "");
  EXPECT_EQ(some, "a module");
  EXPECT_NE(some, none);
  EXPECT_EQ(some.size(), 8u);
}

TEST(Shared, OneThatIsEditedLeavesItsCopiesAsTheyWere) {
  const Shared<std::vector<int>> before = std::vector<int>{1, 2};
  Shared<std::vector<int>> after = before;
  EXPECT_EQ(&*before, &*after);
  after.edit().push_back(3);
  EXPECT_EQ(*before, (std::vector<int>{1, 2}));
  EXPECT_EQ(*after, (std::vector<int>{1, 2, 3}));
  Shared<std::vector<int>> empty;
  empty.edit().push_back(4);
  EXPECT_EQ(empty[0], 4);
}

TEST(Overload, KnowsItsRowOrItsNameAlone) {
  const Overload none, known = "aten.mm.default", unknown = "aten.zzz.default";
  EXPECT_EQ(known.info(), aten_info("aten.mm.default"));
  EXPECT_EQ(known, "aten.mm.default");
  EXPECT_EQ(unknown.info(), nullptr);
  EXPECT_EQ(unknown.text(), "aten.zzz.default");
  EXPECT_EQ(none.name(), "");
  EXPECT_NE(known, unknown);
  EXPECT_NE(unknown, none);
  EXPECT_EQ(Overload(unknown), unknown);
}

}  // namespace
}  // namespace dc::ir
