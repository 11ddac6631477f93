#include "core/memory/saved.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace weft::test {
namespace {

struct NormSaved {
  int x;
};
struct LinearSaved {
  int x;
};

TEST(SavedStack, ReturnsFramesInReverseOrder) {
  SavedStack saved;
  saved.push(NormSaved{1});
  saved.push(LinearSaved{2});
  saved.push(NormSaved{3});
  EXPECT_EQ(saved.depth(), 3u);
  EXPECT_EQ(saved.pop<NormSaved>().x, 3);
  EXPECT_EQ(saved.pop<LinearSaved>().x, 2);
  EXPECT_EQ(saved.pop<NormSaved>().x, 1);
  EXPECT_TRUE(saved.empty());
}

TEST(SavedStack, RefusesAFrameOfAnotherTypeAndKeepsIt) {
  SavedStack saved;
  saved.push(NormSaved{1});
  EXPECT_THROW(saved.pop<LinearSaved>(), Error);
  EXPECT_EQ(saved.pop<NormSaved>().x, 1);
}

TEST(SavedStack, SaysWhenForwardSavedNothing) {
  SavedStack saved;
  EXPECT_THROW(saved.pop<NormSaved>(), Error);
}

TEST(SavedStack, TopCanBeChangedInPlace) {
  SavedStack saved;
  saved.push(std::string("a"));
  saved.top<std::string>() += "b";
  EXPECT_EQ(saved.pop<std::string>(), "ab");
}

TEST(SavedStack, HoldsMoveOnlyFramesAndFreesThem) {
  SavedStack saved;
  const auto alive = std::make_shared<int>(7);
  saved.push(std::make_unique<std::shared_ptr<int>>(alive));
  EXPECT_EQ(alive.use_count(), 2);
  saved.clear();
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_TRUE(saved.empty());
}

}  // namespace
}  // namespace weft::test
