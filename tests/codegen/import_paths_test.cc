// That the headers of capnp_rpc_library are found where its documentation says, and its schemas by other
// schemas.

#include <gtest/gtest.h>

#include <type_traits>

#include "deep/stripped.rpc.h"
#include "tests/codegen/made.rpc.h"
#include "tests/codegen/testdata/base.rpc.h"

namespace {

TEST(ImportPathsTest, ALibraryCanStripTheFoldersBeforeItsSchemas) {
  EXPECT_TRUE((std::is_convertible_v<StrippedStub, acme::base::NodeStub>));
}

TEST(ImportPathsTest, ASchemaCanBeMadeByTheBuildAndImportedAsAnyOther) {
  EXPECT_TRUE((std::is_convertible_v<MadeStub, StrippedStub>));
  EXPECT_STREQ(MadeStub::kMake.name, "made.capnp:Made.make");
}

}  // namespace
